//! [`Terminal`]: a pseudo-terminal, and what its screen shows. The tests of the screen of `throng top`, which are in the program, use it, too.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A pseudo-terminal.
pub(crate) struct Terminal {
    master: File,
    slave: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

const ROWS: NonZeroU16 = NonZeroU16::new(24).unwrap();
pub(crate) const COLUMNS: NonZeroU16 = NonZeroU16::new(100).unwrap();

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
        Ok(Self {
            output: output_of(master.try_clone()?),
            master,
            slave,
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
        })
    }

    /// Starts a command in the terminal.
    pub(crate) fn spawn(&self, mut command: Command) -> Result<Child> {
        command.env("TERM", "xterm-256color");
        command.stdin(self.slave.try_clone()?);
        command.stdout(self.slave.try_clone()?);
        Ok(command.stderr(self.slave.try_clone()?).spawn()?)
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

/// Reads what is written to a terminal, on a thread that ends with the terminal.
fn output_of(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, output) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len) = master.read(&mut buffer) {
            if sender.send(buffer[..len].to_vec()).is_err() {
                break;
            }
        }
    });
    output
}
