//! [`Pooler`]: a PgBouncer in transaction mode in front of the server that the tests share.

use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::server::{NOBODY, Server, is_root};
use crate::sync::thread;

/// The paths of the program. Few users have the folder of the first one in their `PATH`.
const PROGRAMS: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];

/// The number of connections that the pooler has to the server for all its clients.
pub(super) const POOL_SIZE: usize = 3;

/// Runs the program until the input ends, also if the test process is killed.
const SUPERVISE: &str = r#""$1" -q "$2" </dev/null >"$2.log" 2>&1 & read -r _; kill -9 $!; wait"#;

/// A pooler that ends with this process.
pub(in crate::durable::store) struct Pooler {
    folder: PathBuf,
    supervisor: Child,
}

/// Returns `true` if PgBouncer is installed. Otherwise, it reports that the calling test is skipped.
pub(super) fn is_pooler_installed() -> bool {
    let is_installed = program().is_some();
    if !is_installed {
        eprintln!("skipped: pgbouncer is not installed");
    }
    is_installed
}

/// Returns `true` if the suite of all stores is to run behind the pooler, as `scripts/test-postgres --long` does.
pub(in crate::durable::store) fn is_suite_pooled() -> bool {
    std::env::var_os("THRONG_POSTGRES_POOLED").is_some()
}

impl Pooler {
    /// The pooler that all tests of this process share.
    pub(in crate::durable::store) fn shared() -> &'static Self {
        static SHARED: LazyLock<Pooler> = LazyLock::new(Pooler::start);
        &SHARED
    }

    fn start() -> Self {
        let program = program().expect("the caller has looked for it");
        let folder = tempfile::tempdir().expect("a folder can be made").keep();
        let file = folder.join("pgbouncer.ini");
        let mut settings = std::fs::File::create(&file).expect("a file can be created");
        let written = write!(settings, "{}", settings_in(&folder));
        written.expect("a file can be written");
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISE, "sh", program]).arg(&file);
        command.stdin(Stdio::piped());
        if is_root() {
            // The program refuses to run as root.
            chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root can give a folder away");
            command.uid(NOBODY).gid(NOBODY);
        }
        let supervisor = command.spawn().expect("a shell can be started");
        let pooler = Self { folder, supervisor };
        pooler.wait();
        pooler
    }

    /// The address, by the socket of the pooler.
    pub(in crate::durable::store) fn url(&self) -> String {
        let folder = self.folder.display();
        format!("host={folder} port=6432 user=throng dbname=postgres")
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.folder.join(".s.PGSQL.6432").exists() {
            let log = || std::fs::read_to_string(self.folder.join("pgbouncer.ini.log"));
            assert!(Instant::now() < end, "{:?}", log());
            thread::park_until(Instant::now() + Duration::from_millis(5));
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        self.supervisor.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn settings_in(folder: &Path) -> String {
    let socket = Server::shared().socket();
    let server = socket.parent().expect("the socket is in a folder");
    format!(
        "[databases]\npostgres = host={} user=throng\n\
         [pgbouncer]\npool_mode = transaction\nauth_type = any\nlisten_port = 6432\n\
         unix_socket_dir = {}\ndefault_pool_size = {POOL_SIZE}\nmax_client_conn = 900\n",
        server.display(),
        folder.display(),
    )
}

fn program() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|it| Path::new(it).exists())
}
