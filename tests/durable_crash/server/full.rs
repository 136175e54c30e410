//! The disk of PostgreSQL is full for a while.

use std::time::Duration;

use throng::durable::{DurableClient, DurableError, TaskId};
use tokio::time::{Instant, sleep};

use crate::child::Work;
use crate::database::Database;
use crate::job::Job;
use crate::postgres_connection::ServerConnection;
use crate::postgres_server::{Disk, Server, is_root};
use crate::site::{LEASED, ON_DISK, Site, outcomes};

/// A lease that does not end meanwhile.
const WORK: Work = Work {
    lease: 10_000,
    ..LEASED
};

/// The number of tasks that are stored before the disk is full, and afterwards.
const TASKS: usize = 200;

/// The time within which a full disk must be noticed.
const NOTICED: Duration = Duration::from_secs(25);

/// Returns `true` if this process can mount a disk. Otherwise, it reports that the calling test is skipped.
fn can_mount() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can mount a disk");
    }
    is_root()
}

/// The tables are on the disk, and the log is not: the server refuses what needs space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_tables_in_postgres_is_reported_and_costs_nothing() {
    needs_postgres!();
    if !can_mount() {
        return;
    }
    let disk = Disk {
        size: "8m",
        has_all: false,
    };
    let server = Server::start_on(disk, &ON_DISK);
    let space = server.space().display().to_string();
    let connection = ServerConnection::to(server.url());
    connection.ask(&format!("CREATE TABLESPACE small LOCATION '{space}'"));
    connection.ask("ALTER ROLE throng SET default_tablespace = small");
    let errors = recovers(server, |_| {}).await;
    let last = errors.last().expect("the disk was full");
    assert!(last.is_full() && !last.is_unknown(), "{last:?}");
    let text = format!("{last:?}");
    assert!(text.contains("53100"), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
}

/// If there is no space for its log, the server ends, and is started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_everything_in_postgres_costs_nothing() {
    needs_postgres!();
    if !can_mount() {
        return;
    }
    let disk = Disk {
        size: "120m",
        has_all: true,
    };
    let limits = ["max_wal_size=32MB", "min_wal_size=32MB"];
    let settings: Vec<_> = ON_DISK.into_iter().chain(limits).collect();
    let server = Server::start_on(disk, &settings);
    let errors = recovers(server, |connection| {
        // This ends the server, and so the connection.
        let ended = connection.try_ask(FILL_LOG);
        ended.expect_err("there is no space for the log");
    });
    assert!(!errors.await.is_empty());
}

/// Writes more into the log of the server than its files have room for.
const FILL_LOG: &str = "SELECT pg_logical_emit_message(true, 'fill', repeat('x', 1000000))
    FROM generate_series(1, 100)";

/// Fills the disk, and frees it again. Every task whose spawn has succeeded ends once. Returns the errors of spawns meanwhile.
async fn recovers(server: Server, when_full: fn(&ServerConnection)) -> Vec<DurableError> {
    // A server whose disk is full may refuse a new connection.
    let connection = ServerConnection::to(server.url());
    let site = Site::of_database(Database::of(server)).await;
    let mut workers = [site.worker(WORK).await, site.worker(WORK).await];
    let mut stored = Vec::new();
    for _ in 0..TASKS {
        stored.push(spawn(&site.client).await.expect("there is space"));
    }
    site.postgres().server().fill_disk();
    when_full(&connection);
    drop(connection);
    let (mut errors, end) = (Vec::new(), Instant::now() + NOTICED);
    while errors.is_empty() {
        assert!(
            Instant::now() < end,
            "the disk is not full: {}",
            stored.len()
        );
        match spawn(&site.client).await {
            Ok(id) => stored.push(id),
            Err(error) => errors.push(error),
        }
    }
    site.postgres().server().free_disk();
    site.postgres().server().revive();
    for _ in 0..TASKS {
        stored.push(spawn_in_the_end(&site.client).await);
    }
    let handles = stored.iter().map(|&id| site.client.attach::<Job>(id));
    outcomes(handles).await;
    site.assert_ran_once(&stored);
    println!(
        "{} tasks, of which each was stored and has ended: {errors:?}",
        stored.len()
    );
    for worker in &mut workers {
        worker.stop(0).await;
    }
    let counts = site.settled().await;
    assert_eq!(counts.done, counts.stored, "{counts:?}");
    assert_eq!(counts.claimed, counts.stored, "{counts:?}");
    site.ends(0).await;
    errors
}

async fn spawn(client: &DurableClient) -> Result<TaskId, DurableError> {
    let stored = client.spawn(Job::Work(1)).await;
    stored.map(|handle| handle.id())
}

async fn spawn_in_the_end(client: &DurableClient) -> TaskId {
    let end = Instant::now() + NOTICED;
    loop {
        match spawn(client).await {
            Ok(id) => return id,
            Err(error) => assert!(Instant::now() < end, "{error:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}
