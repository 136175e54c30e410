//! A task takes each of its workers along.

use rustix::process::Signal;
use throng::durable::{DeadFilter, DeadReason, DurableHandle, SpawnOptions, Status};

use super::child::{Role, Work};
use super::job::{Job, Outcome};
use super::process::{Process, until};
use super::site::{Site, outcomes};
use super::support::{Numbers, rounds, within};

on_all_stores! {
    it_ends_as_a_dead_letter_and_all_others_end_well,
    it_takes_no_neighbour_along,
    one_that_kills_later_costs_as_many,
    with_one_permit_it_costs_as_many_whenever_it_kills,
    with_64_permits_it_costs_as_many_whenever_it_kills,
    a_neighbour_is_never_to_blame,
}

async fn it_ends_as_a_dead_letter_and_all_others_end_well(site: Site) {
    it_costs(&site, Job::Abort, 2, 1000, site.brief_work()).await;
}

/// Those that run beside it are not to blame, and it may cost as many workers as each of them may.
async fn it_takes_no_neighbour_along(site: Site) {
    it_costs(&site, Job::Abort, 3, 3, site.brief_work()).await;
}

/// When its lease has been renewed.
async fn one_that_kills_later_costs_as_many(site: Site) {
    it_costs(&site, Job::AbortAfter(600), 3, 3, site.brief_work()).await;
}

async fn with_one_permit_it_costs_as_many_whenever_it_kills(site: Site) {
    it_costs_three_whenever_it_kills(&site, 1).await;
}

async fn with_64_permits_it_costs_as_many_whenever_it_kills(site: Site) {
    it_costs_three_whenever_it_kills(&site, 64).await;
}

/// At once, when the store may not know yet that the claim has arrived, and when its lease has been renewed.
async fn it_costs_three_whenever_it_kills(site: &Site, max_running: usize) {
    let work = Work {
        max_running,
        ..site.brief_work()
    };
    for pill in [0, 1, 600].map(Job::AbortAfter) {
        it_costs(site, pill, 3, 3, work).await;
    }
}

/// Checks how the pill ends among other tasks, and how many workers it costs. `others` is `max_crashes` of the
/// other tasks.
async fn it_costs(site: &Site, pill: Job, max_crashes: u32, others: u32, work: Work) {
    let earlier = site.counts().await;
    let before = site.spawn_all_with(Job::Work(1), 5, others).await;
    let options = SpawnOptions::new().max_crashes(max_crashes);
    let poison = site.spawn_with(pill, options).await;
    let after = site.spawn_all_with(Job::Work(1), 20, others).await;

    let mut crashes = 0;
    let mut worker = start_worker(site, work);
    while !ends_by(&poison, &mut worker).await {
        crashes += 1;
        assert!(crashes <= max_crashes, "{crashes}");
        worker = start_worker(site, work);
    }
    assert_eq!(crashes, max_crashes);
    assert_eq!(site.lines("start", poison.id()).len(), crashes as usize);

    outcomes(before.into_iter().chain(after)).await;
    let id = poison.id();
    let error = within(poison).await.expect_err("it is dead");
    assert_eq!(error.dead_reason(), Some(DeadReason::Crashes));
    let dead_letters = site.client.dead_letters().list(DeadFilter::all(), 10).await;
    let mut dead_letters = dead_letters.expect("an answer");
    dead_letters.retain(|dead_letter| dead_letter.id == id);
    assert_eq!(dead_letters.len(), 1, "{dead_letters:?}");
    // Of the first death, nobody may know whether the worker ran it.
    let seen = dead_letters[0].crashes;
    assert!([max_crashes - 1, max_crashes].contains(&seen), "{seen}");
    assert_eq!(dead_letters[0].failures, 0);
    let counts = site.settled().await;
    let ended = (counts.done - earlier.done, counts.dead - earlier.dead);
    assert_eq!(ended, (25, 1), "{counts:?}");
}

/// The tasks that run beside a pill, at the time at which it kills one of two workers.
async fn a_neighbour_is_never_to_blame(site: Site) {
    let work = Work {
        max_running: 64,
        ..site.brief_work()
    };
    let mut workers = [site.worker(work).await, site.worker(work).await];
    let seed = u64::from(std::process::id());
    println!("begins with {seed}");
    let mut numbers = Numbers::new(seed);
    for _ in 0..rounds(4, 1000) {
        let mut jobs: Vec<_> = (0..30).map(|_| Job::Work(numbers.below(60))).collect();
        let index = numbers.below(jobs.len() as u64) as usize;
        jobs.insert(index, Job::AbortAfter(numbers.below(60)));
        let mut handles = site.client.spawn_all(jobs).await.expect("they are stored");
        let pill = handles.remove(index);
        let deaths = deaths_by(&site, &pill, &mut workers, work).await;
        assert_eq!(deaths, 3);
        assert_eq!(site.lines("start", pill.id()).len(), 3);
        outcomes(handles).await;
    }
}

/// Replaces workers that die, until the pill is a dead letter and all that ran it are over. Returns how many died.
///
/// A process that dies lets go of its locks before its parent can see that it is over. So another worker may have
/// written the dead letter already.
async fn deaths_by(
    site: &Site,
    pill: &DurableHandle<Outcome>,
    workers: &mut [Process],
    work: Work,
) -> usize {
    let mut deaths = 0;
    until("the pill has died", async || {
        let is_dead = pill.status().await.expect("an answer") == Status::Dead;
        for worker in &mut *workers {
            if worker.is_over() {
                deaths += 1;
                worker.was_killed_by(Signal::ABORT).await;
                *worker = start_worker(site, work);
            }
        }
        (is_dead && deaths >= site.lines("start", pill.id()).len()).then_some(())
    })
    .await;
    deaths
}

/// Starts a worker that may abort before it can say that it is ready.
fn start_worker(site: &Site, work: Work) -> Process {
    Process::start(&site.plan(Role::Worker(work)))
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
