//! A worker is killed while its tasks run.

use std::time::{Duration, Instant};

use throng::durable::{DurableHandle, StatsFilter};

use super::child::Work;
use super::job::{Job, child_of};
use super::process::until;
use super::site::{Runs, Site, outcomes};

on_all_stores! {
    its_tasks_run_again_and_no_others_do,
    a_worker_that_comes_after_its_death_takes_over,
    one_that_was_idle_all_the_time_takes_over_soon,
    parents_that_wait_run_again_and_their_children_run_once,
    the_next_run_reads_the_progress_of_the_killed_one,
    a_killed_worker_loses_only_the_statistics_that_it_has_not_sent,
}

/// With a file, an idle worker looks every two seconds whether somebody has died of whose work it does
/// not know; with a server, before its lease can be over.
const NEXT_LOOK: Duration = Duration::from_secs(3);

async fn its_tasks_run_again_and_no_others_do(site: Site) {
    let waiting = site.spawn_all(Job::Wait, 3).await;
    let mut first = site.worker(site.work()).await;
    for handle in &waiting {
        site.begun(handle.id(), &first).await;
    }
    // They end before, and with their ends the store learns that the first three have arrived.
    let others = site.spawn_all(Job::Work(1), 20).await;
    let other_ids: Vec<_> = others.iter().map(|handle| handle.id()).collect();
    outcomes(others).await;
    let second = site.worker(site.work()).await;

    first.kill();
    let killed = Instant::now();
    for handle in &waiting {
        let line = site.begun(handle.id(), &second).await;
        assert_eq!((line.attempt, line.crashes), (1, 1));
    }
    let noticed = killed.elapsed();
    assert!(noticed < site.taken_over_in(), "{noticed:?}");
    site.folder.open_gate();
    for outcome in outcomes(waiting).await {
        assert_eq!(outcome.pid, second.pid());
    }
    for id in other_ids {
        assert_eq!(site.lines("start", id).len(), 1);
    }
    let counts = site.settled().await;
    assert_eq!((counts.crashed, counts.lost, counts.retried), (3, 0, 0));
    assert_eq!((counts.claimed, counts.done), (26, 23));
}

/// Returns the numbers of runs in the statistics that have started and that have succeeded.
async fn recorded(site: &Site) -> [u64; 2] {
    let page = site.client.admin().stats(&StatsFilter::by_hour()).await;
    let rows = page.expect("the store answers").rows;
    let runs = rows.iter().map(|row| row.runs);
    let sum = runs.fold([0, 0], |[started, done], it| {
        [started + it.started, done + it.done]
    });
    assert!(sum[1] <= sum[0], "{rows:?}");
    sum
}

async fn a_killed_worker_loses_only_the_statistics_that_it_has_not_sent(site: Site) {
    let mut first = site.worker(site.work()).await;
    outcomes(site.spawn_all(Job::Work(1), 20).await).await;
    until("the runs are reported", async || {
        (recorded(&site).await == [20, 20]).then_some(())
    })
    .await;
    outcomes(site.spawn_all(Job::Work(1), 5).await).await;
    first.kill();
    let _second = site.worker(site.work()).await;
    outcomes(site.spawn_all(Job::Work(1), 7).await).await;
    until("the runs of the second worker are reported", async || {
        (recorded(&site).await[1] >= 27).then_some(())
    })
    .await;
    let counts = site.client.counts().await.expect("the store answers");
    let [_, done] = recorded(&site).await;
    assert!(
        done <= counts.done && counts.done == 32,
        "{done} of {counts:?}"
    );
}

async fn a_worker_that_comes_after_its_death_takes_over(site: Site) {
    let handle = site.spawn(Job::Wait).await;
    let mut first = site.worker(site.work()).await;
    let before = site.begun(handle.id(), &first).await;
    first.kill();

    let second = site.worker(site.work()).await;
    let ready = Instant::now();
    let line = site.begun(handle.id(), &second).await;
    let noticed = ready.elapsed();
    assert!(noticed < site.taken_over_in(), "{noticed:?}");
    assert!(line.epoch > before.epoch && line.attempt == 1, "{line:?}");
    site.folder.open_gate();
    assert_eq!(outcomes([handle]).await[0].epoch, line.epoch);
    site.settled().await;
}

/// The other has seen nothing of its work before it dies.
async fn one_that_was_idle_all_the_time_takes_over_soon(site: Site) {
    let mut workers = [
        site.worker(site.work()).await,
        site.worker(site.work()).await,
    ];
    until("both are idle", async || {
        (site.idle_workers() == 2).then_some(())
    })
    .await;
    let handle = site.spawn(Job::Wait).await;
    let start = async || site.lines("start", handle.id()).pop();
    let line = until("one has begun", start).await;
    if line.pid == workers[1].pid() {
        workers.swap(0, 1);
    }

    workers[0].kill();
    let killed = Instant::now();
    site.begun(handle.id(), &workers[1]).await;
    let noticed = killed.elapsed();
    assert!(noticed < site.taken_over_in().max(NEXT_LOOK), "{noticed:?}");
    site.folder.open_gate();
    outcomes([handle]).await;
    site.settled().await;
}

async fn parents_that_wait_run_again_and_their_children_run_once(site: Site) {
    const PARENTS: usize = 64;
    let parents = site.spawn_all(Job::Parent, PARENTS).await;
    let ids: Vec<_> = parents.iter().map(DurableHandle::id).collect();
    // It knows the type of the children as little as anybody else.
    let mut first = site.worker(site.work()).await;
    until("all children are stored", async || {
        let counts = site.counts().await;
        (counts.stored == 2 * PARENTS as u64).then_some(())
    })
    .await;
    first.kill();

    let work = site.work();
    let _second = site
        .worker(Work {
            children: true,
            ..work
        })
        .await;
    outcomes(parents).await;
    let counts = site.settled().await;
    let runs = Runs::of(&site.folder.ledger());
    for parent in ids {
        let child = child_of(parent);
        let starts = [&parent, &child].map(|id| runs.starts[id].len());
        let ends = [&parent, &child].map(|id| runs.ends[id].len());
        assert_eq!((starts, ends), ([2, 1], [1, 1]));
    }
    let ended = (counts.stored, counts.done, counts.claimed);
    assert_eq!(ended, (128, 128, 192), "{counts:?}");
    assert_eq!(counts.crashed + counts.lost, PARENTS as u64, "{counts:?}");
}

/// A stream in another process has yielded the progress before the worker is killed.
async fn the_next_run_reads_the_progress_of_the_killed_one(site: Site) {
    let handle = site.spawn(Job::ReportHalf).await;
    let mut stream = handle.progress::<u32>();
    let mut first = site.worker(site.work()).await;
    assert_eq!(stream.next().await.unwrap().unwrap(), 50);
    first.kill();
    let second = site.worker(site.work()).await;
    site.begun(handle.id(), &second).await;
    assert!(stream.next().await.is_none());
    let [outcome] = &outcomes([handle.clone()]).await[..] else {
        panic!("one task has one outcome");
    };
    assert_eq!(outcome.pid, second.pid());
    let lines = site.lines("resumed", handle.id());
    let notes: Vec<_> = lines.iter().map(|line| &*line.note).collect();
    assert_eq!(notes, ["50"]);
    site.settled().await;
}
