//! PostgreSQL fails over to a standby, which may not have received the last that the primary has answered.

use std::time::Duration;

use throng::durable::{DurableHandle, SpawnOptions};
use tokio::time::{Instant, sleep};

use crate::child::Work;
use crate::database::Database;
use crate::job::{Job, Outcome};
use crate::load::Load;
use crate::postgres_connection::ServerConnection;
use crate::postgres_server::Server;
use crate::process::{Process, until};
use crate::site::{LEASED, ON_DISK, Site, outcomes};
use crate::support::{rounds, within};

/// A primary, which holds the store of a site, and its standby.
struct Pair {
    site: Site,
    standby: Option<Server>,
}

impl Pair {
    /// With `sync`, the primary answers a COMMIT when the standby has it on its disk.
    async fn new(sync: bool) -> Self {
        let primary = Server::start_with(&ON_DISK);
        let standby = primary.start_standby(&ON_DISK);
        let connection = ServerConnection::to(primary.url());
        until("the standby receives what the primary writes", async || {
            let state = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            (connection.number(state) == 1).then_some(())
        })
        .await;
        let names = if sync { "*" } else { "" };
        // The standby has no such setting: it would wait for a standby of its own.
        connection.ask(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
        ));
        connection.ask("SELECT pg_reload_conf()");
        let both = [&primary, &standby].map(|server| server.folder().display().to_string());
        let url = format!(
            "host={} user=throng dbname=postgres target_session_attrs=read-write",
            both.join(",")
        );
        Self {
            site: Site::of_database_at(Database::of(primary), url).await,
            standby: Some(standby),
        }
    }

    fn standby(&self) -> &Server {
        self.standby.as_ref().expect("it is not the primary yet")
    }

    /// Waits until the standby has everything, and has it receive nothing more.
    async fn separate(&self) {
        let primary = ServerConnection::to(self.site.postgres().server().url());
        let standby = ServerConnection::to(self.standby().url());
        let written = primary.ask("SELECT pg_current_wal_lsn()").concat().concat();
        let has = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::int");
        until("the standby has everything", async || {
            (standby.number(&has) == 1).then_some(())
        })
        .await;
        standby.ask("ALTER SYSTEM SET primary_conninfo = ''");
        standby.ask("SELECT pg_reload_conf()");
        let receives = "SELECT count(*) FROM pg_stat_wal_receiver";
        until("the standby receives nothing", async || {
            (standby.number(receives) == 0).then_some(())
        })
        .await;
    }

    /// Kills the primary, and has the standby take its place.
    fn fail_over(&mut self) {
        self.site.postgres().server().kill();
        let standby = self.standby.take().expect("it is not the primary yet");
        ServerConnection::to(standby.url()).ask("SELECT pg_promote()");
        drop(self.site.fail_over(standby));
    }
}

/// The time within which all processes work again. While there is no primary, the pauses between two attempts grow to two seconds.
const REST: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_postgres_if_the_standby_is_synchronous() {
    needs_postgres!();
    let mut pair = Pair::new(true).await;
    let work = Work {
        lease: 10_000,
        ..LEASED
    };
    let mut workers = [pair.site.worker(work).await, pair.site.worker(work).await];
    let make = || (Job::Work(5), SpawnOptions::new());
    let mut load = Load::start(&pair.site.client, 4, make);
    load.goes_on(rounds(300, 3000)).await;
    pair.fail_over();
    let promoted = Instant::now();
    load.goes_on(1).await;
    let needed = promoted.elapsed();
    println!("all work again {needed:?} after the standby has become the primary");
    assert!(needed < REST, "{needed:?}");
    load.goes_on(200).await;
    load.ends_well(pair.site, &mut workers).await;
}

/// Half of the tasks that run.
const HALF: usize = 16;

const WORK: Work = Work {
    max_running: HALF,
    ..LEASED
};

/// The standby knows that one half of the tasks runs, under leases that are over. It does not know that the other half runs, and some tasks
/// it does not know at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_living_workers_run_has_not_crashed_in_postgres_and_the_rest_is_fenced() {
    needs_postgres!();
    let mut pair = Pair::new(false).await;
    // The first crash would end them.
    let handles = pair.site.spawn_all_with(Job::Wait, 2 * HALF, 1).await;
    let mut workers = vec![worker_of_half(&pair.site).await];
    pair.separate().await;
    workers.push(worker_of_half(&pair.site).await);
    let lost = pair.site.spawn_all(Job::Work(1), 10).await;
    // The leases of which the standby knows expire.
    sleep(Duration::from_millis(WORK.lease + 1000)).await;

    pair.fail_over();
    let site = pair.site;
    assert_lost(lost).await;
    let second = workers[1].pid();
    workers.push(site.worker(WORK).await);
    let taken_over = taken_over(&site, &handles, second).await;
    site.folder.open_gate();
    assert_fenced(&taken_over, outcomes(handles).await);
    for worker in &mut workers {
        worker.stop(0).await;
    }
    assert_ne!(workers[1].wait_for_line("late ").await, "0");
    let counts = site.settled().await;
    let (count, ended) = (2 * HALF as u64, (counts.stored, counts.done));
    assert_eq!(ended, (count, count), "{counts:?}");
    assert_eq!(counts.crashed, 0, "{counts:?}");
    site.ends(0).await;
}

/// Nobody knows the tasks that the standby has not received, and those who await them are told.
async fn assert_lost(handles: Vec<DurableHandle<Outcome>>) {
    for handle in handles {
        let error = within(handle).await.expect_err("nobody knows it");
        assert!(error.is_expired(), "{error:?}");
    }
}

/// Starts a worker, and waits until it runs as many tasks as it can.
async fn worker_of_half(site: &Site) -> Process {
    let worker = site.worker(WORK).await;
    until("it runs its half", async || {
        let ledger = site.folder.ledger();
        let begun = ledger.iter().filter(|line| line.pid == worker.pid());
        (begun.count() >= HALF).then_some(())
    })
    .await;
    worker
}

/// Waits until the tasks that a process runs, without a lease in the new primary, run again. Returns the epochs of that process.
async fn taken_over(site: &Site, handles: &[DurableHandle<Outcome>], pid: u32) -> Vec<u64> {
    let mut epochs = Vec::new();
    for handle in handles {
        let starts = site.lines("start", handle.id());
        let Some(first) = starts.iter().find(|line| line.pid == pid) else {
            continue;
        };
        epochs.push(first.epoch);
        let again = until("it runs again", async || {
            let starts = site.lines("start", handle.id());
            starts.into_iter().find(|line| line.epoch != first.epoch)
        });
        let again = again.await;
        assert!(again.epoch > first.epoch, "{first:?}, {again:?}");
        assert_eq!((again.attempt, again.crashes), (1, 0), "{again:?}");
    }
    assert_eq!(epochs.len(), HALF);
    epochs
}

/// No task has ended with the output of a run whose claim the new primary does not know.
fn assert_fenced(lost_epochs: &[u64], outcomes: Vec<Outcome>) {
    for outcome in outcomes {
        assert!(!lost_epochs.contains(&outcome.epoch), "{outcome:?}");
    }
}
