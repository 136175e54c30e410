//! A server stands still, for longer than a lease.

use std::time::Duration;

use throng::durable::DurableHandle;
use tokio::time::sleep;

use crate::child::Work;
use crate::job::Job;
use crate::process::until;
use crate::site::{EVERYSEC, LEASED, Site, outcomes};
use crate::support::rounds;

/// The lease, in milliseconds. In the long run, it is what it is by default.
fn long_lease() -> u64 {
    rounds(6000, 10_000) as u64
}

/// It does not matter how often: what a worker that lives has is not taken from it, nor is it to blame.
#[tokio::test]
async fn workers_that_live_keep_their_tasks() {
    needs_redis!();
    keep_their_tasks(Site::server_within(&EVERYSEC, long_lease() / 2).await).await;
}

#[tokio::test]
async fn workers_that_live_keep_their_tasks_in_postgres() {
    needs_postgres!();
    keep_their_tasks(Site::durable_database_within(long_lease() / 2).await).await;
}

async fn keep_their_tasks(mut site: Site) {
    let lease = long_lease();
    let away = Duration::from_millis(lease + lease / 5);
    let work = Work {
        max_running: 8,
        lease,
        ..LEASED
    };
    let mut workers = [site.worker(work).await, site.worker(work).await];
    // Some can be run besides.
    let handles = site.spawn_all(Job::Wait, 12).await;
    let mut ids: Vec<_> = handles.iter().map(DurableHandle::id).collect();
    until("all run", async || {
        (site.folder.ledger().len() >= handles.len()).then_some(())
    })
    .await;
    for _ in 0..rounds(1, 4) {
        let stored = site.spawn_all(Job::Work(1), 20).await;
        ids.extend(stored.iter().map(DurableHandle::id));
        outcomes(stored).await;
        site.freeze_server();
        sleep(away).await;
        site.thaw_server();
    }
    // A worker that polls for tasks also checks for leases that are over.
    let last = site.spawn_all(Job::Work(1), 20).await;
    ids.extend(last.iter().map(DurableHandle::id));
    outcomes(last).await;
    // By then, a claim that was suspected would have been taken back.
    sleep(Duration::from_millis(lease)).await;
    site.folder.open_gate();
    outcomes(handles).await;
    site.assert_ran_once(&ids);
    let counts = site.settled().await;
    let count = ids.len() as u64;
    assert_eq!((counts.claimed, counts.done), (count, count), "{counts:?}");
    for worker in &mut workers {
        worker.stop(0).await;
    }
    site.ends(0).await;
}

const LEASE: u64 = 1000;

/// However short leases are: if one is over because the server stood still, nobody has crashed.
#[tokio::test]
async fn workers_that_live_have_not_crashed() {
    needs_redis!();
    have_not_crashed(Site::server_within(&EVERYSEC, LEASE / 2).await).await;
}

#[tokio::test]
async fn workers_that_live_have_not_crashed_in_postgres() {
    needs_postgres!();
    have_not_crashed(Site::durable_database_within(LEASE / 2).await).await;
}

async fn have_not_crashed(mut site: Site) {
    const RUN: usize = 64;
    let work = Work {
        // More than can run, however often tasks are taken from their workers.
        max_running: 10 * RUN,
        lease: LEASE,
        ..LEASED
    };
    let mut workers = [site.worker(work).await, site.worker(work).await];
    // The first crash would end them.
    let handles = site.spawn_all_with(Job::Wait, RUN, 1).await;
    until("all run", async || {
        (site.folder.ledger().len() >= RUN).then_some(())
    })
    .await;
    for _ in 0..4 {
        site.freeze_server();
        sleep(Duration::from_millis(LEASE + LEASE / 2)).await;
        site.thaw_server();
        // A worker that looks for tasks also looks for expired leases.
        outcomes(site.spawn_all_with(Job::Work(1), 8, 1).await).await;
    }
    site.folder.open_gate();
    outcomes(handles).await;
    for worker in &mut workers {
        worker.stop(0).await;
    }
    let counts = site.settled().await;
    let (count, ended) = (RUN as u64 + 32, (counts.stored, counts.done));
    assert_eq!(ended, (count, count), "{counts:?}");
    assert_eq!(counts.crashed, 0, "{counts:?}");
}
