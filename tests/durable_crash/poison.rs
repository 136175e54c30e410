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
}

async fn it_ends_as_a_dead_letter_and_all_others_end_well(site: Site) {
    it_costs_at_most(site, 2, 1000).await;
}

/// Those that run beside it are not to blame, and it may cost as many workers as each of them may.
async fn it_takes_no_neighbour_along(site: Site) {
    it_costs_at_most(site, 3, 3).await;
}

/// How it ends that is among others, and how many workers it may cost, and each of those.
async fn it_costs_at_most(site: Site, max_crashes: u32, others: u32) {
    let before = site.spawn_all_with(Job::Work(1), 5, others).await;
    let options = SpawnOptions::new().max_crashes(max_crashes);
    let poison = site.spawn_with(Job::Abort, options).await;
    let after = site.spawn_all_with(Job::Work(1), 20, others).await;

    let mut crashes = 0;
    let mut worker = site.worker(site.brief_work()).await;
    while !ends_by(&poison, &mut worker).await {
        crashes += 1;
        // One that it may not cost any more, and at most one of which nobody knows whether it ran it.
        assert!(crashes <= max_crashes + 2, "{crashes}");
        worker = site.worker(site.brief_work()).await;
    }
    assert!(crashes > max_crashes, "{crashes}");
    assert_eq!(site.lines("start", poison.id()).len(), crashes as usize);

    outcomes(before.into_iter().chain(after)).await;
    let error = within(poison).await.expect_err("it is dead");
    assert_eq!(error.dead_reason(), Some(DeadReason::Crashes));
    let letters = site.client.dead_letters().list(DeadFilter::all(), 10).await;
    let letters = letters.expect("an answer");
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(
        (letters[0].crashes, letters[0].failures),
        (max_crashes + 1, 0)
    );
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
