//! A server comes back with an older copy of its data, while its workers live.

use std::time::Duration;

use tokio::time::sleep;

use crate::child::Work;
use crate::job::Job;
use crate::keys::late_claims;
use crate::process::{Process, until};
use crate::site::{LEASED, NOTHING, Site, outcomes};

/// Half of those that run.
const HALF: usize = 32;

const WORK: Work = Work {
    max_running: HALF,
    ..LEASED
};

/// Of what runs, the copy says of one half that it runs, under leases that are over, and of the other half that
/// it waits.
#[tokio::test]
async fn what_living_workers_run_has_not_crashed() {
    needs_redis!();
    let mut site = Site::server(&NOTHING).await;
    // The first crash would end them.
    let handles = site.spawn_all_with(Job::Wait, 2 * HALF, 1).await;
    let mut workers = vec![worker_of_half(&site).await];
    site.redis().ask(&["SAVE"]);
    workers.push(worker_of_half(&site).await);
    // The leases in the copy expire.
    sleep(Duration::from_millis(WORK.lease + 1000)).await;

    site.redis().kill();
    site.redis().run();
    // It claims what waits, and then looks for leases that are over.
    workers.push(worker_of_half(&site).await);
    until("all that run are known to live", async || {
        (late_claims(site.redis()) == 0).then_some(())
    })
    .await;
    site.folder.open_gate();
    outcomes(handles).await;
    for worker in &mut workers {
        worker.stop(0).await;
    }
    let counts = site.settled().await;
    let (count, ended) = (2 * HALF as u64, (counts.stored, counts.done));
    assert_eq!(ended, (count, count), "{counts:?}");
    assert_eq!(counts.crashed, 0, "{counts:?}");
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
