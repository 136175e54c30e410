//! A task takes each of its workers along.

use rustix::process::Signal;
use throng::durable::{DeadFilter, DeadReason, DurableHandle, SpawnOptions, Status};

use super::job::{Job, Outcome};
use super::process::{Process, until};
use super::site::{Site, outcomes};
use super::support::within;

on_both_stores! {
    it_ends_as_a_dead_letter_and_all_others_end_well,
    it_takes_no_neighbour_along,
    one_that_kills_later_costs_as_many,
}

async fn it_ends_as_a_dead_letter_and_all_others_end_well(site: Site) {
    it_costs(site, Job::Abort, 2, 1000).await;
}

/// Those that run beside it are not to blame, and it may cost as many workers as each of them may.
async fn it_takes_no_neighbour_along(site: Site) {
    it_costs(site, Job::Abort, 3, 3).await;
}

/// When its lease has been renewed.
async fn one_that_kills_later_costs_as_many(site: Site) {
    it_costs(site, Job::AbortAfter(400), 3, 3).await;
}

/// Checks how the pill ends among other tasks, and how many workers it costs. `others` is `max_crashes` of the
/// other tasks.
async fn it_costs(site: Site, pill: Job, max_crashes: u32, others: u32) {
    let before = site.spawn_all_with(Job::Work(1), 5, others).await;
    let options = SpawnOptions::new().max_crashes(max_crashes);
    let poison = site.spawn_with(pill, options).await;
    let after = site.spawn_all_with(Job::Work(1), 20, others).await;

    let mut crashes = 0;
    let mut worker = site.worker(site.brief_work()).await;
    while !ends_by(&poison, &mut worker).await {
        crashes += 1;
        assert!(crashes <= max_crashes, "{crashes}");
        worker = site.worker(site.brief_work()).await;
    }
    assert_eq!(crashes, max_crashes);
    assert_eq!(site.lines("start", poison.id()).len(), crashes as usize);

    outcomes(before.into_iter().chain(after)).await;
    let error = within(poison).await.expect_err("it is dead");
    assert_eq!(error.dead_reason(), Some(DeadReason::Crashes));
    let letters = site.client.dead_letters().list(DeadFilter::all(), 10).await;
    let letters = letters.expect("an answer");
    assert_eq!(letters.len(), 1, "{letters:?}");
    // Of the first death, nobody may know whether the worker ran it.
    let seen = letters[0].crashes;
    assert!([max_crashes - 1, max_crashes].contains(&seen), "{seen}");
    assert_eq!(letters[0].failures, 0);
    let counts = site.settled().await;
    assert_eq!((counts.done, counts.dead), (25, 1), "{counts:?}");
}

/// Waits until a task is a dead letter; or, and that is no, a worker has aborted.
async fn ends_by(task: &DurableHandle<Outcome>, worker: &mut Process) -> bool {
    let is_dead = until("the task or the worker has died", async || {
        let status = task.status().await.expect("an answer");
        let is_dead = status == Status::Dead;
        (is_dead || worker.is_over()).then_some(is_dead)
    });
    let is_dead = is_dead.await;
    if !is_dead {
        worker.was_killed_by(Signal::ABORT).await;
    }
    is_dead
}
