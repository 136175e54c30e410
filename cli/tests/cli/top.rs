//! `throng top` in a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::Result;
use super::scene::{fill, id};
use super::store::TestStore;

/// A pseudo-terminal.
struct Terminal {
    master: File,
    slave: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

const ROWS: NonZeroU16 = NonZeroU16::new(24).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(100).unwrap();

/// The time within which a text must appear.
const MAX_WAIT: Duration = Duration::from_secs(30);

impl Terminal {
    fn open() -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let path = ptsname(&master, Vec::new())?.into_string()?;
        let slave = OpenOptions::new().read(true).write(true).open(path)?;
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size)?;
        let master = File::from(master);
        let (sender, output) = mpsc::channel();
        let mut reader = master.try_clone()?;
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len) = reader.read(&mut buffer) {
                if sender.send(buffer[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            master,
            slave,
            output,
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
        })
    }

    fn spawn(&self, store: &TestStore, args: &[&str]) -> Result<Child> {
        let mut command = store.command(args);
        command.env("TERM", "xterm-256color");
        let end = || Ok::<_, std::io::Error>(Stdio::from(self.slave.try_clone()?));
        Ok(command
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()?)
    }

    fn type_keys(&mut self, keys: &str) -> Result {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// Waits until the screen shows a text.
    fn wait_for(&mut self, text: &str) -> Result {
        self.wait_until(text, |screen| screen.contents().contains(text))
    }

    fn wait_until(&mut self, what: &str, is_done: impl Fn(&vt100::Screen) -> bool) -> Result {
        let end = Instant::now() + MAX_WAIT;
        while !is_done(self.screen.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            let missing = || {
                format!(
                    "no {what} on this screen:\n{}",
                    self.screen.screen().contents()
                )
            };
            let bytes = self.output.recv_timeout(left).map_err(|_| missing())?;
            self.screen.process(&bytes);
        }
        Ok(())
    }

    /// Returns `true` if lines are edited and echoed, as a shell expects.
    fn is_restored(&self) -> Result<bool> {
        let modes = tcgetattr(&self.slave)?.local_modes;
        Ok(modes.contains(LocalModes::ICANON | LocalModes::ECHO))
    }
}

#[tokio::test]
async fn the_terminal_is_restored() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    for is_killed in [false, true] {
        let mut terminal = Terminal::open()?;
        let mut child = terminal.spawn(&store, &["top"])?;
        terminal.wait_for("reports")?;
        assert!(terminal.screen.screen().alternate_screen());
        assert!(!terminal.is_restored()?);
        match is_killed {
            false => terminal.type_keys("q")?,
            true => kill_process(Pid::from_child(&child), Signal::TERM)?,
        }
        terminal.wait_until("shell", |screen| !screen.alternate_screen())?;
        assert!(child.wait()?.success());
        assert!(terminal.is_restored()?);
    }
    Ok(())
}

#[tokio::test]
async fn a_dead_letter_is_replayed_on_the_screen() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    let mut terminal = Terminal::open()?;
    let mut child = terminal.spawn(&store, &["top", "--operate"])?;
    terminal.wait_for("reports")?;
    terminal.type_keys("3")?;
    terminal.wait_for(&id(4).to_string())?;
    terminal.type_keys("/mailbox\r")?;
    terminal.wait_for("no such mailbox")?;
    terminal.type_keys("r")?;
    terminal.wait_for("y: yes")?;
    terminal.type_keys("y")?;
    terminal.wait_for("waits again")?;
    terminal.type_keys("q")?;
    assert!(child.wait()?.success());
    assert_eq!(client.counts().await?.dead, 2);
    Ok(client.close().await?)
}

/// A script gets an error, and no escape sequences.
#[test]
fn a_pipe_is_refused() -> Result {
    let store = TestStore::sqlite()?;
    let output = store.run(&["top"])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr)?.contains("throng status"));
    Ok(())
}
