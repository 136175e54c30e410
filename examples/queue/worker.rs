//! [`Worker`]: the main process's handle to a process that runs tasks.

use std::env;
use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;

use super::{Event, Result};

/// A process that runs tasks. It is killed if the main process ends early.
pub(crate) struct Worker(Child);

impl Worker {
    /// Starts a worker, and waits until it can run tasks.
    pub(crate) async fn start(
        release: u32,
        store: &str,
        provider: SocketAddr,
        events: &UnboundedSender<Event>,
    ) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--store", store, "worker"]);
        command.args(["--release", &release.to_string()]);
        command.args(["--provider", &provider.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The worker has a process group of its own, so that Ctrl-C goes to the main process only.
        let mut child = command.kill_on_drop(true).process_group(0).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        lines
            .next_line()
            .await?
            .ok_or("the worker has not started")?;
        events.send(Event::Began(release)).ok();
        tokio::spawn(listen(release, lines, events.clone()));
        Ok(Self(child))
    }

    /// Closes the standard input of the worker, which tells it to end, and waits until it has ended.
    pub(crate) async fn finish(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        match self.0.wait().await?.success() {
            true => Ok(()),
            false => Err("a worker has failed".into()),
        }
    }
}

async fn listen(
    release: u32,
    mut lines: Lines<BufReader<ChildStdout>>,
    events: UnboundedSender<Event>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        let report = line
            .strip_prefix("reported ")
            .and_then(|it| it.split_once(' '));
        if let Some((tick, text)) = report {
            let (tick, text) = (tick.to_owned(), text.to_owned());
            events.send(Event::Reported { tick, text }).ok();
        }
    }
    events.send(Event::Ended(release)).ok();
}
