//! [`Process`]: the main process's handle to a worker or a watcher.

use std::env;
use std::process::Stdio;

use throng::durable::TaskId;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::Result;

/// A process that runs or watches tasks. It is killed if the main process ends early.
pub(crate) struct Process {
    child: Child,
    /// The lines that a worker writes.
    lines: Option<JoinHandle<Vec<String>>>,
}

impl Process {
    /// Starts a worker, and waits until it can run tasks.
    pub(crate) async fn worker(release: u32, store: &str) -> Result<Self> {
        let release = release.to_string();
        let mut command = command(store, &["worker", "--release", &release])?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        let first = lines.next_line().await?;
        first.ok_or("the worker has not started")?;
        Ok(Self {
            child,
            lines: Some(tokio::spawn(collect(lines))),
        })
    }

    /// Starts a process that shows the progress of a task.
    pub(crate) fn watcher(id: TaskId, store: &str) -> Result<Self> {
        Ok(Self {
            child: command(store, &["watch", &id.to_string()])?.spawn()?,
            lines: None,
        })
    }

    /// Closes the standard input of a worker, which tells it to end. Waits until the process has ended, and returns the lines that a
    /// worker has written.
    pub(crate) async fn finish(mut self) -> Result<Vec<String>> {
        drop(self.child.stdin.take());
        if !self.child.wait().await?.success() {
            return Err("a process has failed".into());
        }
        match self.lines {
            Some(lines) => Ok(lines.await?),
            None => Ok(Vec::new()),
        }
    }
}

/// Returns a command of this program. Its process has a process group of its own, so that Ctrl-C goes to the main process only.
fn command(store: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--store", store]).args(arguments);
    command.kill_on_drop(true).process_group(0);
    Ok(command)
}

async fn collect(mut lines: Lines<BufReader<ChildStdout>>) -> Vec<String> {
    let mut collected = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        collected.push(line);
    }
    collected
}
