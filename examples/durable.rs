//! Tasks that survive the process: one spawns them, a second runs them, a third awaits one.
//!
//! ```sh
//! cargo run --features sqlite --example durable -- [--state FILE]
//! ```
//!
//! This demonstrates all of it, and starts the other processes by itself. Each can be started by hand,
//! too, in a terminal of its own: `durable --state FILE worker`, and `durable --state FILE wait ID`.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use clap::{Parser, Subcommand};
use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    DeadFilter, DeadReason, DurableClient, DurableExecutor, DurableHandle, DurableTask, Run,
    SqliteStore, Status, TaskContext, TaskError, TaskId,
};
use tokio::io::{AsyncReadExt, stdin};
use tokio::time::{sleep, timeout};

/// Demonstrates tasks that survive the process: a retry, a dead letter and its replay, and a
/// worker that is killed.
#[derive(Debug, Parser)]
struct Args {
    /// The file to keep the tasks in; without it, one that is removed at the end
    #[arg(long, value_name = "FILE", global = true)]
    state: Option<PathBuf>,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Runs tasks, until standard input ends
    Worker {
        /// Without the bug
        #[arg(long)]
        fixed: bool,
    },
    /// Awaits a report
    Wait { id: TaskId },
}

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

// ===== The tasks =====

/// Takes money from a customer.
#[derive(Serialize, Deserialize)]
struct ChargeCard {
    customer: String,
}

impl DurableTask for ChargeCard {
    const NAME: &'static str = "charge";
    /// The receipt.
    type Output = String;
}

/// Writes a report, which takes a while.
#[derive(Serialize, Deserialize)]
struct Report;

impl DurableTask for Report {
    const NAME: &'static str = "report";
    /// The process that has written it.
    type Output = u32;
}

/// The context of a worker's tasks.
struct App {
    fixed: bool,
}

impl Run<App> for ChargeCard {
    async fn run(self, cx: TaskContext<App>) -> Result<String, TaskError> {
        let (customer, attempt) = (&self.customer, cx.attempt());
        say(&format!("charges {customer}, attempt {attempt}"));
        if customer == "Bob" && attempt <= 2 {
            return Err(TaskError::retry("the bank does not answer"));
        }
        if customer.contains('\'') && !cx.app().fixed {
            return Err(TaskError::fatal(format!("{customer} is no name")));
        }
        Ok(format!("{customer} has paid"))
    }
}

impl Run<App> for Report {
    async fn run(self, cx: TaskContext<App>) -> Result<u32, TaskError> {
        say(&format!("writes report {}", cx.id()));
        sleep(Duration::from_secs(2)).await;
        Ok(process::id())
    }
}

// ===== The processes =====

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let state = args.state.unwrap_or_else(|| folder.path().join("tasks.db"));
    let client = DurableClient::open(SqliteStore::open(&state).await?);
    match args.role {
        Some(Role::Worker { fixed }) => work(client, App { fixed }).await,
        Some(Role::Wait { id }) => wait(client.attach::<Report>(id)).await,
        None => timeout(Duration::from_secs(60), demonstrate(client, state)).await?,
    }
}

async fn work(client: DurableClient, app: App) -> Result<()> {
    let executor = DurableExecutor::builder(client)
        .register::<ChargeCard>()
        .register::<Report>()
        .retry(Retry::exponential().base(Duration::from_millis(200)))
        .start(app)
        .await?;
    say("begins");
    stdin().read_to_end(&mut Vec::new()).await?;
    executor.shutdown(Duration::from_secs(10)).await;
    say("ends");
    Ok(())
}

async fn wait(report: DurableHandle<u32>) -> Result<()> {
    say(&format!("waits for {}", report.id()));
    let author = report.await?;
    say(&format!("knows that process {author} has written it"));
    Ok(())
}

/// Says what this process does, as long as it is not the main process.
fn say(what: &str) {
    println!("    process {} {what}", process::id());
}

// ===== The demonstration =====

async fn demonstrate(client: DurableClient, state: PathBuf) -> Result<()> {
    let start = |args: &[&str]| Process::start(&state, args, Stdio::inherit());
    println!("A worker begins, in a process of its own.");
    let worker = start(&["worker"])?;
    let refused = retry_and_dead_letter(&client).await?;

    println!("The bug is fixed: the worker ends, and a new one takes its place.");
    worker.finish()?;
    let worker = start(&["worker", "--fixed"])?;
    replay(&client, refused).await?;

    println!("Now for something that takes longer.");
    let report = client.spawn(Report).await?;
    let id = report.id();
    while report.status().await? != Status::Running {
        sleep(Duration::from_millis(10)).await;
    }
    println!("It runs. A third process attaches to its id, and waits.");
    let mut waiter = Process::start(&state, &["wait", &id.to_string()], Stdio::piped())?;
    let stdout = waiter.0.stdout.take().ok_or("no pipe")?;
    let mut said = BufReader::new(stdout).lines();
    println!("{}", said.next().ok_or("it says nothing")??);

    println!("The worker is killed, in the middle of it; another one begins.");
    let killed = worker.kill()?;
    let worker = start(&["worker", "--fixed"])?;
    println!("{}", said.next().ok_or("it says no more")??);
    waiter.finish()?;
    let author = report.await?;
    ensure(author == worker.id() && author != killed, "wrong author")?;
    worker.finish()?;
    totals(&client).await
}

/// One customer pays at once, one at the third attempt, and one never.
async fn retry_and_dead_letter(client: &DurableClient) -> Result<DurableHandle<String>> {
    let ann = charge(client, "Ann").await?;
    let bob = charge(client, "Bob").await?;
    let ohara = charge(client, "O'Hara").await?;
    let id = ohara.id();
    for handle in [ann, bob] {
        println!("  {}.", handle.await?);
    }
    let error = ohara.await.expect_err("the worker has a bug");
    println!("  {error}");
    ensure(
        error.dead_reason() == Some(DeadReason::Fatal),
        "wrong reason",
    )?;
    Ok(client.attach::<ChargeCard>(id))
}

async fn charge(client: &DurableClient, customer: &str) -> Result<DurableHandle<String>> {
    let customer = customer.to_owned();
    println!("  {customer} is to be charged.");
    let handle = client.spawn(ChargeCard { customer }).await?;
    println!("  That is stored, as {}.", handle.id());
    Ok(handle)
}

/// The task that has failed is a dead letter, and gets another life.
async fn replay(client: &DurableClient, handle: DurableHandle<String>) -> Result<()> {
    let it = DeadFilter::ids([handle.id()]);
    let dead_letters = client.dead_letters().list(it.clone(), 10).await?;
    for dead_letter in &dead_letters {
        println!("  Dead letter {}: {}", dead_letter.id, dead_letter.error);
    }
    let replayed = client.dead_letters().replay(it).await?;
    ensure(dead_letters.len() == 1 && replayed == 1, "no dead letter")?;
    println!("  It is replayed.");
    println!("  {}.", handle.await?);
    Ok(())
}

/// The store has counted what happened, over all processes.
async fn totals(client: &DurableClient) -> Result<()> {
    let counts = client.counts().await?;
    println!(
        "All is done: {} tasks, {} runs, {} retries, {} taken from the dead.",
        counts.stored,
        counts.claimed,
        counts.retried,
        counts.crashed + counts.lost
    );
    let left = counts.waiting + counts.delayed + counts.running;
    ensure(left == 0, "something is left")
}

fn ensure(condition: bool, otherwise: &str) -> Result<()> {
    match condition {
        true => Ok(()),
        false => Err(otherwise.into()),
    }
}

/// Another process of this program; it is killed if the main process ends early.
struct Process(Child);

impl Process {
    fn start(state: &Path, args: &[&str], stdout: Stdio) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("--state").arg(state).args(args);
        Ok(Self(command.stdin(Stdio::piped()).stdout(stdout).spawn()?))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends its standard input, and waits until it has ended.
    fn finish(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        ensure(self.0.wait()?.success(), "a process has failed")
    }

    /// Ends it as `kill -9` does.
    fn kill(mut self) -> Result<u32> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(self.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
