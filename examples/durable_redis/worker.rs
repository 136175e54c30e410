//! The processes that run tasks: what they do, and [`Worker`], as the main process sees one.

use std::env;
use std::io::{self, Write};
use std::process::{self, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError, TaskId,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, stdin};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

use super::{LEASE, Result};

// ===== What is done =====

/// Makes a small picture of a large one.
#[derive(Serialize, Deserialize)]
pub(crate) struct Thumbnail {
    pub(crate) picture: u32,
}

impl DurableTask for Thumbnail {
    const NAME: &'static str = "thumbnail";
    /// The process that has made it.
    type Output = u32;
}

impl Run<()> for Thumbnail {
    async fn run(self, cx: TaskContext<()>) -> Result<u32, TaskError> {
        // If nobody reads that, the task runs all the same.
        writeln!(io::stdout(), "begins {} {}", cx.id(), self.picture).ok();
        sleep(WORK).await;
        Ok(process::id())
    }
}

/// The duration of a task.
const WORK: Duration = Duration::from_millis(200);
/// The number of tasks that a worker runs at a time.
const AT_A_TIME: usize = 4;
/// The time for which running tasks may continue when the worker is told to exit.
const GRACE: Duration = Duration::from_secs(2);

/// Runs tasks until standard input ends.
pub(crate) async fn work(client: DurableClient) -> Result<()> {
    let executor = DurableExecutor::builder(client)
        .register::<Thumbnail>()
        .max_running(AT_A_TIME)
        .lease(LEASE)
        .start(())
        .await?;
    stdin().read_to_end(&mut Vec::new()).await?;
    executor.shutdown(GRACE).await;
    Ok(())
}

// ===== What is seen of it =====

/// A process that runs tasks; it is killed if the main process ends early.
pub(crate) struct Worker {
    pub(crate) name: char,
    pub(crate) pid: u32,
    child: Child,
}

/// An event in a worker.
pub(crate) enum Event {
    /// It has begun a task.
    Began(Began),
    /// It has ended.
    Ended(char),
}

/// A run of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    pub(crate) worker: char,
    pub(crate) task: TaskId,
    pub(crate) picture: u32,
}

impl Worker {
    /// Starts a worker on the store at `url`, and tells what happens in it.
    pub(crate) fn start(name: char, url: &str, events: &UnboundedSender<Event>) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--url", url, "worker"]).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // In a group of its own: Ctrl-C goes to the main process only.
        let mut child = command.process_group(0).spawn()?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        tokio::spawn(listen(name, stdout, events.clone()));
        let pid = child.id().ok_or("no process")?;
        Ok(Self { name, pid, child })
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.start_kill()?)
    }

    /// Ends its standard input, and waits until it has ended.
    pub(crate) async fn finish(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        match self.child.wait().await?.success() {
            true => Ok(()),
            false => Err(format!("worker {} has failed", self.name).into()),
        }
    }
}

async fn listen(worker: char, stdout: ChildStdout, events: UnboundedSender<Event>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(began) = Began::parse(worker, &line) {
            events.send(Event::Began(began)).ok();
        }
    }
    events.send(Event::Ended(worker)).ok();
}

impl Began {
    fn parse(worker: char, line: &str) -> Option<Self> {
        let (task, picture) = line.strip_prefix("begins ")?.split_once(' ')?;
        Some(Self {
            worker,
            task: task.parse().ok()?,
            picture: picture.parse().ok()?,
        })
    }
}
