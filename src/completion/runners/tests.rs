//! Runners that the test polls, and the watchdog's checks without the timer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::coop;

use super::{IDLE_CHECKS, Runners, WatchState};
use crate::join::{RunContext, Spawn, Work, sealed};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::task::{Polled, Task};

/// Keeps a number of pieces of work, and refuses the others.
#[derive(Clone)]
struct Kept(Arc<Mutex<Vec<Work>>>, Arc<AtomicUsize>);

impl sealed::Sealed for Kept {}
impl Spawn for Kept {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        let one = |room: usize| room.checked_sub(1);
        let room = &self.1;
        if room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one)
            .is_err()
        {
            return Err(work);
        }
        lock(&self.0).push(work);
        Ok(())
    }
}

impl Kept {
    fn last(&self) -> Work {
        lock(&self.0).pop().expect("there is one")
    }
}

/// Runners that the test polls, without a watchdog.
fn runners(limit: usize, room: usize) -> (Kept, Arc<Runners>) {
    let kept = Kept(Arc::default(), Arc::new(AtomicUsize::new(room)));
    let runners = Runners::new(Box::new(kept.clone()), limit);
    runners.watched.store(true, Ordering::Relaxed);
    (kept, runners)
}

/// A job that is ready, and counts that it ran.
fn job(ran: &Arc<AtomicUsize>) -> Task<RunContext> {
    let ran = Arc::clone(ran);
    Task::detached(Polled(async move {
        ran.fetch_add(1, Ordering::Relaxed);
    }))
}

fn poll(work: &mut Work) -> Poll<()> {
    Pin::new(work).poll(&mut Context::from_waker(Waker::noop()))
}

fn count(runners: &Runners) -> usize {
    runners.count.load(Ordering::Relaxed)
}

#[test]
fn help_is_needed_once_when_no_job_is_taken() {
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    let mut watch = WatchState::default();
    assert!(!runners.needs_help(&mut watch), "no job is queued");
    // The first is its runner's own.
    for _ in 0..4 {
        Runners::submit(&runners, job(&ran));
    }
    // First for a job in the inbox, then for one in the queue.
    for _ in 0..2 {
        assert!(runners.needs_help(&mut watch));
        assert!(!runners.needs_help(&mut watch), "help has not arrived yet");
        assert!(runners.next().is_some());
        assert!(!runners.needs_help(&mut watch), "a job was taken");
    }
    assert!(runners.needs_help(&mut watch));
    assert!(runners.next().is_some());
    for _ in 0..3 {
        assert!(!runners.needs_help(&mut watch), "no job is queued");
    }
    // Breaks the cycle: the work holds the runners, and they hold the list of work.
    drop(kept.last());
}

#[test]
fn the_watchdog_stops_after_some_checks_without_runners() {
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    let mut watch = WatchState::default();
    for _ in 1..IDLE_CHECKS {
        assert!(!runners.is_quiet(&mut watch));
    }
    Runners::submit(&runners, job(&ran));
    for _ in 0..2 * IDLE_CHECKS {
        assert!(!runners.is_quiet(&mut watch), "there is a runner");
    }
    kept.last().run();
    for _ in 1..IDLE_CHECKS {
        assert!(!runners.is_quiet(&mut watch));
        assert!(runners.watched.load(Ordering::Relaxed));
    }
    assert!(runners.is_quiet(&mut watch));
    assert!(!runners.watched.load(Ordering::Relaxed));
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

/// A second runner was started because the first was blocked. When the first is back, one exits.
#[test]
fn an_excess_runner_exits_although_jobs_are_queued() {
    let (kept, runners) = runners(1, 2);
    let ran = Arc::default();
    for _ in 0..100 {
        Runners::submit(&runners, job(&ran));
    }
    let mut first = kept.last();
    Runners::start_below(&runners, usize::MAX, None);
    let mut second = kept.last();
    // One of them runs a job: both are needed.
    runners.busy.add(1);
    assert!(poll(&mut second).is_pending());
    assert!(poll(&mut first).is_pending());
    assert_eq!(count(&runners), 2);
    runners.busy.subtract(1);
    assert!(poll(&mut first).is_ready());
    assert_eq!(count(&runners), 1);
    drop(first);
    assert!(ran.load(Ordering::Relaxed) < 100);
    second.run();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
    assert_eq!(count(&runners), 0);
}

/// An excess runner exits and leaves its queue to the other, whose own job is pending.
#[test]
fn a_runner_whose_own_job_is_pending_hands_the_queue_over() {
    let (kept, runners) = runners(1, 3);
    let ran = Arc::default();
    let (_open, opened) = tokio::sync::oneshot::channel::<()>();
    let waits = Task::detached(Polled(async move { drop(opened.await) }));
    Runners::submit(&runners, waits);
    let mut first = kept.last();
    for _ in 0..100 {
        Runners::submit(&runners, job(&ran));
    }
    Runners::start_below(&runners, usize::MAX, None);
    assert!(poll(&mut kept.last()).is_ready(), "two exceed the limit");
    assert!(ran.load(Ordering::Relaxed) < 100);
    assert!(poll(&mut first).is_pending());
    assert_eq!(count(&runners), 1);
    kept.last().run();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
    assert_eq!(count(&runners), 0);
}

/// The task that polls a runner may have used up all of Tokio's budget.
#[test]
fn a_runner_without_budget_still_empties_the_queue() {
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    for _ in 0..3 {
        Runners::submit(&runners, job(&ran));
    }
    // This also moves the last one from the inbox to the queue.
    drop(runners.next());
    let mut runner = kept.last();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(poll_fn(|cx| {
        while let Poll::Ready(coop) = coop::poll_proceed(cx) {
            coop.made_progress();
        }
        while poll(&mut runner).is_pending() {}
        Poll::Ready(())
    }));
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    assert_eq!(count(&runners), 0);
}

#[test]
fn a_refused_runner_leaves_the_queue_to_the_others() {
    let (kept, runners) = runners(2, 1);
    let ran = Arc::default();
    runners.job_cost.set(0);
    for _ in 0..3 {
        Runners::submit(&runners, job(&ran));
    }
    // The third justified a runner, which was refused, as all others would be.
    assert_eq!((count(&runners), Arc::strong_count(&ran)), (1, 3));
    drop(kept.last());
    assert_eq!((count(&runners), Arc::strong_count(&ran)), (0, 1));
    // A later job is left to the runtime, which does not run it.
    Runners::submit(&runners, job(&ran));
    assert_eq!((count(&runners), Arc::strong_count(&ran)), (0, 1));
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

/// Submits others when it is dropped.
struct Submits {
    runners: Arc<Runners>,
    ran: Arc<AtomicUsize>,
}

impl Drop for Submits {
    fn drop(&mut self) {
        for _ in 0..2 {
            Runners::submit(&self.runners, job(&self.ran));
        }
    }
}

/// If each job were cancelled within the cancellation of another, the stack would overflow.
#[test]
fn cancellations_of_jobs_that_submit_others_do_not_nest() {
    const JOBS: usize = if cfg!(miri) { 100 } else { 20_000 };
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    for _ in 0..JOBS {
        let submits = Submits {
            runners: Arc::clone(&runners),
            ran: Arc::clone(&ran),
        };
        let task = Task::detached(Polled(async move { drop(submits) }));
        Runners::submit(&runners, task);
    }
    drop(kept.last());
    assert_eq!(Arc::strong_count(&ran), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert_eq!(Arc::strong_count(&runners), 1);
}

/// Jobs that were submitted meanwhile get another runner.
#[test]
fn a_runner_whose_own_job_is_pending_runs_nothing_else() {
    let (kept, runners) = runners(1, 3);
    let (ran, gate) = (Arc::default(), tokio::sync::oneshot::channel::<()>());
    let (open, opened) = gate;
    let waits = Task::detached(Polled(async move { drop(opened.await) }));
    Runners::submit(&runners, waits);
    let mut first = kept.last();
    Runners::submit(&runners, job(&ran));
    assert!(poll(&mut first).is_pending());
    assert_eq!(count(&runners), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    kept.last().run();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(count(&runners), 0);
    assert!(poll(&mut first).is_pending());
    drop(open);
    assert!(poll(&mut first).is_ready());
    assert_eq!(count(&runners), 0);
}
