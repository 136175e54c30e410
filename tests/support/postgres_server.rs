//! A PostgreSQL server for tests: a process of ours, with a folder and a socket of its own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The user and the group as which the server runs if the tests run as root, which PostgreSQL refuses: those of `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// Runs a server until the input ends, also if the test process is killed. Then it removes the folder. Each line of the input is a command,
/// which is answered when it is done.
///
/// The server is a standby of the one whose socket is in the folder `primary`, if there is one. The user `guarded` needs a password. The
/// server listens to a network only if a setting says so.
const SUPERVISE: &str = r#"
bin=$1 folder=$2 data=$3 primary=$4
shift 4
if [ -n "$primary" ]; then
    "$bin/pg_basebackup" -h "$primary" -U throng -D "$data" -R -X stream -c fast
else
    "$bin/initdb" -D "$data" -U throng -A trust -N -E UTF8 --locale=C &&
        sed -i '1i local all guarded scram-sha-256' "$data/pg_hba.conf" &&
        sed -i '1i host all guarded all scram-sha-256' "$data/pg_hba.conf" &&
        echo 'host all all 127.0.0.0/8 trust' >>"$data/pg_hba.conf"
fi >"$folder/initdb.log" 2>&1 || exit 1
start() {
    "$bin/postgres" -D "$data" -k "$folder" -c listen_addresses= -c max_connections=400 \
        -c fsync=off -c full_page_writes=off -c synchronous_commit=on -c autovacuum_naptime=5s \
        -c max_wal_size=512MB -c logging_collector=off -c password_encryption=scram-sha-256 "$@" </dev/null >>"$folder/log" 2>&1 &
    server=$!
}
is_there() {
    [ -e "/proc/$1/exe" ]
}
children() {
    cat /proc/$server/task/$server/children
}
thaw() {
    kill -CONT $(children) $server
} 2>/dev/null
crash() {
    kill -QUIT $server
    thaw
    wait $server
}
kill_all() {
    kill -STOP $server
    victims="$(children) $server"
    kill -KILL $victims
    wait $server
    for victim in $victims; do
        while is_there $victim; do sleep 0.01; done
    done
} 2>/dev/null
start "$@"
while read -r command; do
    case $command in
        crash) crash ;;
        kill) kill_all ;;
        start) start "$@" ;;
        freeze) kill -STOP $server $(children) ;;
        thaw) thaw ;;
        revive) is_there $server || start "$@" ;;
        fill) dd if=/dev/zero of="$folder/disk/ballast" bs=16k 2>/dev/null ;;
        free) rm "$folder/disk/ballast" ;;
    esac
    echo done
done
is_there $server && crash
rm -rf "$folder" 2>/dev/null
"#;

/// Runs [`SUPERVISE`] as `nobody`, with a small disk in the folder, which no other process sees.
const SUPERVISE_ON_DISK: &str = r#"
size=$1 supervise=$2
shift 2
mkdir "$2/disk" && mount -t tmpfs -o "size=$size,uid=65534,gid=65534,mode=0700" none "$2/disk" || exit 1
setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$supervise" sh "$@"
umount "$2/disk"
rm -rf "$2"
"#;

/// A server that ends with this process.
pub(crate) struct Server {
    folder: PathBuf,
    supervisor: Mutex<Supervisor>,
}

/// The process that ends the server when its input ends.
struct Supervisor {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    /// Has the process do something, and waits until it is done.
    fn command(&mut self, command: &str) {
        let commands = self.commands.as_mut().expect("the server was not ended");
        writeln!(commands, "{command}").expect("the supervisor reads");
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        read.expect("the supervisor answers");
    }
}

/// Returns `true` if PostgreSQL is installed. Otherwise, it reports that the calling test is skipped.
pub(crate) fn is_installed() -> bool {
    let is_installed = programs().is_some();
    if !is_installed {
        eprintln!("skipped: postgresql is not installed");
    }
    is_installed
}

/// A disk of a server, which the test can fill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Disk {
    /// The size, as `mount` reads it.
    pub(crate) size: &'static str,
    /// `true` if all files of the server are on the disk, and not only those in its folder [`space`](Server::space).
    pub(crate) has_all: bool,
}

/// The way in which a server is started.
#[derive(Clone, Copy, Default)]
struct Start<'a> {
    settings: &'a [&'a str],
    primary: Option<&'a Server>,
    disk: Option<Disk>,
}

impl Start<'_> {
    /// Returns the command that supervises a server in this folder.
    fn command(&self, folder: &Path) -> Command {
        let mut command = match self.disk {
            None => {
                let mut shell = Command::new("sh");
                if is_root() {
                    shell.uid(NOBODY).gid(NOBODY);
                }
                shell.args(["-c", SUPERVISE, "sh"]);
                shell
            }
            Some(disk) => {
                let mut own = Command::new("unshare");
                own.args(["-m", "sh", "-c", SUPERVISE_ON_DISK, "sh"]);
                own.args([disk.size, SUPERVISE]);
                own
            }
        };
        let programs = programs()
            .expect("this test needs postgresql: on Debian, `apt-get install postgresql`");
        let is_on_disk = self.disk.is_some_and(|disk| disk.has_all);
        let data = folder.join(if is_on_disk { "disk/data" } else { "data" });
        let primary = self
            .primary
            .map_or_else(|| Path::new(""), |server| &server.folder);
        command
            .args([programs.as_path(), folder, &data, primary])
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(folder);
        command
    }
}

impl Server {
    /// The server that all tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Server> = LazyLock::new(Server::start);
        &SHARED
    }

    /// Starts a server that does not wait for the disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with these further settings: `name=value`.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        Self::run(&Start {
            settings,
            ..Start::default()
        })
    }

    /// Starts a standby, which receives what this server writes.
    pub(crate) fn start_standby(&self, settings: &[&str]) -> Self {
        Self::run(&Start {
            settings,
            primary: Some(self),
            disk: None,
        })
    }

    /// Starts a server with a small disk. The caller is [`root`](is_root).
    pub(crate) fn start_on(disk: Disk, settings: &[&str]) -> Self {
        Self::run(&Start {
            settings,
            primary: None,
            disk: Some(disk),
        })
    }

    fn run(start: &Start<'_>) -> Self {
        let folder = new_folder();
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root can give a folder away");
        }
        let mut command = start.command(&folder);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a shell can be started");
        let server = Self {
            folder,
            supervisor: Mutex::new(Supervisor {
                commands: process.stdin.take(),
                answers: BufReader::new(process.stdout.take().expect("it is a pipe")),
                process,
            }),
        };
        server.wait();
        server
    }

    /// The address, by the socket of the server.
    pub(crate) fn url(&self) -> String {
        self.url_of("throng")
    }

    /// The same, for a user.
    pub(crate) fn url_of(&self, user: &str) -> String {
        format!("host={} user={user} dbname=postgres", self.folder.display())
    }

    /// The folder of the socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same as a URL.
    pub(crate) fn address(&self) -> String {
        self.address_of("throng")
    }

    /// The same as a URL, for a user, which may be followed by a colon and the password.
    pub(crate) fn address_of(&self, user: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{user}@{folder}/postgres")
    }

    /// The path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }

    /// The folder for a tablespace on the disk of the server, as the server sees it.
    pub(crate) fn space(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Ends the server without a checkpoint, as `pg_ctl stop -m immediate` does.
    pub(crate) fn crash(&self) {
        self.supervisor().command("crash");
    }

    /// Kills all processes of the server.
    pub(crate) fn kill(&self) {
        self.supervisor().command("kill");
    }

    /// Stops all processes of the server.
    pub(crate) fn freeze(&self) {
        self.supervisor().command("freeze");
    }

    /// Has them go on.
    pub(crate) fn thaw(&self) {
        self.supervisor().command("thaw");
    }

    /// Fills the disk of the server.
    pub(crate) fn fill_disk(&self) {
        self.supervisor().command("fill");
    }

    /// Empties the disk again, except for the files of the server.
    pub(crate) fn free_disk(&self) {
        self.supervisor().command("free");
    }

    /// Starts the server if it has ended by itself, and waits until it answers.
    pub(crate) fn revive(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.is_ready() {
            assert!(Instant::now() < end, "{}", self.log());
            self.supervisor().command("revive");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the server again.
    pub(crate) fn restart(&self) {
        self.supervisor().command("start");
        self.wait();
    }

    /// Makes a server that was ended a standby, whose primary does not exist.
    pub(crate) fn make_standby(&self) {
        let signal = self.folder.join("data/standby.signal");
        std::fs::write(signal, "").expect("the folder can be written");
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor.lock().unwrap_or_else(|it| it.into_inner())
    }

    /// Waits until the server answers.
    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.is_ready() {
            assert!(Instant::now() < end, "{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_ready(&self) -> bool {
        let programs = programs().expect("the server has been started");
        let mut ask = Command::new(programs.join("pg_isready"));
        let asked = ask.arg("-q").arg("-h").arg(&self.folder).status();
        asked.is_ok_and(|status| status.success())
    }

    fn log(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        format!(
            "PostgreSQL does not answer: {}{}",
            read("initdb.log"),
            read("log")
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut supervisor = self.supervisor();
        supervisor.commands = None;
        supervisor.process.wait().ok();
    }
}

/// Returns `true` if the tests run as root, which can mount disks.
pub(crate) fn is_root() -> bool {
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
