//! [`Worker`] and [`Producer`]: processes of one of the two programs.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::task::Task;

/// The releases of the application.
pub(crate) const RELEASES: [&str; 2] = ["1", "2"];

/// A version of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Older,
    Newer,
}

impl Version {
    /// Returns the path of the program that was compiled with this version.
    pub(crate) fn program(self) -> OsString {
        match self {
            Self::Older => env::var_os("THRONG_OLDER_PROGRAM").expect(
                "`THRONG_OLDER_PROGRAM` is the path of the older program: run scripts/test-versions, which compiles it",
            ),
            Self::Newer => env!("CARGO_BIN_EXE_throng-versions").into(),
        }
    }
}

/// A process that runs tasks. It is killed when this is dropped.
pub(crate) struct Worker {
    version: Version,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a process, and waits until it runs tasks.
    pub(crate) fn start(version: Version, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let stdout = child.stdout.take().expect("it is a pipe");
        let mut worker = Self {
            version,
            stdin: child.stdin.take(),
            child,
            lines: BufReader::new(stdout).lines(),
        };
        worker.hear("ready");
        worker
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it has died");
    }

    /// Lets it finish its tasks, and waits until it exits.
    pub(crate) fn stop(mut self) {
        drop(self.stdin.take());
        self.hear("stopped");
        assert!(self.child.wait().expect("it exits").success());
    }

    fn hear(&mut self, expected: &str) {
        let line = self.lines.next().and_then(Result::ok);
        let version = self.version;
        assert_eq!(
            line.as_deref(),
            Some(expected),
            "a worker of the {version:?} version"
        );
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A process that stores tasks.
pub(crate) struct Producer {
    child: Child,
    release: &'static str,
}

impl Producer {
    pub(crate) fn start(release: &'static str, command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Self {
            child: child.expect("the program can be started"),
            release,
        }
    }

    /// Waits until it exits. Returns the tasks that it has stored.
    pub(crate) fn tasks(self) -> Vec<Task> {
        let output = self.child.wait_with_output().expect("it exits");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        Task::read(&text, self.release)
    }
}
