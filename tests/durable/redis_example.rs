//! The example `durable_redis`, as a person runs it: what it says, how it ends, and what it leaves.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::redis_server::Server;
use crate::support::receive;

/// The killed worker ran four tasks at a time.
#[test]
fn one_worker_is_killed_and_everything_is_done() {
    needs_redis!();
    let folder = Folder::new();
    let told = told(folder.program(&["--tasks", "120"]));
    assert_whole(&told, 120);
    assert!(told.contains("A redis-server runs."), "{told}");
    assert!(told.contains(": Synced."), "{told}");
    assert!(told.contains("Worker A is killed"), "{told}");
    assert!(told.contains("Worker B begins picture"), "{told}");
    assert!((1.0..=4.0).contains(&row(&told, "run twice")), "{told}");
    // The lease, and what this machine takes to start the run and to tell of it.
    let waited = row(&told, "waited");
    assert!((1.0..=4.5).contains(&waited), "{told}");
    folder.assert_empty();
}

/// Then a third one comes, and the server is one that was there before.
#[test]
fn both_workers_are_killed_by_somebody_else_and_everything_is_done() {
    needs_redis!();
    let (folder, server) = (Folder::new(), Server::start());
    let mut program = folder.program(&["--tasks", "60", "--url", &server.url()]);
    let mut child = program.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut told = String::new();
    for name in ["A", "B"] {
        let line = line_with(&mut stdout, &format!("Worker {name} is process "));
        kill(last_word(&line));
    }
    stdout.read_to_string(&mut told).expect("text");
    assert!(child.wait().expect("it ends").success(), "{told}");
    assert_whole(&told, 60);
    assert!(told.contains("None is left. Worker C begins"), "{told}");
    assert!(!told.contains("is killed: "), "{told}");
}

#[test]
fn nothing_runs_on_when_it_is_killed_itself() {
    needs_redis!();
    let folder = Folder::new();
    let mut program = folder.program(&[]);
    let program = program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let line = line_with(&mut stdout, "redis-cli -s ");
    let socket = last_word(&line);
    line_with(&mut stdout, "Worker B is process ");
    assert!(UnixStream::connect(socket).is_ok());
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    // All that it has started has that pipe, too: it ends with the last of them.
    let mut stderr = child.stderr.take().expect("a pipe");
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(stderr.read_to_end(&mut Vec::new())));
    receive(&ended).expect("bytes");
    assert!(UnixStream::connect(socket).is_err());
}

#[test]
fn without_a_server_it_says_what_to_install() {
    let folder = Folder::new();
    let output = folder.program(&[]).env("PATH", "").output();
    let output = output.expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("apt-get install redis-server"), "{errors}");
    folder.assert_empty();
}

// ===== Runs =====

/// Where a run has its own temporary folder.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// The program that cargo has built beside this test.
    fn program(&self, args: &[&str]) -> Command {
        let test = env::current_exe().expect("the path of this test");
        let profile = test.ancestors().nth(2).expect("a profile's directory");
        let program = profile.join("examples").join("durable_redis");
        assert!(
            program.is_file(),
            "{} is not built: run `cargo test`, or `cargo build --examples`",
            program.display()
        );
        let mut command = Command::new(program);
        command.args(args).env("TMPDIR", self.0.path());
        command
    }

    /// It has removed what it has made.
    fn assert_empty(&self) {
        let entries = self.0.path().read_dir().expect("a folder");
        assert_eq!(entries.count(), 0);
    }
}

/// Runs the program, which must succeed, and returns its output.
fn told(mut program: Command) -> String {
    let output = program.stderr(Stdio::inherit()).output();
    let output = output.expect("it starts");
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{told}");
    told
}

/// Reads to the next line that holds this.
fn line_with(stdout: &mut BufReader<ChildStdout>, what: &str) -> String {
    let mut lines = stdout.lines().map(|line| line.expect("text"));
    let line = lines.find(|line| line.contains(what));
    line.unwrap_or_else(|| panic!("it does not say `{what}`"))
}

/// Without the full stop behind it.
fn last_word(line: &str) -> &str {
    let word = line.rsplit(' ').next().unwrap_or_default();
    word.trim_end_matches('.')
}

#[track_caller]
fn assert_whole(told: &str, tasks: u32) {
    for name in ["stored", "done"] {
        assert_eq!(row(told, name), f64::from(tasks), "{told}");
    }
}

/// The number in a row of the table.
#[track_caller]
fn row(told: &str, name: &str) -> f64 {
    let mut lines = told.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no `{name}` in {told}"))
}

/// Kills the process with this id.
fn kill(pid: &str) {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    let pid = pid.expect("the id of a process");
    kill_process(pid, Signal::KILL).expect("it can be killed");
}
