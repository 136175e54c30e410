//! A long import: another process watches its progress, and the next release is deployed in the middle.
//!
//! ```sh
//! cargo run --features sqlite,redis --example import -- [--redis | --store FILE_OR_URL]
//! ```
//!
//! A task imports a file of 6,000 addresses, in batches of 50. The tasks are kept in a SQLite file or, with `--redis`, in a redis-server
//! that ends with this program. The program shows the following:
//!
//! - *Progress.* The task reports each batch. Another process shows these reports in a progress bar, whichever process runs the task.
//! - *A new version.* The task of release 2 takes several files instead of one. A task that is stored as version 2 waits until a worker
//!   of release 2 runs. That worker also runs tasks that were stored as version 1.
//! - *A deployment.* A worker of release 2 starts in the middle of the import, and then the worker of release 1 ends. Release 2 reads the
//!   last progress, and continues with the next batch.
//!
//! The program takes about fifteen seconds, and fails if a batch is missing. While it runs, you can watch a task
//! yourself: `import --store FILE_OR_URL watch ID`.

#[path = "import/process.rs"]
mod process;
#[path = "import/release.rs"]
mod release;
#[path = "durable_redis/server.rs"]
mod server;
#[path = "import/watch.rs"]
mod watch;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use throng::durable::{DurableClient, DurableError, RedisStore, SqliteStore, TaskId};
use tokio::signal::ctrl_c;
use tokio::time::timeout;

use self::process::Process;
use self::release::{BATCH, Summary, one, two, work};
use self::server::Server;
use self::watch::{half_done, watch};

/// Imports a file of addresses while the next release is deployed.
#[derive(Debug, Parser)]
struct Args {
    /// The SQLite file, or the URL of the Redis server, that keeps the tasks; by default, a file that is removed at the end
    #[arg(long, value_name = "FILE_OR_URL", global = true)]
    store: Option<String>,

    /// Keeps the tasks in a redis-server that ends with this program
    #[arg(long, conflicts_with = "store")]
    redis: bool,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Runs tasks until standard input ends
    Worker {
        /// The release of the program
        #[arg(long)]
        release: u32,
    },
    /// Shows the progress of a task until it ends
    Watch {
        /// The id of the task
        id: TaskId,
    },
}

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// The number of addresses in a file.
const ROWS: usize = 6_000;
/// One of this number of addresses is wrong.
const WRONG: usize = 100;
/// The maximum duration of the demonstration.
const MAX_DURATION: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    // Ctrl-C drops the future of `run`, which ends its processes and removes its folder.
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
    match (args.role, args.store) {
        (Some(role), Some(store)) => play(role, open(&store).await?).await,
        (Some(_), None) => Err("a worker and a watcher need --store".into()),
        (None, Some(store)) => demonstrate(open(&store).await?, &store).await,
        (None, None) if args.redis => {
            let server = Server::start()?;
            demonstrate(server.open().await?, &server.url()).await
        }
        (None, None) => {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("tasks.db").display().to_string();
            demonstrate(open(&file).await?, &file).await
        }
    }
}

async fn play(role: Role, client: DurableClient) -> Result<()> {
    match role {
        Role::Worker { release } => work(client, release).await,
        Role::Watch { id } => watch(&client, id).await,
    }
}

/// Opens the store in a SQLite file or in a Redis server, which may also keep data of other programs.
async fn open(store: &str) -> Result<DurableClient, DurableError> {
    match store.contains("://") {
        true => {
            let mut store = RedisStore::builder(store);
            Ok(DurableClient::open(store.namespace("import").open().await?))
        }
        false => Ok(DurableClient::open(SqliteStore::open(store).await?)),
    }
}

// ===== The demonstration =====

async fn demonstrate(client: DurableClient, store: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [first, second] = ["customers", "suppliers"].map(|name| folder.path().join(name));
    for file in [&first, &second] {
        fs::write(file, addresses())?;
    }
    timeout(MAX_DURATION, import(&client, store, first, second)).await?
}

async fn import(
    client: &DurableClient,
    store: &str,
    first: PathBuf,
    second: PathBuf,
) -> Result<()> {
    let old = Process::worker(1, store).await?;
    println!("Release 1 imports {}.", name_of(&first));
    let import = client.spawn(one::Import { file: first }).await?;
    let watcher = Process::watcher(import.id(), store)?;
    half_done(&import).await?;

    println!("A task of release 2 is stored. It waits, since only release 1 runs.");
    let next = client
        .spawn(two::Import {
            files: vec![second],
        })
        .await?;
    ensure(
        client.counts().await?.unserved == 1,
        "no task waits for release 2",
    )?;
    let new = Process::worker(2, store).await?;
    println!("Release 2 has started.");
    let by_old = old.finish().await?;
    println!("Release 1 has ended.");

    check_summary(import.await?, ROWS)?;
    watcher.finish().await?;
    check_summary(next.await?, ROWS)?;
    check_batches(&by_old, &new.finish().await?)
}

/// Returns the contents of a file of addresses.
fn addresses() -> String {
    let rows = (1..=ROWS).map(|row| match row % WRONG {
        0 => format!("reader-{row}\n"),
        _ => format!("reader-{row}@example.org\n"),
    });
    rows.collect()
}

/// Checks the output of an import. Release 1 has accepted wrong addresses, so the number of rejected ones depends on the deployment.
fn check_summary(summary: Summary, rows: usize) -> Result<()> {
    let all = summary.imported + summary.rejected;
    ensure(all == rows, format!("{all} rows were read"))?;
    ensure(summary.rejected > 0, "release 2 has rejected no address")
}

/// Checks that each batch was imported, given the lines that the workers of both releases have written.
fn check_batches(by_old: &[String], by_new: &[String]) -> Result<()> {
    let mut expected: Vec<_> = ["customers", "suppliers"]
        .iter()
        .flat_map(|file| (0..ROWS / BATCH).map(move |batch| format!("{file} {batch}")))
        .collect();
    let mut batches = [by_old, by_new].concat();
    batches.sort_unstable();
    expected.sort_unstable();
    // On a slow machine, the last report of release 1 may come too late, and then the batch is imported again.
    batches.dedup();
    ensure(batches == expected, "a batch is missing")?;
    let (old, all) = (by_old.len(), expected.len() / 2);
    println!("Release 1 has imported {old} batches of {all}, and release 2 the others.");
    ensure(
        (all / 2..all).contains(&old),
        "the deployment was not in the middle",
    )
}

fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn ensure(holds: bool, otherwise: impl Into<Fault>) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(otherwise.into()),
    }
}
