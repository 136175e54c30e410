//! [`Process`]: a child, as its test sees it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::child::{ENTRY, PLAN, Plan, SAYS};
use super::support::{TEST_TIMEOUT, wait_until};

/// A child, which is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    said: Arc<Mutex<Vec<String>>>,
    listener: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a process that follows a plan.
    pub(crate) fn start(plan: &Plan) -> Self {
        Self::spawn(plan, &mut command())
    }

    /// Starts a process that loads the library, if there is one, before all others.
    pub(crate) fn start_with(plan: &Plan, library: Option<&Path>) -> Self {
        let library = library.map(|library| ("LD_PRELOAD", library));
        Self::spawn(plan, command().envs(library))
    }

    /// The same; it kills itself when it passes a point so many times: `"point:times"`.
    pub(crate) fn start_deadly(plan: &Plan, point: &str) -> Self {
        Self::spawn(plan, command().env("THRONG_KILL_AT", point))
    }

    /// The same; it stops itself there, until it is told to go on.
    pub(crate) fn start_freezing(plan: &Plan, point: &str) -> Self {
        Self::spawn(plan, command().env("THRONG_STOP_AT", point))
    }

    fn spawn(plan: &Plan, command: &mut Command) -> Self {
        let plan = serde_json::to_string(plan).expect("a text");
        let mut child = command
            .env(PLAN, plan)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let said = Arc::default();
        let heard = Arc::clone(&said);
        let listener = Some(thread::spawn(move || listen(stdout, &heard)));
        Self {
            child,
            stdin,
            said,
            listener,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says something that begins with `start`, and gives the rest.
    pub(crate) async fn wait_for_line(&self, start: &str) -> String {
        let what = format!("process {} says `{start}`", self.pid());
        until(&what, async || self.heard(start).pop()).await
    }

    /// The rest of all that it has said so far that begins with `start`.
    pub(crate) fn heard(&self, start: &str) -> Vec<String> {
        let said = self.said.lock().expect("nobody panics here");
        let rests = said.iter().filter_map(|text| text.strip_prefix(start));
        rests.map(str::to_owned).collect()
    }

    /// Has a worker shut down, with some milliseconds of grace, and waits until it has.
    pub(crate) async fn stop(&mut self, grace: u64) {
        self.tell_to_stop(grace);
        self.wait_for_line("stopped").await;
        assert!(self.died().await.success());
    }

    pub(crate) fn tell_to_stop(&mut self, grace: u64) {
        writeln!(self.stdin, "{grace}").expect("it reads");
    }

    /// Kills it, at once, whatever it does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has died");
        self.hear_out();
    }

    pub(crate) fn send(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it can be signalled");
    }

    /// Stops it in the middle of its work. When this returns, none of its threads runs: the signal takes effect later, when a thread that
    /// waits for the disk has its answer, or one that waits for a processor gets it.
    pub(crate) fn freeze(&self) {
        self.send(Signal::STOP);
        wait_until("it is stopped", || is_stopped(self.pid()));
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn died(&mut self) -> ExitStatus {
        let what = format!("process {} ends", self.pid());
        let status = until(&what, async || self.child.try_wait().expect("a child")).await;
        self.hear_out();
        status
    }

    /// Waits until all is heard that it said before it ended.
    fn hear_out(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.join().expect("nobody panics here");
        }
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits until a signal has ended it.
    pub(crate) async fn was_killed_by(&mut self, signal: Signal) {
        let status = self.died().await;
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns `true` if all threads of a process are stopped.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut threads = threads.expect("the process exists").map_while(Result::ok);
    threads.all(|thread| {
        let status = fs::read_to_string(thread.path().join("stat"));
        // A thread that has ended meanwhile does nothing.
        status.map_or(true, |status| status.contains(") T "))
    })
}

/// This program, so that it becomes a child.
fn command() -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this test"));
    command.args(["--exact", ENTRY, "--nocapture"]);
    command
}

/// Keeps what a child says. The harness does not always end its own line before.
fn listen(stdout: impl BufRead, said: &Mutex<Vec<String>>) {
    for line in stdout.lines().map_while(Result::ok) {
        if let Some((_, text)) = line.split_once(SAYS) {
            said.lock().expect("nobody panics here").push(text.into());
        }
    }
}

/// The time between two looks of [`until`]. Each takes some time of a processor, which all processes share.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until there is something to be seen.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    until_done(what, async || look().await.ok_or(0)).await
}

/// The same. It may take any time while there is progress: a look that sees nothing yet returns a number, which rises.
pub(crate) async fn until_done<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, u64>) -> T {
    let (mut deadline, mut progress) = (Instant::now() + TEST_TIMEOUT, 0);
    loop {
        let reached = match look().await {
            Ok(seen) => return seen,
            Err(reached) => reached,
        };
        if reached > progress {
            (deadline, progress) = (Instant::now() + TEST_TIMEOUT, reached);
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        sleep(LOOK_INTERVAL).await;
    }
}
