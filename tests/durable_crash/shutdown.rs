//! A worker is told to stop.

use std::time::{Duration, Instant};

use throng::durable::{DurableExecutor, StopReason};

use super::job::Job;
use super::process::until;
use super::site::{EVERYSEC, PATIENT, Site, outcomes};

on_all_stores! {
    what_it_does_not_finish_others_begin_at_once,
    one_that_has_ended_keeps_no_wake_up_from_others,
}

/// In milliseconds.
const GRACE: u64 = 200;

async fn what_it_does_not_finish_others_begin_at_once(site: Site) {
    let finished = site.spawn(Job::Finish).await;
    let given_up = site.spawn(Job::GiveUp).await;
    let deaf = site.spawn(Job::Wait).await;
    let mut first = site.worker(PATIENT).await;
    for id in [finished.id(), given_up.id(), deaf.id()] {
        site.begun(id, &first).await;
    }
    let second = site.worker(PATIENT).await;

    first.tell_to_stop(GRACE);
    // One is given back when it ends, and one when the grace is over.
    let told = Instant::now();
    site.did(
        &format!("{:?}", StopReason::Shutdown),
        given_up.id(),
        &first,
    )
    .await;
    let mut lines = Vec::new();
    let mut times = Vec::new();
    for id in [given_up.id(), deaf.id()] {
        lines.push(site.begun(id, &second).await);
        times.push(told.elapsed());
    }
    first.wait_for_line("stopped").await;
    times.push(told.elapsed());
    assert!(times.iter().all(|&time| time < site.soon()), "{times:?}");
    for line in lines {
        assert_eq!((line.attempt, line.crashes), (1, 0), "{line:?}");
    }
    assert_eq!(outcomes([finished]).await[0].pid, first.pid());
    assert!(first.died().await.success());

    site.folder.open_gate();
    for outcome in outcomes([given_up, deaf]).await {
        assert_eq!(outcome.pid, second.pid());
    }
    let counts = site.settled().await;
    assert_eq!((counts.claimed, counts.done, counts.released), (5, 3, 2));
}

/// A process whose executor has ended can go on, and spawn tasks for others.
async fn one_that_has_ended_keeps_no_wake_up_from_others(site: Site) {
    let worker = site.worker(PATIENT).await;
    let executor = DurableExecutor::builder(site.client.clone())
        .register::<Job>()
        .start(site.folder.clone())
        .await
        .expect("an executor");
    until("both are idle", async || {
        (site.idle_workers() == 2).then_some(())
    })
    .await;
    executor.shutdown(Duration::ZERO).await;

    let spawned = Instant::now();
    let handle = site.spawn(Job::Work(1)).await;
    assert_eq!(outcomes([handle]).await[0].pid, worker.pid());
    assert!(spawned.elapsed() < site.soon(), "{:?}", spawned.elapsed());
}

/// For how long a worker may go on that is told to stop while its server is away: its grace, which is two seconds, two
/// more for what it has to say to the server, and as much again for a machine that has much else to do.
const STOPPED_WITHIN: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_worker_ends_in_time_when_its_server_is_killed() {
    needs_redis!();
    ends_in_time_without(Site::server(&EVERYSEC).await, Site::kill_server).await;
}

#[tokio::test]
async fn a_worker_ends_in_time_when_its_server_stands_still() {
    needs_redis!();
    ends_in_time_without(Site::server(&EVERYSEC).await, Site::freeze_server).await;
}

#[tokio::test]
async fn a_worker_ends_in_time_when_postgres_is_killed() {
    needs_postgres!();
    ends_in_time_without(Site::durable_database().await, Site::kill_server).await;
}

#[tokio::test]
async fn a_worker_ends_in_time_when_postgres_stands_still() {
    needs_postgres!();
    ends_in_time_without(Site::durable_database().await, Site::freeze_server).await;
}

async fn ends_in_time_without(mut site: Site, take_away: fn(&mut Site)) {
    let task = site.spawn(Job::Wait).await;
    let mut worker = site.worker(PATIENT).await;
    site.begun(task.id(), &worker).await;
    take_away(&mut site);
    worker.tell_to_stop(2000);
    let told = Instant::now();
    worker.wait_for_line("stopped").await;
    let needed = told.elapsed();
    println!("it has stopped after {needed:?}");
    assert!(needed < STOPPED_WITHIN, "{needed:?}");
    assert!(worker.died().await.success());
}
