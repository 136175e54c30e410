//! A mail service: two customers, a provider that limits the rate, a nightly report, and a deployment of the next release.
//!
//! ```sh
//! cargo run --features sqlite,redis,cron --example queue -- [--redis | --store FILE_OR_URL]
//! ```
//!
//! Each mail is a task of the queue `mail`. The tasks are kept in a SQLite file or, with `--redis`, in a redis-server that ends with
//! this program. The program shows the following:
//!
//! - *Groups.* The first customer sends many mails, and the second customer sends fewer mails afterwards. The mails of each customer
//!   form a group. Groups take turns, so the second customer does not wait for the first one.
//! - *A rate.* The provider accepts 50 mails per second, and the queue has this rate, which holds for all processes together.
//! - *A hold.* The provider asks for a break in the mails of one customer. Then only the group of this customer waits, and the other one goes on.
//! - *A key.* A user asks three times for a mail that resets a password. The three tasks have the same key, so one mail is sent.
//! - *A schedule.* It stores a task every night, which writes a report. A night takes two seconds in this example.
//! - *A deployment.* A process of the next release starts, and then the process of the old release ends. No mail is lost or sent twice.
//!
//! The program takes about ten seconds, and fails if any of these statements is false. While it runs, you can start more workers
//! yourself: `queue --store FILE_OR_URL worker --release 2 --provider ADDRESS`.

#[path = "queue/board.rs"]
mod board;
#[path = "queue/provider.rs"]
mod provider;
#[path = "queue/release.rs"]
mod release;
#[path = "durable_redis/server.rs"]
mod server;
#[path = "queue/worker.rs"]
mod worker;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use throng::durable::{
    DurableClient, DurableError, DurableHandle, Groups, Key, QueueSettings, Rate, RedisStore,
    SpawnOptions, SqliteStore,
};
use tokio::signal::ctrl_c;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use self::board::Board;
use self::provider::Provider;
use self::release::{MAIL, SendMail, work};
use self::server::Server;
use self::worker::Worker;

/// Sends the mails of two customers, who take turns, at a limited rate. A schedule writes reports, and a new release is deployed.
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
        /// The address of the mail provider
        #[arg(long)]
        provider: SocketAddr,
    },
}

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// The customers, and the number of mails that each of them sends.
const CUSTOMERS: [(&str, usize); 2] = [("acme", 250), ("bob's shop", 60)];
/// The number of mails per second that the provider accepts.
const RATE: u32 = 50;
/// The number of mails that may be sent at once if none were sent for a while.
const BURST: u32 = 10;
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
        (Some(Role::Worker { release, provider }), Some(store)) => {
            work(open(&store).await?, release, provider).await
        }
        (Some(Role::Worker { .. }), None) => Err("a worker needs --store".into()),
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

/// Opens the store in a SQLite file or in a Redis server, which may also keep data of other programs.
async fn open(store: &str) -> Result<DurableClient, DurableError> {
    match store.contains("://") {
        true => {
            let mut store = RedisStore::builder(store);
            Ok(DurableClient::open(store.namespace("queue").open().await?))
        }
        false => Ok(DurableClient::open(SqliteStore::open(store).await?)),
    }
}

// ===== The demonstration =====

async fn demonstrate(client: DurableClient, store: &str) -> Result<()> {
    let [(first, many), (second, few)] = CUSTOMERS;
    println!(
        "{first} sends {many} mails, and {second} then sends {few}. The provider accepts {RATE} mails per second."
    );
    let (sender, events) = unbounded_channel();
    let provider = Provider::start(sender.clone()).await?;
    limit(&client).await?;
    let old = Worker::start(1, store, provider.address, &sender).await?;
    let mails = spawn_mails(&client).await?;
    let board = Board::new(&CUSTOMERS, mails.len());
    let shown = tokio::spawn(show(events, board));
    let sent = async {
        half_sent(&provider, mails.len()).await;
        let new = deploy(store, &provider, old, &sender).await?;
        for mail in mails {
            mail.await?;
        }
        report(&client).await?;
        new.finish().await
    };
    timeout(MAX_DURATION, sent).await??;
    let address = provider.address;
    let audit = provider.finish();
    drop(sender);
    let board = shown.await?;
    println!("The provider at {address} reports: {audit}.");
    audit.check()?;
    board.check()
}

/// Sets the limits of the queue, which hold for all processes together.
async fn limit(client: &DurableClient) -> Result<()> {
    let settings = QueueSettings::new()
        .rate(Rate::per_second(RATE).burst(BURST))
        .grouped(Groups::new());
    client.queue(MAIL).set(settings).await?;
    Ok(())
}

/// Stores the mails: those of the first customer, then those of the second one, and then the mail that resets a password.
async fn spawn_mails(client: &DurableClient) -> Result<Vec<DurableHandle<()>>> {
    let mut mails = Vec::new();
    for (customer, count) in CUSTOMERS {
        let all = (1..=count).map(|number| {
            let mail = SendMail {
                customer: customer.into(),
                to: format!("reader-{number}@example.org"),
            };
            (mail, SpawnOptions::new().group(customer))
        });
        mails.extend(client.spawn_all_with(all).await?);
    }
    for _ in 0..3 {
        let reset = SendMail {
            customer: CUSTOMERS[1].0.into(),
            to: "forgetful@example.org".into(),
        };
        let options = SpawnOptions::new().group(CUSTOMERS[1].0);
        let mail = client
            .spawn_with(reset, options.key(Key::new("reset")))
            .await?;
        // A handle that was joined awaits a task that is counted already.
        if !mail.was_joined() {
            mails.push(mail);
        }
    }
    Ok(mails)
}

/// Waits until half of the mails are sent.
async fn half_sent(provider: &Provider, mails: usize) {
    let mut sent = provider.sent();
    // An error means that the provider has ended, but it lives for longer than this function.
    sent.wait_for(|&sent| 2 * sent >= mails).await.ok();
}

/// Starts a process of the next release, and then ends the process of the old one.
async fn deploy(
    store: &str,
    provider: &Provider,
    old: Worker,
    events: &UnboundedSender<Event>,
) -> Result<Worker> {
    let new = Worker::start(2, store, provider.address, events).await?;
    old.finish().await?;
    Ok(new)
}

/// Checks that the new release has defined the nightly report, and has the report written once more.
async fn report(client: &DurableClient) -> Result<()> {
    let schedules = client.schedules();
    let info = schedules
        .get(release::NIGHTLY)
        .await?
        .ok_or("no schedule")?;
    ensure(
        info.revision == 2,
        "the new release has not defined the report",
    )?;
    let id = schedules
        .fire_now(release::NIGHTLY)
        .await?
        .ok_or("no schedule")?;
    client.attach::<release::Report>(id).await?;
    Ok(())
}

/// An event of the provider or of a worker.
#[derive(Debug)]
enum Event {
    /// A mail of this customer was delivered.
    Sent(String),
    /// The provider asks for a break for this customer.
    Refused(String),
    /// A worker of this release has started.
    Began(u32),
    /// A worker of this release has ended.
    Ended(u32),
    /// The report of this tick was written.
    Reported { tick: String, text: String },
}

/// Shows the events until the program ends.
async fn show(mut events: UnboundedReceiver<Event>, mut board: Board) -> Board {
    while let Some(event) = events.recv().await {
        board.show(event);
    }
    board
}

fn ensure(holds: bool, otherwise: &str) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(otherwise.into()),
    }
}
