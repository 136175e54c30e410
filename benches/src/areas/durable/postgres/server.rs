//! A PostgreSQL server for one child, and its CPU time.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::areas::durable::servers::{end_with_parent, free_port};
use crate::areas::durable::{new_dir, read};
use crate::measure::{Rules, Sample, Section};

/// The user and the group of a server whose child runs as root, which PostgreSQL refuses: those of `nobody`.
const NOBODY: u32 = 65_534;

/// The length of a tick in `/proc`, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

const MISSING: &str =
    "there is no PostgreSQL server: install it, on Debian by `apt-get install postgresql`";

/// A server with a port and a directory of its own, which ends with its owner.
pub(super) struct Server {
    process: Child,
    port: u16,
    _dir: TempDir,
}

/// Runs `work` with a new server; nothing is measured where there is no such program.
pub(super) fn with_server(rules: &Rules, work: impl FnOnce(&Server) -> Sample) -> Sample {
    match programs() {
        Some(programs) => work(&Server::start(rules, &programs)),
        None => Sample::skipped(MISSING),
    }
}

impl Server {
    /// Starts a server with the settings that it has by default, except for its memory.
    fn start(rules: &Rules, programs: &Path) -> Self {
        let dir = new_dir(rules);
        let port = free_port().expect("a port is free");
        if is_root() {
            let root = dir.path().parent().expect("it is in a directory");
            let opened = fs::set_permissions(root, Permissions::from_mode(0o755));
            opened.expect("root can open a directory");
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root can give a directory away");
        }
        let data = dir.path().join("data");
        let mut initdb = command(programs, "initdb");
        initdb
            .args([
                "-U",
                "throng",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
                "-D",
            ])
            .arg(&data)
            .current_dir(dir.path());
        let done = initdb.output().expect("initdb can be started");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "initdb failed: {said}");
        let mut postgres = command(programs, "postgres");
        postgres
            .arg("-D")
            .arg(&data)
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ])
            .args(["-c", &format!("port={port}"), "-c", "synchronous_commit=on"])
            .args(["-c", "shared_buffers=256MB", "-c", "log_min_messages=fatal"])
            .current_dir(dir.path());
        // With this signal, the server ends its processes, also those that are busy.
        // SAFETY: between fork and exec, this makes one call of the system, which touches no memory.
        unsafe { postgres.pre_exec(|| end_with_parent(libc::SIGQUIT)) };
        let mut server = Self {
            process: postgres.spawn().expect("postgres can be started"),
            port,
            _dir: dir,
        };
        server.wait(programs);
        server
    }

    /// Waits until it answers.
    fn wait(&mut self, programs: &Path) {
        let begin = Instant::now();
        let port = self.port.to_string();
        loop {
            let ended = self.process.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "postgres has ended");
            let mut ask = command(programs, "pg_isready");
            let asked = ask.args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            if asked.is_ok_and(|status| status.success()) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "no answer");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://throng@127.0.0.1:{}/postgres", self.port)
    }

    /// Connects without the library.
    pub(super) async fn connect(&self) -> Client {
        let connected = tokio_postgres::connect(&self.url(), NoTls).await;
        let (client, connection) = connected.expect("the server answers");
        tokio::spawn(connection);
        client
    }

    /// Begins to measure, when everything is ready.
    pub(super) fn meter(&self) -> Meter<'_> {
        Meter {
            server: self,
            cpu_ns: self.cpu_ns(),
            section: Section::begin(),
        }
    }

    /// CPU time of all processes of the server so far.
    fn cpu_ns(&self) -> u64 {
        let own = self.process.id();
        let processes = fs::read_dir("/proc").expect("there are processes");
        let ticks = processes.flatten().filter_map(|process| {
            let stat = read(process.path().join("stat"));
            // The name, in parentheses, may contain anything.
            let (first, rest) = stat.rsplit_once(") ")?;
            let id: u32 = first.split(' ').next()?.parse().ok()?;
            let fields: Vec<u64> = rest.split(' ').map(|it| it.parse().unwrap_or(0)).collect();
            let (parent, times) = (*fields.get(1)?, fields.get(11..15)?);
            match id == own {
                // Processes that have ended are in the last two.
                true => Some(times.iter().sum::<u64>()),
                false if parent == u64::from(own) => Some(times[0] + times[1]),
                false => None,
            }
        });
        ticks.sum::<u64>() * TICK_NS
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the call takes two numbers. The process has not been waited for, so the number is its own.
        unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGQUIT) };
        let _ = self.process.wait();
    }
}

/// As [`Section`], with a server whose work is no noise.
pub(super) struct Meter<'a> {
    server: &'a Server,
    cpu_ns: u64,
    section: Section,
}

impl Meter<'_> {
    pub(super) fn end(self, tasks: u64) -> Sample {
        let elapsed_ns = self.section.elapsed().as_nanos() as f64;
        let mut sample = self.section.end().per_task(tasks);
        let server_ns = self.server.cpu_ns().saturating_sub(self.cpu_ns) as f64;
        sample.foreign_cores = (sample.foreign_cores - server_ns / elapsed_ns).max(0.0);
        sample.with_fact("server cpu ns/task", server_ns / tasks as f64)
    }
}

/// Returns the command of a program of the server, as a user that may run it.
fn command(programs: &Path, name: &str) -> Command {
    let mut command = Command::new(programs.join(name));
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

/// Returns the folder of the programs of PostgreSQL: that which `THRONG_POSTGRES_BIN` names, or the newest one.
fn programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("THRONG_POSTGRES_BIN") {
        return Some(named.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let versions = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let installed = versions.filter(|bin| bin.join("initdb").exists());
    installed.max_by_key(|bin| {
        let version = bin.parent().and_then(Path::file_name);
        version.and_then(|name| name.to_str()?.parse::<u32>().ok())
    })
}
