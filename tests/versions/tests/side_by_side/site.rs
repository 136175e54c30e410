//! [`Site`]: the store and the folder of a test.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::program::{Producer, RELEASES, Version, Worker};
use super::task::Task;

/// The maximum time for which a test waits for a condition.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    folder: tempfile::TempDir,
    store: String,
}

impl Site {
    /// Creates a folder. The function returns the address of the store.
    pub(crate) fn new(store: impl Fn(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let store = store(folder.path());
        Self { folder, store }
    }

    /// Runs a command to its end. Returns what it has printed.
    pub(crate) fn tell(&self, version: Version, arguments: &[&str], input: &str) -> String {
        let mut command = self.command(version, RELEASES[1]);
        command.args(arguments).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the program can be started");
        let mut stdin = child.stdin.take().expect("it is a pipe");
        stdin.write_all(input.as_bytes()).ok();
        drop(stdin);
        let output = child.wait_with_output().expect("it exits");
        let status = output.status;
        assert!(status.success(), "{version:?} {arguments:?}: {status}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// Awaits tasks. Returns what a version reads about them and in the store.
    pub(crate) fn read(&self, version: Version, tasks: &[Task]) -> String {
        let mut lines: Vec<_> = tasks.iter().map(Task::line).collect();
        lines.sort();
        lines.dedup();
        self.tell(version, &["read"], &lines.concat())
    }

    /// Starts a worker of each release with each of these versions.
    pub(crate) fn start_workers(&self, versions: &[Version]) -> Vec<Worker> {
        let versions = versions.iter().flat_map(|&version| {
            let start =
                |release| Worker::start(version, self.command(version, release).arg("work"));
            RELEASES.map(start)
        });
        versions.collect()
    }

    pub(crate) fn start_producer(
        &self,
        version: Version,
        release: &'static str,
        label: &str,
    ) -> Producer {
        let mut command = self.command(version, release);
        Producer::start(release, command.args(["produce", label]))
    }

    fn command(&self, version: Version, release: &str) -> Command {
        let mut command = Command::new(version.program());
        command
            .arg(&self.store)
            .arg(self.folder.path())
            .arg(release);
        command
    }

    /// Creates a file that tasks wait for.
    pub(crate) fn open(&self, gate: &str) {
        fs::write(self.folder.path().join(gate), "").expect("a file can be written");
    }

    pub(crate) fn close(&self, gate: &str) {
        fs::remove_file(self.folder.path().join(gate)).expect("a file can be removed");
    }

    pub(crate) fn ledger(&self) -> String {
        fs::read_to_string(self.folder.path().join("ledger")).unwrap_or_default()
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn() -> bool) {
        let end = Instant::now() + CONDITION_TIMEOUT;
        while !condition() {
            assert!(
                Instant::now() < end,
                "waited in vain until {what}: {}",
                self.ledger()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}
