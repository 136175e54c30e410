//! A server comes back with nothing.

use std::time::Duration;

use throng::durable::{DurableHandle, SpawnOptions, TaskId};
use tokio::task::JoinSet;

use crate::child::nth_id;
use crate::job::{Job, Outcome};
use crate::process::until;
use crate::site::{LEASED, NOTHING, Site, outcomes};
use crate::support::within;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_and_workers_go_on_with_what_is_new() {
    needs_redis!();
    let mut site = Site::server(&NOTHING).await;
    let mut workers = [site.worker(LEASED).await, site.worker(LEASED).await];
    // Some of them run, some wait.
    let lost = site.spawn_all(Job::Finish, 20).await;
    until("as many run as can", async || {
        (site.folder.ledger().len() == 8).then_some(())
    })
    .await;
    let later = SpawnOptions::new().delay(Duration::from_secs(3600));
    let delayed = site.spawn_with(Job::Work(1), later).await;
    let mut awaited = JoinSet::new();
    for handle in lost.into_iter().chain([delayed]) {
        awaited.spawn(handle.into_future());
    }

    site.redis().kill();
    site.redis().run();
    let ids: Vec<_> = (0..50).map(nth_id).collect();
    let new = spawn_again_and_again(&site, &ids).await;
    while let Some(ended) = within(awaited.join_next()).await {
        let error = ended.expect("nobody panics").expect_err("nobody knows it");
        assert!(error.is_expired(), "{error:?}");
    }
    outcomes(new).await;
    site.assert_ran_once(&ids);
    for worker in &mut workers {
        worker.stop(0).await;
    }
    let counts = site.settled().await;
    assert_eq!(
        (counts.stored, counts.done, counts.claimed),
        (50, 50, 50),
        "{counts:?}"
    );
    site.ends(0).await;
}

/// Stores tasks. Nobody can say of a request that has met the end of its session whether it has had an
/// effect: then they are stored again, under the same ids.
async fn spawn_again_and_again(site: &Site, ids: &[TaskId]) -> Vec<DurableHandle<Outcome>> {
    let job = |&id| (Job::Work(1), SpawnOptions::new().id(id));
    until("they are stored", async || {
        match site.client.spawn_all_with(ids.iter().map(job)).await {
            Ok(handles) => Some(handles),
            Err(error) if error.is_unknown() => None,
            Err(error) => panic!("{error:?}"),
        }
    })
    .await
}
