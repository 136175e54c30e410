//! A mail service with its dashboard, its metrics and its traces.
//!
//! ```sh
//! cargo run -p throng-opentelemetry --example mail                                 # tasks in a file that is removed at the end
//! cargo run -p throng-opentelemetry --example mail -- --store mail.db              # tasks in a file that is kept
//! cargo run -p throng-opentelemetry --example mail -- --redis redis://localhost/   # tasks in Redis
//! ```
//!
//! It serves <http://127.0.0.1:9300> until Ctrl-C: the page there says what to look at. Traces are sent to the collector that
//! `OTEL_EXPORTER_OTLP_ENDPOINT` names, such as `http://localhost:4317`. Without this variable, each span is a line on the standard error
//! output.
//!
//! Two simulated customers send mails by HTTP requests. Each mail is a durable task in the queue of a provider, which limits the rate.
//! Mails that a user waits for have a high priority, and newsletters have a low one. A provider is sometimes busy, so the task is tried
//! again. It refuses the mails to a blocked address, so the task becomes a dead letter. To send these mails, unblock the
//! address and replay the dead letters in the dashboard.
//!
//! The service uses each part of throng once:
//!
//! | part | file | use |
//! | --- | --- | --- |
//! | durable tasks | `delivery.rs` | mails |
//! | `ComputePool` | `delivery.rs` | renders mails |
//! | `SerialExecutor` | `delivery.rs` | owns the blocked addresses |
//! | `BlockingPool` | `delivery.rs` | writes the mails that were sent to a file |
//! | `CompletionStream` | `customers.rs` | bounds the unanswered requests of the customers |
//!
//! Anyone who can reach the address may operate the dashboard, so the service listens on the local machine only. A real service
//! derives the access from its users.

mod customers;
mod delivery;
mod http;
mod service;
mod site;
mod traces;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use throng::durable::{DurableClient, RedisStore, SqliteStore};
use tokio::signal::unix::{SignalKind, signal};

use self::service::Service;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Sends mails for customers, and shows how: in a dashboard, in metrics and in traces.
#[derive(Debug, Parser)]
struct Args {
    /// The address of the site, on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9300")]
    listen: SocketAddr,

    /// The SQLite file that keeps the tasks; by default, one that is removed at the end
    #[arg(long, value_name = "FILE", conflicts_with = "redis")]
    store: Option<PathBuf>,

    /// The Redis server that keeps the tasks
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    /// The number of simulated customers
    #[arg(long, default_value_t = 2)]
    customers: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if !args.listen.ip().is_loopback() {
        return Err("anyone who can reach the address may operate the dashboard: choose a loopback address, such as 127.0.0.1:9300".into());
    }
    // From now on, the signals do not end the process at once.
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let traces = traces::start()?;
    let folder = tempfile::tempdir()?;
    let file = args.store.unwrap_or_else(|| folder.path().join("mail.db"));
    let client = open(file, args.redis).await?;
    let archive = folder.path().join("sent.txt");
    let service = Service::start(client, archive, args.listen, args.customers).await?;
    println!("http://{}", service.address());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let stopped = service.stop().await;
    // The last spans belong to the runs that have just ended, so the traces are the last to stop.
    let flushed = traces::stop(traces).await;
    println!("{}", stopped?);
    flushed
}

/// Opens the store. A Redis server may also keep data of other programs, so the store has a namespace of its own.
async fn open(file: PathBuf, redis: Option<String>) -> Result<DurableClient> {
    let client = match redis {
        Some(url) => {
            let mut store = RedisStore::builder(&url);
            DurableClient::open(store.namespace("mail").open().await?)
        }
        None => DurableClient::open(SqliteStore::open(file).await?),
    };
    // This connects the trace of a request with the runs of its tasks.
    Ok(client.propagating(throng_opentelemetry::Links::new()))
}
