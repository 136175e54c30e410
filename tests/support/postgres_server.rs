//! A PostgreSQL server for tests: a process of ours, with a folder and a socket of its own.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The user and the group as which the server runs if the tests run as root, which PostgreSQL refuses: those of `nobody`.
const NOBODY: u32 = 65_534;

/// Runs a server until the input ends, also if the test process is killed. Then it removes the folder.
const SUPERVISE: &str = r#"
"$1/initdb" -D "$2/data" -U throng -A trust -N -E UTF8 --locale=C >"$2/initdb.log" 2>&1 || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c max_connections=400 \
    -c fsync=off -c full_page_writes=off -c synchronous_commit=on -c autovacuum_naptime=5s \
    -c max_wal_size=512MB -c logging_collector=off </dev/null >"$2/log" 2>&1 &
server=$!
echo started
read -r _
kill -QUIT $server
wait $server
rm -rf "$2"
"#;

/// A server that ends with this process.
pub(crate) struct Server {
    folder: PathBuf,
    /// The process that ends the server when its input ends.
    _supervisor: Mutex<Child>,
}

/// Returns `true` if PostgreSQL is installed. Otherwise, it reports that the calling test is skipped.
pub(crate) fn is_installed() -> bool {
    let is_installed = programs().is_some();
    if !is_installed {
        eprintln!("skipped: postgresql is not installed");
    }
    is_installed
}

impl Server {
    /// The server that all tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Server> = LazyLock::new(Server::start);
        &SHARED
    }

    /// Starts a server that does not wait for the disk.
    pub(crate) fn start() -> Self {
        let programs = programs()
            .expect("this test needs postgresql: on Debian, `apt-get install postgresql`");
        let folder = new_folder();
        let mut command = Command::new("sh");
        command
            .args(["-c", SUPERVISE, "sh"])
            .args([&programs, &folder])
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root can give a folder away");
            command.uid(NOBODY).gid(NOBODY);
        }
        let supervisor = command.spawn().expect("a shell can be started");
        let server = Self {
            folder,
            _supervisor: Mutex::new(supervisor),
        };
        server.wait();
        server
    }

    /// The address, by the socket of the server.
    pub(crate) fn url(&self) -> String {
        format!("host={} user=throng dbname=postgres", self.folder.display())
    }

    /// Waits until the server answers.
    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        // It refuses those who connect earlier.
        while !self.log("log").contains("ready to accept connections") {
            let logs = ["initdb.log", "log"].map(|name| self.log(name));
            assert!(Instant::now() < end, "PostgreSQL does not answer: {logs:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Ends the server.
    pub(crate) fn stop(&self) {
        let mut supervisor = self._supervisor.lock().unwrap_or_else(|it| it.into_inner());
        if let Some(mut input) = supervisor.stdin.take() {
            input.write_all(b"\n").ok();
        }
        supervisor.wait().ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

/// Creates a folder, in memory if the system allows it.
fn new_folder() -> PathBuf {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    let folder = in_memory.or_else(|_| tempfile::tempdir());
    folder.expect("a folder can be made").keep()
}

/// Returns the folder of the programs of PostgreSQL: that which `THRONG_POSTGRES_BIN` names, or the newest one.
fn programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("THRONG_POSTGRES_BIN") {
        return Some(named.into());
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let versions = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let installed = versions.filter(|bin| bin.join("initdb").exists());
    installed.max_by_key(|bin| version_of(bin))
}

fn version_of(bin: &Path) -> u32 {
    let version = bin.parent().and_then(Path::file_name);
    let version = version.and_then(|name| name.to_str()?.parse().ok());
    version.unwrap_or_default()
}
