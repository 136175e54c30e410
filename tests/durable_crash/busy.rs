//! Tasks block all threads of a worker.

use super::child::{THREADS, Work};
use super::job::Job;
use super::site::{LEASED, Site, outcomes};

on_all_stores! {
    its_leases_are_renewed_all_the_same,
    its_tasks_are_given_to_others_if_that_is_over_the_limit,
}

/// In milliseconds.
const LEASE: u64 = 600;

const BRIEF: Work = Work {
    lease: LEASE,
    ..LEASED
};

async fn its_leases_are_renewed_all_the_same(site: Site) {
    let handles = site.spawn_all(Job::Block(4 * LEASE), THREADS).await;
    let ids: Vec<_> = handles.iter().map(|handle| handle.id()).collect();
    let first = site.worker(BRIEF).await;
    for &id in &ids {
        site.begun(id, &first).await;
    }
    let _second = site.worker(BRIEF).await;
    for outcome in outcomes(handles).await {
        assert_eq!(outcome.pid, first.pid());
    }
    assert!(ids.iter().all(|&id| site.lines("start", id).len() == 1));
    let counts = site.settled().await;
    assert_eq!(counts.claimed as usize, THREADS, "{counts:?}");
}

async fn its_tasks_are_given_to_others_if_that_is_over_the_limit(site: Site) {
    let handles = site.spawn_all(Job::BlockWait, THREADS).await;
    let ids: Vec<_> = handles.iter().map(|handle| handle.id()).collect();
    let mut first = site
        .worker(Work {
            stall_limit: 100,
            ..BRIEF
        })
        .await;
    for &id in &ids {
        site.begun(id, &first).await;
    }
    let second = site.worker(BRIEF).await;
    for &id in &ids {
        site.begun(id, &second).await;
    }
    site.folder.open_gate();
    for outcome in outcomes(handles).await {
        assert_eq!(outcome.pid, second.pid());
    }
    first.stop(0).await;
    assert_ne!(first.wait_for_line("late ").await, "0");
    let counts = site.settled().await;
    assert_eq!(counts.done as usize, THREADS, "{counts:?}");
}
