//! A Redis server for tests: a process of ours, with a folder, a port and a socket of its own.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{self, Pid, Signal};

/// Ends the calling test early if `redis-server` is not installed. One test of the library fails in that case, and names the
/// package.
#[allow(
    unused_macros,
    reason = "the tests of the library have a macro of their own"
)]
macro_rules! needs_redis {
    () => {
        if !$crate::redis_server::is_installed() {
            return;
        }
    };
}

/// Returns `true` if `redis-server` is installed. Otherwise, it reports that the calling test is skipped.
#[allow(
    dead_code,
    reason = "the tests of the library have a function of their own"
)]
pub(crate) fn is_installed() -> bool {
    static IS_INSTALLED: LazyLock<bool> = LazyLock::new(|| {
        let mut version = Command::new(binary());
        version.arg("--version").output().is_ok()
    });
    if !*IS_INSTALLED {
        eprintln!("skipped: redis-server is not installed");
    }
    *IS_INSTALLED
}

/// Returns `true` if the tests use another server than that of the machine, and it cannot encrypt connections.
#[allow(dead_code, reason = "only the tests of the library use TLS")]
pub(crate) fn is_another_without_tls() -> bool {
    if std::env::var_os("THRONG_REDIS_SERVER").is_none() {
        return false;
    }
    // It exits in any case.
    let mut server = Command::new(binary());
    let server = server.args(["--port", "0", "--tls-port", "1"]).output();
    let server = server.expect("the server can be started");
    !String::from_utf8_lossy(&server.stdout).contains("No tls-cert-file configured")
}

/// A server that ends with its owner.
pub(crate) struct Server {
    child: Option<GuardedChild>,
    folder: tempfile::TempDir,
    arguments: Vec<String>,
    /// A library that is loaded before the others.
    library: Option<PathBuf>,
    port: u16,
}

impl Server {
    /// The server that the tests share that run at the same time; it ends with the last of them.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|it| it.into_inner());
        let server = shared.upgrade();
        server.unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts a server that writes nothing to the disk.
    pub(crate) fn start() -> Self {
        Self::with(&["--appendonly", "no"])
    }

    /// Starts a server with these settings.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::with_library(arguments, None)
    }

    /// Starts a server with these settings. It loads the library, if there is one, before all others.
    pub(crate) fn with_library(arguments: &[&str], library: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let arguments = arguments.iter().map(|&it| it.to_owned()).collect();
        Self::start_in(folder, arguments, library.map(Path::to_owned))
    }

    /// Starts a replica of a server, which writes nothing to the disk.
    pub(crate) fn replica_of(primary: &Self) -> Self {
        let port = primary.port.to_string();
        Self::with(&["--appendonly", "no", "--replicaof", "127.0.0.1", &port])
    }

    /// Starts a Sentinel that watches a server under the name `main`.
    pub(crate) fn sentinel_of(primary: &Self) -> Self {
        Self::sentinel_with(primary, 1, "", &[])
    }

    /// Starts a Sentinel that watches a server under the name `main`, with this quorum, these lines of settings for the server, and these
    /// settings of its own.
    pub(crate) fn sentinel_with(
        primary: &Self,
        quorum: usize,
        settings: &str,
        own: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let port = primary.port;
        let settings = format!("sentinel monitor main 127.0.0.1 {port} {quorum}\n{settings}");
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, settings).expect("a file can be written");
        let file = file.to_string_lossy().into_owned();
        let own = own.iter().map(|&it| it.to_owned());
        let arguments = [file, String::from("--sentinel")].into_iter().chain(own);
        Self::start_in(folder, arguments.collect(), None)
    }

    fn start_in(
        folder: tempfile::TempDir,
        arguments: Vec<String>,
        library: Option<PathBuf>,
    ) -> Self {
        let mut server = Self {
            child: None,
            folder,
            arguments,
            library,
            port: free_port(),
        };
        server.run_at(|_| free_port());
        server
    }

    /// From its next start on, it has these settings, too.
    pub(crate) fn push_arguments(&mut self, arguments: &[&str]) {
        self.arguments
            .extend(arguments.iter().map(|&it| it.to_owned()));
    }

    /// From its next start on, its disk is as slow as if it had much to do: each time the server waits
    /// for it, that takes so long.
    pub(crate) fn slow_down_disk(&mut self, time: Duration) {
        let source = format!(
            "#include <unistd.h>\n#include <sys/syscall.h>\n\
             int fdatasync(int fd) {{ usleep({}); return syscall(SYS_fdatasync, fd); }}\n",
            time.as_micros()
        );
        self.library = Some(compile(self.folder.path(), &source));
    }

    /// Starts the server again, and waits until it answers.
    pub(crate) fn run(&mut self) {
        self.run_at(|port| port);
    }

    /// Starts the server, and waits until it answers. If another process has taken the port meanwhile, the
    /// server exits, and is started again at the next port.
    fn run_at(&mut self, next: fn(u16) -> u16) {
        self.spawn();
        let end = Instant::now() + Duration::from_secs(20);
        while self.try_ask(&["PING"]).is_none() {
            assert!(Instant::now() < end, "redis-server does not answer");
            thread::sleep(Duration::from_millis(5));
            if self.has_exited() {
                self.port = next(self.port);
                self.spawn();
            }
        }
    }

    fn has_exited(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was started");
        child
            .process
            .try_wait()
            .expect("a child can be waited for")
            .is_some()
    }

    /// Starts the server.
    pub(crate) fn spawn(&mut self) {
        let mut command = Command::new(binary());
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        // A Sentinel has a file of settings, which comes first.
        let (first, others) = match &*self.arguments {
            [file, others @ ..] if !file.starts_with("--") => (Some(file), others),
            others => (None, others),
        };
        let port = self.port.to_string();
        // A server with a certificate accepts encrypted connections only.
        let ports = match others.iter().any(|it| it == "--tls-cert-file") {
            true => vec!["--port", "0", "--tls-port", &port],
            false => vec!["--port", &port],
        };
        let child = command
            .args(first)
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(ports)
            .args(["--loglevel", "warning", "--logfile", "log", "--unixsocket", "socket", "--dir"])
            .arg(self.folder.path())
            .args(others)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("this test needs redis-server: install it, on Debian by `apt-get install redis-server`");
        self.child = Some(GuardedChild::new(child));
    }

    /// As `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child = None;
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// By its socket.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn process(&self) -> Pid {
        Pid::from_child(&self.child.as_ref().expect("it runs").process)
    }

    /// Stops the process, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        process::kill_process(self.process(), signal).expect("a child can be signalled");
    }

    /// Has the system prefer the process to others, if it may.
    pub(crate) fn hurry(&self) {
        process::setpriority_process(Some(self.process()), -19).ok();
    }

    /// Asks the server something, on a connection of its own.
    pub(crate) fn ask(&self, command: &[&str]) -> redis::Value {
        self.answer(command).expect("the server answers")
    }

    pub(crate) fn try_ask(&self, command: &[&str]) -> Option<redis::Value> {
        self.answer(command).ok()
    }

    fn answer(&self, command: &[&str]) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection()?;
        let mut asked = redis::Cmd::new();
        command.iter().for_each(|part| _ = asked.arg(part));
        asked.query(&mut connection)
    }
}

/// A process that ends with its owner, or with the process of the tests: at its end, other threads may still own the server.
struct GuardedChild {
    process: Child,
    /// A shell that kills the process when its own input ends.
    guard: Child,
}

impl GuardedChild {
    fn new(process: Child) -> Self {
        let guard = Command::new("sh")
            .args(["-c", "read -r _; kill -9 $0", &process.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let guard = guard.expect("a shell can be started");
        Self { process, guard }
    }
}

impl Drop for GuardedChild {
    /// Ends the guard first, so that it cannot kill another process with the same number.
    fn drop(&mut self) {
        for child in [&mut self.guard, &mut self.process] {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Compiles a library that a process can load before all others. Returns its path.
pub(crate) fn compile(folder: &Path, source: &str) -> PathBuf {
    let (file, library) = (folder.join("library.c"), folder.join("library.so"));
    std::fs::write(&file, source).expect("a file can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&file);
    let status = compile.status().expect("this test needs a C compiler");
    assert!(status.success(), "the C compiler fails");
    library
}

/// Which server: that of the machine, or another, of an older version or of another make.
fn binary() -> OsString {
    std::env::var_os("THRONG_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// A port, such that the one by which the nodes of a cluster talk is free, too.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let other = port.checked_add(10_000);
        if other.is_some_and(|other| TcpListener::bind(("127.0.0.1", other)).is_ok()) {
            return port;
        }
    }
}
