//! [`TestStore`]: a store of a test's own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use throng::durable::{DurableClient, PostgresStore, RedisStore, SqliteStore};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::Result;
use super::postgres_server::Server;

/// A store that is removed at the end.
pub(crate) struct TestStore {
    /// The store that `--store` names.
    pub(crate) address: String,
    pub(crate) name: &'static str,
    pub(crate) folder: TempDir,
    server: TestServerProcess,
}

/// The process that a store needs.
enum TestServerProcess {
    None,
    Redis(Child),
    Postgres(Server),
}

/// The server ends when the input of the shell does, even if the test is killed.
const SCRIPT: &str = r#"redis-server "$@" >log </dev/null & read -r _; kill $!; wait"#;

/// The settings of a server about which `throng doctor` has nothing to say.
const SETTINGS: [&str; 8] = [
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
            server: TestServerProcess::None,
        })
    }

    /// Starts a server that listens on a socket.
    pub(crate) async fn redis() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = format!("redis+unix://{}", folder.path().join("socket").display());
        Self::start(folder, address, &["--port", "0", "--unixsocket", "socket"]).await
    }

    /// Starts a server that listens on a port, and whose user has a password.
    pub(crate) async fn redis_with_password(password: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("redis://:{password}@127.0.0.1:{port}/");
        let port = port.to_string();
        let settings = ["--port", &port, "--requirepass", password];
        Self::start(tempfile::tempdir()?, address, &settings).await
    }

    /// Starts a server that is the only node of a cluster.
    pub(crate) async fn redis_cluster() -> Result<Self> {
        let ports = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let [port, bus] =
            [&ports[0], &ports[1]].map(|it| it.local_addr().map(|it| it.port().to_string()));
        let (port, bus) = (port?, bus?);
        drop(ports);
        let address = format!("redis://127.0.0.1:{port}/");
        let settings = [
            "--cluster-enabled",
            "yes",
            "--port",
            &port,
            "--cluster-port",
            &bus,
        ];
        let store = Self::launch(tempfile::tempdir()?, address, &settings)?;
        let client = redis::Client::open(store.address.as_str())?;
        let mut server = client.get_connection()?;
        let slots = ["ADDSLOTSRANGE", "0", "16383"];
        redis::cmd("CLUSTER").arg(&slots).exec(&mut server)?;
        eventually("cluster", || {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut server)?;
            Ok(info.contains("cluster_state:ok").then_some(()))
        })?;
        store.open().await?.close().await?;
        Ok(store)
    }

    /// Starts a PostgreSQL server about which `throng doctor` has nothing to say, and creates the store.
    pub(crate) async fn postgres() -> Result<Self> {
        let server = Server::start_with(&["fsync=on", "full_page_writes=on"]);
        let store = Self {
            address: server.address(),
            name: "postgres",
            folder: tempfile::tempdir()?,
            server: TestServerProcess::Postgres(server),
        };
        store.open().await?.close().await?;
        Ok(store)
    }

    /// Runs statements in PostgreSQL as the owner of the database. Returns the first column of the rows.
    pub(crate) fn ask(&self, sql: &str) -> Result<Vec<String>> {
        // The caller may be in a runtime, which cannot wait for another one.
        let asked = thread::scope(|scope| scope.spawn(|| ask(&self.address, sql)).join());
        let answer = asked.map_err(|_| "the connection has panicked")??;
        let texts = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
            _ => None,
        });
        Ok(texts.collect())
    }

    /// Returns the same address for another user: `NAME` or `NAME:PASSWORD`.
    pub(crate) fn address_of(&self, user: &str) -> String {
        match &self.server {
            TestServerProcess::Postgres(server) => server.address_of(user),
            _ => panic!("only PostgreSQL has such users"),
        }
    }

    /// Starts a server, and creates the store.
    async fn start(folder: TempDir, address: String, settings: &[&str]) -> Result<Self> {
        let store = Self::launch(folder, address, settings)?;
        store.open().await?.close().await?;
        Ok(store)
    }

    /// Starts a server without a store.
    fn launch(folder: TempDir, address: String, settings: &[&str]) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", SCRIPT, "sh"])
            .args(SETTINGS)
            .args(settings);
        let server = shell.current_dir(&folder).stdin(Stdio::piped()).spawn()?;
        let store = Self {
            address,
            name: "redis",
            folder,
            server: TestServerProcess::Redis(server),
        };
        let client = redis::Client::open(store.address.as_str())?;
        eventually("server", || Ok(client.get_connection().ok()))?;
        Ok(store)
    }

    pub(crate) async fn open(&self) -> Result<DurableClient> {
        let address = &self.address;
        Ok(match &self.server {
            TestServerProcess::None => DurableClient::open(SqliteStore::open(self.file()).await?),
            TestServerProcess::Redis(_) => DurableClient::open(RedisStore::open(address).await?),
            TestServerProcess::Postgres(_) => {
                DurableClient::open(PostgresStore::open(address).await?)
            }
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

#[tokio::main(flavor = "current_thread")]
async fn ask(
    address: &str,
    sql: &str,
) -> std::result::Result<Vec<SimpleQueryMessage>, tokio_postgres::Error> {
    let (client, driver) = tokio_postgres::connect(address, NoTls).await?;
    tokio::spawn(driver);
    client.simple_query(sql).await
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

/// Waits until a process ends.
pub(crate) fn end_of(child: &mut Child) -> Result<ExitStatus> {
    eventually("end of the process", || Ok(child.try_wait()?))
}

/// Repeats a request until it returns a value. Fails if that takes too long.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + MAX_WAIT;
    loop {
        match ask()? {
            Some(found) => return Ok(found),
            None if Instant::now() > end => return Err(format!("there is no {what}").into()),
            None => thread::sleep(Duration::from_millis(2)),
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if let TestServerProcess::Redis(server) = &mut self.server {
            drop(server.stdin.take());
            server.wait().ok();
        }
    }
}
