//! The peer `apalis-sqlite` of the area `durable`.
//!
//! `apalis-sqlite-peer WORKLOAD FILE TASKS CONNECTIONS` runs a workload once, on a database in a new file. It prints
//! three numbers: the tasks that were done, the seconds that this took, and the seconds of CPU time.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use apalis::layers::WorkerBuilderExt as _;
use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteStorage};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const QUEUE: &str = "bench";

/// Tasks that have run.
static RAN: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [workload, file, tasks, connections] = args.as_slice() else {
        return Err("usage: apalis-sqlite-peer WORKLOAD FILE TASKS CONNECTIONS".into());
    };
    let tasks: u64 = tasks.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (done, took, cpu) = runtime.block_on(async {
        let pool = open(file, connections.parse()?).await?;
        match workload.as_str() {
            "enqueue-64" => enqueue(&pool, tasks).await,
            "drain" => drain(&pool, tasks).await,
            _ => Err("no such workload".into()),
        }
    })?;
    println!("{done} {} {}", took.as_secs_f64(), cpu.as_secs_f64());
    // Exits without waiting for the workers.
    std::process::exit(0);
}

/// Opens the database with the durability of the other stores. `SqliteStorage::setup` would set `synchronous=OFF` on one
/// of the connections.
async fn open(file: &str, connections: u32) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .busy_timeout(Duration::from_secs(60))
        .pragma("journal_mode", "WAL")
        .pragma("synchronous", "FULL");
    let pool = SqlitePoolOptions::new().max_connections(connections);
    let pool = pool.connect_with(options).await?;
    SqliteStorage::migrations().run(&pool).await?;
    Ok(pool)
}

fn storage(pool: &SqlitePool) -> SqliteStorage<String> {
    let config = Config::default().queue(QUEUE).batch_size(256);
    SqliteStorage::<String>::new(pool).with_config(config)
}

/// Spawns the tasks from 64 spawners, each of which waits until a task is stored before it spawns the next.
async fn enqueue(pool: &SqlitePool, tasks: u64) -> Result<(u64, Duration, Duration)> {
    let share = tasks.div_ceil(64);
    let meter = Meter::start();
    let spawners = (0..64).map(|spawner| {
        let mut storage = storage(pool);
        tokio::spawn(async move {
            for task in 0..share {
                storage.push(payload(spawner * share + task)).await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        })
    });
    for spawner in spawners.collect::<Vec<_>>() {
        spawner.await??;
    }
    Ok(meter.stop(share * 64))
}

/// Runs tasks that are stored already, with one worker.
async fn drain(pool: &SqlitePool, tasks: u64) -> Result<(u64, Duration, Duration)> {
    let mut full = storage(pool);
    let payloads: Vec<String> = (0..tasks).map(payload).collect();
    for chunk in payloads.chunks(1_000) {
        full.push_bulk(chunk.to_vec()).await?;
    }
    let stored = count(pool, "Pending").await?;
    if stored != tasks {
        return Err(format!("{stored} of {tasks} tasks were stored").into());
    }
    let meter = Meter::start();
    let worker = WorkerBuilder::new("worker")
        .backend(storage(pool))
        .concurrency(256)
        .build(run);
    let worker = tokio::spawn(worker.run());
    while RAN.load(Relaxed) < tasks || count(pool, "Done").await? < tasks {
        if worker.is_finished() {
            let ended = worker.await?;
            return Err(format!("the worker has stopped: {ended:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(meter.stop(tasks))
}

async fn run(_: String) -> std::result::Result<(), BoxDynError> {
    RAN.fetch_add(1, Relaxed);
    Ok(())
}

/// Counts the tasks with a status.
async fn count(pool: &SqlitePool, status: &str) -> Result<u64> {
    let query = "SELECT count(*) FROM Jobs WHERE job_type = ? AND status = ?";
    let query = sqlx::query_scalar::<_, i64>(query).bind(QUEUE).bind(status);
    Ok(query.fetch_one(pool).await? as u64)
}

/// Returns a payload of the size that the benchmarks of the other stores use.
fn payload(task: u64) -> String {
    format!("{task:080}")
}

/// Time, and CPU time.
struct Meter {
    begin: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Self {
        Self {
            cpu: cpu(),
            begin: Instant::now(),
        }
    }

    fn stop(self, tasks: u64) -> (u64, Duration, Duration) {
        (tasks, self.begin.elapsed(), cpu() - self.cpu)
    }
}

/// Returns the CPU time of this process so far.
fn cpu() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours, and of the type that the call writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
