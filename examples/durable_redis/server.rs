//! [`Server`]: a redis-server of this program's own.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use throng::durable::{DurableClient, DurableError};
use tokio::time::{Instant, sleep};

use super::{Result, open};

/// A redis-server of this program's own, with a folder that is removed at the end.
///
/// It listens on a socket there: no port can be taken by somebody else.
pub(crate) struct Server {
    shell: Child,
    folder: TempDir,
}

/// Every write is on the disk before it is answered.
const SETTINGS: [&str; 12] = [
    "--port",
    "0",
    "--unixsocket",
    "socket",
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
    "--logfile",
    "log",
];

/// The server ends when the input of the shell does, which is when this process does: also when that
/// is killed.
const SCRIPT: &str = r#"redis-server "$@" </dev/null & read -r _; kill $!; wait"#;

const MISSING: &str = "there is no redis-server here: install it, on Debian and Ubuntu by \
    `apt-get install redis-server`, with Homebrew by `brew install redis`; or name a Redis that runs, \
    by `--url redis://HOST/`";

/// The time within which the server must start.
const MAX_WAIT: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(20);

impl Server {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// It is not installed, or there is no place for it.
    pub(crate) fn start() -> Result<Self> {
        let version = Command::new("redis-server").arg("--version").output();
        version.map_err(|_| MISSING)?;
        let folder = tempfile::tempdir()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh"]).args(SETTINGS);
        shell.current_dir(&folder).stdin(Stdio::piped());
        // In a group of its own, so that Ctrl-C does not end it before the others.
        let shell = shell.process_group(0).spawn()?;
        Ok(Self { shell, folder })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Opens the store in it, as soon as it answers.
    ///
    /// # Errors
    ///
    /// It does not answer in time: then, what it says of that.
    pub(crate) async fn open(&self) -> Result<DurableClient> {
        let end = Instant::now() + MAX_WAIT;
        loop {
            match open(&self.url()).await {
                Ok(client) => return Ok(client),
                Err(_) if Instant::now() < end => sleep(INTERVAL).await,
                Err(error) => return Err(self.trouble(&error).into()),
            }
        }
    }

    fn trouble(&self, error: &DurableError) -> String {
        let log = fs::read_to_string(self.folder.path().join("log"));
        format!("{error}\n{}", log.unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().ok();
    }
}
