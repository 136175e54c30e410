//! Commands in a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::Result;
use super::scene::fill;
use super::store::TestStore;

/// A pseudo-terminal.
pub(crate) struct Terminal {
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
    pub(crate) fn open() -> Result<Self> {
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

    pub(crate) fn spawn(&self, store: &TestStore, args: &[&str]) -> Result<Child> {
        let mut command = store.command(args);
        command.env("TERM", "xterm-256color");
        let end = || Ok::<_, std::io::Error>(Stdio::from(self.slave.try_clone()?));
        Ok(command
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()?)
    }

    pub(crate) fn type_keys(&mut self, keys: &str) -> Result {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    /// Waits until the screen shows a text.
    pub(crate) fn wait_for(&mut self, text: &str) -> Result {
        self.wait_until(text, |screen| screen.contents().contains(text))
    }

    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        is_done: impl Fn(&vt100::Screen) -> bool,
    ) -> Result {
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
    pub(crate) fn is_restored(&self) -> Result<bool> {
        let modes = tcgetattr(&self.slave)?.local_modes;
        Ok(modes.contains(LocalModes::ICANON | LocalModes::ECHO))
    }
}

async fn filled() -> Result<TestStore> {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    Ok(store)
}

/// Each row of a table is one line of the terminal, whose end shows that something is missing.
#[tokio::test]
async fn a_table_fits_into_the_terminal() -> Result {
    let store = filled().await?;
    let mut terminal = Terminal::open()?;
    let mut child = terminal.spawn(&store, &["dead", "ls"])?;
    terminal.wait_for("no such")?;
    assert!(child.wait()?.success());
    let lines: Vec<_> = terminal.screen().rows(0, COLUMNS.get()).collect();
    assert!(
        lines[0].starts_with("ID ") && lines[4].is_empty(),
        "{lines:?}"
    );
    assert!(terminal.screen().cell(0, 0).is_some_and(vt100::Cell::bold));
    Ok(())
}

/// The person must type the number of dead letters.
#[tokio::test]
async fn a_person_is_asked_before_something_is_deleted() -> Result {
    let store = filled().await?;
    for (answer, code, dead) in [("yes\n", 2, 3), ("3\n", 0, 0)] {
        let mut terminal = Terminal::open()?;
        let mut child = terminal.spawn(&store, &["dead", "delete", "--all"])?;
        terminal.wait_for("This will delete 3 dead letters. Type 3 to confirm:")?;
        terminal.type_keys(answer)?;
        assert_eq!(child.wait()?.code(), Some(code));
        let client = store.open().await?;
        assert_eq!(client.counts().await?.dead, dead);
        client.close().await?;
    }
    Ok(())
}

#[tokio::test]
async fn raw_bytes_are_not_printed_to_a_terminal() -> Result {
    let store = filled().await?;
    let mut terminal = Terminal::open()?;
    let id = super::scene::id(4).to_string();
    let mut child = terminal.spawn(&store, &["task", "payload", &id, "--raw"])?;
    terminal.wait_for("write it to a file or a pipe")?;
    assert_eq!(child.wait()?.code(), Some(2));
    Ok(())
}
