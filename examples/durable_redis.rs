//! Tasks in Redis: a process stores them, two others run them, and one of those is killed.
//!
//! ```sh
//! cargo run --features redis --example durable_redis -- [--url redis://127.0.0.1/]
//! ```
//!
//! It starts the workers by itself, and without `--url` also a redis-server. More workers can be
//! started by hand, on any machine that reaches the Redis: `durable_redis --url URL worker`.

#[path = "durable_redis/board.rs"]
mod board;
#[path = "durable_redis/server.rs"]
mod server;
#[path = "durable_redis/worker.rs"]
mod worker;

use std::error::Error;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use throng::CompletionStream;
use throng::completion::Submitter;
use throng::durable::{DurableClient, DurableError, RedisStore, TaskId};
use tokio::signal::ctrl_c;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use self::board::Board;
use self::server::Server;
use self::worker::{Event, Thumbnail, Worker, work};

/// Stores tasks in Redis, has two workers run them, and kills one of those: its tasks are run by the
/// other, and every handle resolves.
#[derive(Debug, Parser)]
struct Args {
    /// The Redis to keep the tasks in; without it, a redis-server that ends with this program
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,

    /// The number of tasks
    #[arg(long, value_name = "N", default_value_t = 240)]
    tasks: u32,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Runs tasks, until standard input ends
    Worker,
}

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// The time after which the tasks of a killed worker run elsewhere. (The default is ten seconds.)
const LEASE: Duration = Duration::from_secs(3);
/// The interval at which tasks are stored. Two workers do not keep up, so there are always tasks to run.
const PACE: Duration = Duration::from_millis(15);
/// The interval of progress lines if there is no bar.
const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> ExitCode {
    // `run` ends its processes and removes its folder in this case, too.
    let ended = tokio::select! {
        ended = run(Args::parse()) => ended,
        _ = ctrl_c() => Err("ended by Ctrl-C".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    match (args.role, args.url) {
        (Some(Role::Worker), Some(url)) => work(open(&url).await?).await,
        (Some(Role::Worker), None) => Err("a worker needs --url".into()),
        (None, Some(url)) => demonstrate(open(&url).await?, &url, args.tasks).await,
        (None, None) => {
            let server = Server::start()?;
            let client = server.open().await?;
            let socket = server.socket();
            println!(
                "A redis-server runs. Look into it: redis-cli -s {}",
                socket.display()
            );
            demonstrate(client, &server.url(), args.tasks).await
        }
    }
}

/// Opens the store in a Redis that may also be used for something else.
async fn open(url: &str) -> Result<DurableClient, DurableError> {
    let mut store = RedisStore::builder(url);
    let store = store.namespace("durable_redis").open().await?;
    Ok(DurableClient::open(store))
}

// ===== The demonstration =====

async fn demonstrate(client: DurableClient, url: &str, tasks: u32) -> Result<()> {
    let durability = client.durability().await?;
    println!("What is stored is as safe as this server makes it: {durability:?}.");
    let (sender, mut events) = unbounded_channel();
    let mut workers = Workers::start(url, sender)?;
    let mut board = Board::new(tasks);
    let (jobs, mut done) = CompletionStream::builder().build()?;
    let producer = tokio::spawn(produce(client, jobs, tasks));
    let mut ticks = interval_at(Instant::now() + SECOND, SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            Some(event) = events.recv() => {
                workers.handle(&event, &mut board)?;
                if let Event::Began(run) = event && board.count() >= u64::from(tasks) / 4 {
                    workers.kill_first(run.worker, &board)?;
                }
            }
            handle = done.next() => {
                let Some(handle) = handle else { break };
                handle.outcome??;
                board.done(handle.tag);
            }
            _ = ticks.tick() => board.tick(),
        }
    }
    producer.await??;
    board.finish();
    workers.finish().await
}

/// Stores tasks, and has their handles awaited.
async fn produce(client: DurableClient, jobs: Handles, tasks: u32) -> Result<()> {
    for picture in 0..tasks {
        let handle = client.spawn(Thumbnail { picture }).await?;
        let awaited = jobs.submit(handle.id(), handle).await;
        awaited.map_err(|_| "nobody waits for the handles any more")?;
        sleep(PACE).await;
    }
    Ok(())
}

type Handles = Submitter<Result<u32, DurableError>, TaskId>;

/// The workers that live.
struct Workers<'u> {
    url: &'u str,
    events: UnboundedSender<Event>,
    workers: Vec<Worker>,
    names: RangeInclusive<char>,
    /// `true` if one was killed, by this program or by somebody else.
    is_over: bool,
}

impl<'u> Workers<'u> {
    fn start(url: &'u str, events: UnboundedSender<Event>) -> Result<Self> {
        let mut workers = Self {
            url,
            events,
            workers: Vec::new(),
            names: 'A'..='Z',
            is_over: false,
        };
        for _ in 0..2 {
            let (name, pid) = workers.add()?;
            println!("Worker {name} is process {pid}.");
        }
        let pid = workers.workers[0].pid;
        println!("Soon one of them is killed. You may be faster: kill -9 {pid}");
        Ok(workers)
    }

    fn add(&mut self) -> Result<(char, u32)> {
        let name = self.names.next().ok_or("too many workers have ended")?;
        let worker = Worker::start(name, self.url, &self.events)?;
        let pid = worker.pid;
        self.workers.push(worker);
        Ok((name, pid))
    }

    /// Sees what has happened, and replaces the last worker.
    fn handle(&mut self, event: &Event, board: &mut Board) -> Result<()> {
        match *event {
            Event::Began(run) => board.began(run),
            Event::Ended(name) => {
                board.ended(name);
                self.is_over = true;
                self.workers.retain(|worker| worker.name != name);
                board.say(format_args!("Worker {name} is gone."));
                if self.workers.is_empty() {
                    let (name, pid) = self.add()?;
                    board.say(format_args!(
                        "None is left. Worker {name} begins, process {pid}."
                    ));
                }
            }
        }
        Ok(())
    }

    /// Kills the first worker, which has just begun a task and so loses it, if no worker has been killed yet.
    fn kill_first(&mut self, began: char, board: &Board) -> Result<()> {
        let worker = &mut self.workers[0];
        if !self.is_over && worker.name == began {
            self.is_over = true;
            let (name, pid) = (worker.name, worker.pid);
            let lease = LEASE.as_secs();
            board.say(format_args!(
                "Worker {name} is killed: kill -9 {pid}. Its tasks wait for {lease} s at most."
            ));
            worker.kill()?;
        }
        Ok(())
    }

    /// Has the workers end, in order.
    async fn finish(self) -> Result<()> {
        for worker in self.workers {
            worker.finish().await?;
        }
        Ok(())
    }
}
