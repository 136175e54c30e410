//! A Redis server for one child, and what is to be known of it: CPU time, memory, commands.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::areas::durable::servers::{end_with_parent, free_port};
use crate::areas::durable::{new_dir, read};
use crate::measure::{Rules, Sample, Section};

/// When the server's log is on the disk.
#[derive(Clone, Copy)]
pub(super) enum Fsync {
    EverySecond,
    /// Before anything is answered.
    Always,
}

/// A server with a port and a directory of its own, which ends with its owner.
pub(super) struct Server {
    child: Child,
    port: u16,
    _dir: TempDir,
}

/// Runs `work` with a new server; nothing is measured where there is no such program.
pub(super) fn with_server(
    rules: &Rules,
    fsync: Fsync,
    work: impl FnOnce(&Server) -> Sample,
) -> Sample {
    match Server::start(rules, fsync, &[]) {
        Ok(server) => work(&server),
        Err(error) => no_server(&error),
    }
}

/// Runs `work` with so many new servers that have these settings.
pub(super) fn with_servers(
    rules: &Rules,
    count: usize,
    settings: &[&str],
    work: impl FnOnce(&[Server]) -> Sample,
) -> Sample {
    let start = |_| Server::start(rules, Fsync::EverySecond, settings);
    match (0..count).map(start).collect::<io::Result<Vec<_>>>() {
        Ok(servers) => work(&servers),
        Err(error) => no_server(&error),
    }
}

fn no_server(error: &io::Error) -> Sample {
    match error.kind() {
        io::ErrorKind::NotFound => Sample::skipped(MISSING),
        _ => panic!("redis-server cannot be started: {error}"),
    }
}

const MISSING: &str =
    "there is no redis-server: install it, on Debian by `apt-get install redis-server`";

impl Server {
    /// A port that is free may be taken before the server has it.
    fn start(rules: &Rules, fsync: Fsync, settings: &[&str]) -> io::Result<Self> {
        for _ in 0..5 {
            let mut server = Self::start_at(free_port()?, rules, fsync, settings)?;
            if server.comes_up() {
                return Ok(server);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn start_at(port: u16, rules: &Rules, fsync: Fsync, settings: &[&str]) -> io::Result<Self> {
        let dir = new_dir(rules);
        let fsync = match fsync {
            Fsync::EverySecond => "everysec",
            Fsync::Always => "always",
        };
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "yes", "--appendfsync", fsync])
            // A log that is written anew would disturb some rows and others not.
            .args(["--auto-aof-rewrite-percentage", "0"])
            .args(settings)
            .args(["--loglevel", "warning", "--logfile", "log", "--dir"])
            .arg(dir.path())
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: between fork and exec, this makes one call of the system, which touches no memory.
        unsafe { command.pre_exec(|| end_with_parent(libc::SIGKILL)) };
        Ok(Self {
            child: command.spawn()?,
            port,
            _dir: dir,
        })
    }

    /// Waits until it answers; not, if it has ended.
    fn comes_up(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if self.ask("PING").is_ok_and(|answer| answer == "+PONG") {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("redis-server does not answer");
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The first line of the answer to a command.
    pub(super) fn ask(&self, command: &str) -> io::Result<String> {
        self.lines(command)?
            .next()
            .unwrap_or_else(|| Ok(String::new()))
    }

    /// The lines that come after a command, on a connection of its own.
    fn lines(&self, command: &str) -> io::Result<impl Iterator<Item = io::Result<String>> + use<>> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port))?;
        connection.write_all(format!("{command}\r\n").as_bytes())?;
        Ok(BufReader::new(connection).lines())
    }

    /// The bytes that the server has in use, when they no longer change.
    pub(super) fn memory(&self) -> u64 {
        let mut last = 0;
        for _ in 0..100 {
            let now = self.used_memory();
            // Each of these questions needs some.
            if now.abs_diff(last) < 1_000 {
                return now;
            }
            last = now;
            thread::sleep(Duration::from_millis(100));
        }
        last
    }

    fn used_memory(&self) -> u64 {
        self.info("INFO memory", "used_memory:")
    }

    /// The connections of all clients, without that of this question.
    pub(super) fn connections(&self) -> u64 {
        self.info("INFO clients", "connected_clients:") - 1
    }

    /// Returns `true` if it belongs to a cluster that works, and knows the nodes of so many slots.
    pub(super) fn knows_slots(&self, slots: u64) -> bool {
        let lines = self.lines("CLUSTER INFO").expect("it answers");
        // The connection stays open behind the answer, which begins with its length.
        let lines: Vec<_> = lines.map_while(Result::ok).take(3).collect();
        let assigned = format!("cluster_slots_assigned:{slots}");
        let has = |wanted: &str| lines.iter().any(|line| line.trim_end() == wanted);
        has("cluster_state:ok") && has(&assigned)
    }

    /// The scripts that have run so far.
    pub(super) fn scripts(&self) -> u64 {
        self.info("INFO commandstats", "cmdstat_evalsha:calls=")
    }

    /// A number that the server reports.
    fn info(&self, section: &str, name: &str) -> u64 {
        let lines = self.lines(section).expect("it answers");
        let mut values = lines.map_while(Result::ok).filter_map(|line| {
            let value = line.strip_prefix(name)?;
            value.split(',').next()?.parse().ok()
        });
        values.next().expect("the server reports it")
    }

    /// CPU time of all its threads so far.
    pub(super) fn cpu_ns(&self) -> u64 {
        cpu_ns(self.child.id())
    }

    /// Begins to measure.
    pub(super) fn meter(&self) -> Meter<'_> {
        Meter {
            server: self,
            cpu_ns: self.cpu_ns(),
            section: Section::begin(),
        }
    }

    /// Rounds of `tasks`, the first of them to warm up, until the target is reached.
    pub(super) fn rounds(&self, rules: &Rules, tasks: u64, mut round: impl FnMut(u64)) -> Sample {
        round((tasks / 10).max(1));
        let (meter, mut done) = (self.meter(), 0);
        loop {
            round(tasks);
            done += tasks;
            if meter.section.elapsed() >= rules.target {
                return meter.end(done);
            }
        }
    }

    /// Adds what a process costs while nothing is to do: its CPU time, which `cpu_ns` reads, and its commands.
    pub(super) fn with_idle(
        &self,
        sample: Sample,
        rules: &Rules,
        cpu_ns: impl Fn() -> u64,
    ) -> Sample {
        // It comes to rest first.
        thread::sleep(Duration::from_millis(if rules.quick { 500 } else { 1_500 }));
        let monitor = self.monitor();
        let (begin, before) = (Instant::now(), cpu_ns());
        thread::sleep(Duration::from_secs(if rules.quick { 1 } else { 5 }));
        let (seconds, spent) = (begin.elapsed().as_secs_f64(), cpu_ns() - before);
        let (sent, inside) = monitor.end();
        sample
            .with_fact("idle cpu ms/s", spent as f64 / 1e6 / seconds)
            .with_fact("idle commands/s", sent as f64 / seconds)
            .with_fact("idle commands/s, in scripts", inside as f64 / seconds)
    }

    /// Begins to count commands.
    fn monitor(&self) -> Monitor<'_> {
        let mut lines = self.lines("MONITOR").expect("it answers");
        let first = lines.next().expect("it answers").expect("it can be read");
        assert_eq!(first, "+OK");
        let counter = thread::spawn(move || {
            let (mut sent, mut inside) = (0, 0);
            for line in lines.map_while(Result::ok) {
                match line {
                    line if line.contains(Monitor::END) => break,
                    line if line.contains(" lua] ") => inside += 1,
                    _ => sent += 1,
                }
            }
            (sent, inside)
        });
        Monitor {
            server: self,
            counter,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts commands: those that were sent, and those inside scripts.
struct Monitor<'a> {
    server: &'a Server,
    counter: thread::JoinHandle<(u64, u64)>,
}

impl Monitor<'_> {
    /// The marker that ends the list of monitored commands.
    const END: &'static str = "bench-end-of-monitor";

    fn end(self) -> (u64, u64) {
        let last = format!("ECHO {}", Self::END);
        self.server.ask(&last).expect("it answers");
        self.counter.join().expect("it counts")
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
        self.end_with(tasks, 0)
    }

    /// The same, when other processes have worked for us, for so long.
    pub(super) fn end_with(self, tasks: u64, others_ns: u64) -> Sample {
        let elapsed_ns = self.section.elapsed().as_nanos() as f64;
        let mut sample = self.section.end().per_task(tasks);
        let server_ns = self.server.cpu_ns() - self.cpu_ns;
        let known = (server_ns + others_ns) as f64 / elapsed_ns;
        sample.foreign_cores = (sample.foreign_cores - known).max(0.0);
        sample.with_fact("redis cpu ns/task", server_ns as f64 / tasks as f64)
    }
}

/// Averages the costs of several rounds.
pub(super) fn mean(rounds: Vec<Sample>) -> Sample {
    let share = 1.0 / rounds.len() as f64;
    let mut sum = Sample::default();
    let add = |sum: Option<f64>, more: Option<f64>| Some(sum.unwrap_or(0.0) + more? * share);
    for round in rounds {
        sum.value += round.value * share;
        sum.cpu_ns_per_task = add(sum.cpu_ns_per_task, round.cpu_ns_per_task);
        sum.ctx_switches_per_task = add(sum.ctx_switches_per_task, round.ctx_switches_per_task);
        sum.foreign_cores += round.foreign_cores * share;
        sum.threads_peak = sum.threads_peak.max(round.threads_peak);
        sum.rss_peak_kb = sum.rss_peak_kb.max(round.rss_peak_kb);
        for (name, value) in round.facts {
            *sum.facts.entry(name).or_default() += value * share;
        }
    }
    sum
}

/// CPU time of all threads of a process so far.
pub(super) fn cpu_ns(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let spent = threads.flatten().filter_map(|thread| {
        let text = read(Path::join(&thread.path(), "schedstat"));
        text.split(' ').next()?.parse::<u64>().ok()
    });
    spent.sum()
}
