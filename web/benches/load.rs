//! Measures the dashboard with a store that is full of tasks: the time that each page and each answer of the API takes, what the viewers of
//! the overview cost, and the memory. It prints a table for each kind of store, and exits with status 1 if a figure exceeds its bar.
//!
//! `cargo bench -p throng-web --bench load -- 10000` stores 10,000 waiting tasks instead of a million, and fewer of everything else, for a
//! quick look. `cargo bench -p throng-web --bench load -- 10000 sqlite` measures only one of the stores.

#[path = "load/bars.rs"]
mod bars;
#[path = "load/dashboard.rs"]
mod dashboard;
#[path = "load/fill.rs"]
mod fill;
#[path = "load/jobs.rs"]
mod jobs;
#[path = "load/pages.rs"]
mod pages;
#[path = "load/proc.rs"]
mod proc;
#[path = "../tests/dashboard/redis_info.rs"]
mod redis_info;
#[path = "../../examples/durable_redis/server.rs"]
mod server;
#[path = "load/viewers.rs"]
mod viewers;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableError, RedisStore, SqliteStore};

use crate::bars::Bars;
use crate::fill::{Filled, Size};
use crate::server::Server;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The number of waiting tasks if the command line has none.
const TASKS: usize = 1_000_000;
/// The kinds of stores.
const STORES: [&str; 2] = ["redis", "sqlite"];
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The first argument of the process that measures. Its memory is that of a process that has only a dashboard.
const MEASURE: &str = "measure";

#[tokio::main]
async fn main() -> Result<ExitCode> {
    // Cargo adds `--bench`.
    let arguments: Vec<_> = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let has_met_all = match arguments[..] {
        [MEASURE, tasks, "redis", socket] => {
            let client = DurableClient::open(RedisStore::observe(&url(Path::new(socket))).await?);
            measure(Size::of(tasks.parse()?), client, Some(socket.into())).await?
        }
        [MEASURE, tasks, "sqlite", file] => {
            let client = DurableClient::open(SqliteStore::observe(file).await?);
            measure(Size::of(tasks.parse()?), client, None).await?
        }
        [] => run(Size::of(TASKS), &STORES).await?,
        [tasks] => run(size(tasks)?, &STORES).await?,
        [tasks, store] if STORES.contains(&store) => run(size(tasks)?, &[store]).await?,
        _ => return Err(usage(&arguments.join(" ")).into()),
    };
    Ok(if has_met_all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn size(tasks: &str) -> std::result::Result<Size, String> {
    Ok(Size::of(tasks.parse().map_err(|_| usage(tasks))?))
}

fn usage(arguments: &str) -> String {
    format!(
        "the arguments {arguments:?} are not valid: pass the number of waiting tasks, or nothing for {TASKS}, and then one of {STORES:?}, or nothing for all"
    )
}

/// Measures these stores, one after the other. Returns `false` if a figure exceeds its bar.
async fn run(size: Size, stores: &[&str]) -> Result<bool> {
    println!("{size}");
    let mut has_met_all = true;
    for &store in stores {
        has_met_all &= match store {
            "redis" => run_redis(size).await?,
            _ => run_sqlite(size).await?,
        };
    }
    Ok(has_met_all)
}

async fn run_redis(size: Size) -> Result<bool> {
    let redis = Server::start()?;
    let client = redis.open().await?;
    // A page writes nothing, and the time to fill the store is not measured.
    redis_info::command(&redis.socket(), "CONFIG SET appendonly no")?;
    let filled = fill("redis", size, client).await?;
    let has_met_all = measure_in_child(size, "redis", &redis.socket())?;
    filled.close().await?;
    Ok(has_met_all)
}

async fn run_sqlite(size: Size) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tasks.db");
    let client = DurableClient::open(SqliteStore::open(&file).await?);
    let filled = fill("sqlite", size, client).await?;
    let has_met_all = measure_in_child(size, "sqlite", &file)?;
    filled.close().await?;
    Ok(has_met_all)
}

async fn fill(name: &str, size: Size, client: DurableClient) -> Result<Filled> {
    let begun = Instant::now();
    let filled = fill::fill(client, size).await?;
    println!("\n{name}: filled in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(filled)
}

/// Measures a store in another process. Returns `false` if a figure exceeds its bar.
fn measure_in_child(size: Size, store: &str, place: &Path) -> Result<bool> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args([MEASURE, &size.waiting.to_string(), store]);
    match child.arg(place).status()?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        code => Err(format!("the measuring process has exited with {code:?}").into()),
    }
}

/// Measures a store. `socket` is that of its server, if it has one.
async fn measure(size: Size, client: DurableClient, socket: Option<PathBuf>) -> Result<bool> {
    let mut bars = Bars::default();
    pages::measure(size, &client, socket.as_deref(), &mut bars).await?;
    viewers::measure(size, &client, socket.as_deref(), &mut bars).await?;
    bars.at_most(
        "peak of the dashboard's memory, MiB",
        proc::peak_memory_mib()?,
        50.0,
    );
    Ok(bars.report())
}

fn url(socket: &Path) -> String {
    format!("redis+unix://{}", socket.display())
}

async fn open(url: &str) -> std::result::Result<DurableClient, DurableError> {
    let mut store = RedisStore::builder(url);
    // The other processes of a machine may delay the answers while the store is filled.
    store.answer_timeout(ANSWER_TIMEOUT);
    Ok(DurableClient::open(store.open().await?))
}
