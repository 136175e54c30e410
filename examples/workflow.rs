//! Orders of a shop: a workflow with steps, a wait of three days, parcels as children, and steps that are undone if the order fails.
//!
//! ```sh
//! cargo run --features sqlite,redis --example workflow -- [--redis | --store FILE_OR_URL]
//! ```
//!
//! Start reading at `workflow/order.rs`, which has the workflow. This file demonstrates it, with a customer for each way in which an order
//! can end. A worker runs the orders, in a process of its own, and is killed while they wait. A day takes a second.
//!
//! The program takes about five seconds, and fails if an order does not end as it should. Effects are lines in a file. `tests/workflow.rs`
//! kills the worker at many other points, and counts these lines.
//!
//! While it runs, you can start more workers yourself: `workflow --store FILE_OR_URL --effects FILE worker`. To send an order its answer:
//! `workflow --store FILE_OR_URL answer ID paid`.

#[path = "workflow/order.rs"]
mod order;
#[path = "durable_redis/server.rs"]
mod server;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use throng::durable::{
    DurableClient, DurableError, DurableExecutor, DurableHandle, RedisStore, SqliteStore, Status,
    TaskId,
};
use tokio::io::{AsyncReadExt, stdin};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use self::order::{ANSWER, Answer, Card, Order, Outcome, Parcel, Shop};
use self::server::Server;

/// Fulfils orders, which wait for days, ship parcels, and can be cancelled.
#[derive(Debug, Parser)]
struct Args {
    /// The SQLite file, or the URL of the Redis server, that keeps the tasks; by default, a file that is removed at the end
    #[arg(long, value_name = "FILE_OR_URL", global = true)]
    store: Option<String>,

    /// Keeps the tasks in a redis-server that ends with this program
    #[arg(long, conflicts_with = "store")]
    redis: bool,

    /// The file to which effects are added; by default, one that is removed at the end
    #[arg(long, value_name = "FILE", global = true)]
    effects: Option<PathBuf>,

    /// The length of a day in milliseconds
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = 1000,
        global = true
    )]
    day: u64,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Runs orders and parcels until standard input ends
    Worker,
    /// Sends an answer to an order
    Answer {
        /// The id of the order
        id: TaskId,
        answer: Answer,
    },
}

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// The maximum duration of the demonstration.
const MAX_DURATION: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = Args::parse();
    let folder = tempfile::tempdir()?;
    let server = args.redis.then(Server::start).transpose()?;
    let file = folder.path().join("tasks.db").display().to_string();
    let default = server.as_ref().map_or(file, Server::url);
    let store = args.store.take().unwrap_or(default);
    let effects = args.effects.take();
    let shop = Shop {
        effects: effects.unwrap_or_else(|| folder.path().join("effects")),
        day: Duration::from_millis(args.day),
    };
    let client = match &server {
        Some(server) => server.open().await?,
        None => open(&store).await?,
    };
    match args.role {
        Some(Role::Worker) => work(client, shop).await,
        Some(Role::Answer { id, answer }) => tell(&client, id, answer).await,
        None => timeout(MAX_DURATION, demonstrate(&client, &store, &shop)).await?,
    }
}

/// Opens the store in a SQLite file or in a Redis server, which may also keep data of other programs.
async fn open(store: &str) -> Result<DurableClient, DurableError> {
    match store.contains("://") {
        true => {
            let mut store = RedisStore::builder(store);
            Ok(DurableClient::open(
                store.namespace("workflow").open().await?,
            ))
        }
        false => Ok(DurableClient::open(SqliteStore::open(store).await?)),
    }
}

async fn work(client: DurableClient, shop: Shop) -> Result<()> {
    let mut worker = DurableExecutor::builder(client);
    worker.register::<Order>().register::<Parcel>();
    // One task at a time is enough, since an order that waits holds no permit, not even while its own parcels run.
    worker.max_running(1).lease(Duration::from_secs(2));
    let worker = worker.start(shop).await?;
    stdin().read_to_end(&mut Vec::new()).await?;
    worker.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

async fn tell(client: &DurableClient, id: TaskId, answer: Answer) -> Result<()> {
    match client.signal(id, ANSWER, &answer).await? {
        true => Ok(()),
        false => Err("the order already has an answer, or no longer waits for one".into()),
    }
}

// ===== The demonstration =====

/// The customers, the answers to their orders, and how these end.
const CUSTOMERS: [(&str, Option<Answer>, Outcome); 6] = [
    ("Ann", Some(Answer::Paid), Outcome::Shipped),
    ("Bob", Some(Answer::Approved), Outcome::Shipped),
    ("Cid", Some(Answer::Cancelled), Outcome::Cancelled),
    ("Dee", None, Outcome::Unpaid),
    ("Eve, whose card is blocked", None, Outcome::Declined),
    (
        "Fay, who has no address",
        Some(Answer::Paid),
        Outcome::Returned,
    ),
];

async fn demonstrate(client: &DurableClient, store: &str, shop: &Shop) -> Result<()> {
    let orders = CUSTOMERS.map(|(customer, ..)| Order {
        customer: customer.into(),
        card: match customer.contains("card is blocked") {
            true => Card::Blocked,
            false => Card::Good,
        },
        address: match customer.contains("no address") {
            true => String::new(),
            false => "1 Main Street".into(),
        },
    });
    println!("A worker starts, and {} customers order.", orders.len());
    let mut worker = start_worker(store, shop)?;
    let orders = client.spawn_all(orders).await?;
    for order in &orders {
        until_it_waits(order).await?;
    }
    println!("The orders wait. The worker is killed, and another one starts.");
    worker.kill().await?;
    let mut worker = start_worker(store, shop)?;
    for (order, (_, answer, _)) in orders.iter().zip(CUSTOMERS) {
        if let Some(answer) = answer {
            tell(client, order.id(), answer).await?;
        }
    }
    let bar = ProgressBar::new(orders.len() as u64);
    bar.set_style(ProgressStyle::with_template(
        "orders [{bar:40}] {pos}/{len}",
    )?);
    for (order, (customer, _, expected)) in orders.into_iter().zip(CUSTOMERS) {
        let id = order.id();
        let outcome = order.await?;
        let effects = effects_of(&shop.effects, id)?;
        bar.suspend(|| println!("  {outcome:?}: {customer}. {}.", effects.join(", ")));
        bar.inc(1);
        if outcome != expected {
            return Err(format!("the order of {customer} ends as {outcome:?}").into());
        }
    }
    bar.finish_and_clear();
    drop(worker.stdin.take());
    match worker.wait().await?.success() {
        true => Ok(()),
        false => Err("the worker has failed".into()),
    }
}

/// Waits until an order waits for its answer, or has ended.
async fn until_it_waits(order: &DurableHandle<Outcome>) -> Result<()> {
    while !matches!(order.status().await?, Status::Delayed | Status::Done) {
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Returns the effects of an order, the first one first.
fn effects_of(effects: &Path, order: TaskId) -> Result<Vec<String>> {
    let effects = fs::read_to_string(effects)?;
    let key = order.to_string();
    let of_order = effects.lines().filter_map(|line| {
        let (of, name) = line.split_once(' ')?;
        (of == key).then(|| name.to_owned())
    });
    Ok(of_order.collect())
}

/// Starts a process that runs tasks. It is killed if the main process ends early.
fn start_worker(store: &str, shop: &Shop) -> Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["worker", "--store", store]);
    command.args(["--day", &shop.day.as_millis().to_string()]);
    command.arg("--effects").arg(&shop.effects);
    Ok(command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?)
}
