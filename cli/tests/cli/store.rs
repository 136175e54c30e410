//! [`TestStore`]: a store of a test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use throng::durable::{DurableClient, RedisStore, SqliteStore};

use super::Result;

/// A store that is removed at the end.
pub(crate) struct TestStore {
    /// The store that `--store` names.
    pub(crate) address: String,
    pub(crate) name: &'static str,
    pub(crate) folder: TempDir,
    server: Option<Child>,
}

/// The server ends when the input of the shell does, even if the test is killed.
const SCRIPT: &str = r#"redis-server "$@" >log </dev/null & read -r _; kill $!; wait"#;

/// The settings of a server about which `throng doctor` has nothing to say.
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
    "--slowlog-log-slower-than",
    "-1",
];

/// The time within which a server must start, and a process must end.
const MAX_WAIT: Duration = Duration::from_secs(30);

impl TestStore {
    pub(crate) fn sqlite() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = format!("sqlite:{}", folder.path().join("tasks.db").display());
        Ok(Self {
            address,
            name: "sqlite",
            folder,
            server: None,
        })
    }

    /// Starts a server.
    pub(crate) async fn redis() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh"]).args(SETTINGS);
        let server = shell.current_dir(&folder).stdin(Stdio::piped()).spawn()?;
        let address = format!("redis+unix://{}", folder.path().join("socket").display());
        let store = Self {
            address,
            name: "redis",
            folder,
            server: Some(server),
        };
        let end = Instant::now() + MAX_WAIT;
        loop {
            match store.open().await {
                Ok(client) => break client.close().await?,
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        Ok(store)
    }

    pub(crate) async fn open(&self) -> Result<DurableClient> {
        Ok(match &self.server {
            None => DurableClient::open(SqliteStore::open(self.file()).await?),
            Some(_) => DurableClient::open(RedisStore::open(&self.address).await?),
        })
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }

    /// Returns the command on this store.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = throng(self.folder.path());
        command.args(args).env("THRONG_STORE", &self.address);
        command
    }

    /// Runs the command on this store.
    pub(crate) fn run(&self, args: &[&str]) -> Result<Output> {
        Ok(self.command(args).output()?)
    }

    /// Runs the command on this store, while a worker runs in this process.
    pub(crate) async fn run_beside(&self, args: &[&str]) -> Result<Output> {
        let mut command = self.command(args);
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }
}

/// Returns the command, without a store, in a folder.
pub(crate) fn throng(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.current_dir(folder).stdin(Stdio::null());
    for variable in [
        "THRONG_STORE",
        "THRONG_STORE_PASSWORD",
        "NO_COLOR",
        "COLUMNS",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Waits until a process ends, and checks that it has succeeded.
pub(crate) fn succeeds(child: &mut Child) -> Result {
    let end = Instant::now() + MAX_WAIT;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string().into()),
            None if Instant::now() > end => return Err("the process does not end".into()),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            drop(server.stdin.take());
            server.wait().ok();
        }
    }
}
