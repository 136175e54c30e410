//! Runners that the test polls, and the watchdog's checks without the timer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::coop;

use super::{IDLE_CHECKS, IfDropped, Runners, WatchState};
use crate::inbox::FifoList;
use crate::join::{RunContext, Spawn, Work, sealed};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::task::{Destination, Done, Polled, Resumed, Task};
use crate::timer::Watchdog as _;

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
    let runners = Runners::new(Box::new(kept.clone()), limit, Box::new(FifoList::new));
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
    for _ in 0..3 {
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
    Runners::start_below(&runners, usize::MAX, IfDropped::Cancel);
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
    // The second justified a runner, which was refused, as all others would be. So the third was not queued.
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

/// A job whose drop submits the next one, after the end of the runtime.
#[test]
fn drops_that_submit_the_next_job_do_not_nest() {
    struct SubmitsNext(Arc<Runners>, Arc<AtomicUsize>, usize);
    impl Drop for SubmitsNext {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if let Some(left) = self.2.checked_sub(1) {
                let next = Self(Arc::clone(&self.0), Arc::clone(&self.1), left);
                let task = Task::detached(Polled(async move { drop(next) }));
                Runners::submit(&self.0, task);
            }
        }
    }
    const JOBS: usize = if cfg!(miri) { 100 } else { 20_000 };
    let (kept, runners) = runners(1, 1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let first = SubmitsNext(Arc::clone(&runners), Arc::clone(&dropped), JOBS);
    Runners::submit(&runners, Task::detached(Polled(async move { drop(first) })));
    drop(kept.last());
    assert_eq!(dropped.load(Ordering::Relaxed), JOBS + 1);
    assert_eq!(Arc::strong_count(&runners), 1);
}

/// It gets a task, and the runner goes on with the jobs that were submitted meanwhile.
#[test]
fn a_pending_job_that_cannot_be_suspended_holds_up_no_other() {
    let (kept, runners) = runners(1, 2);
    let (ran, gate) = (Arc::default(), tokio::sync::oneshot::channel::<()>());
    let (open, opened) = gate;
    let waits = Task::detached(Polled(async move { drop(opened.await) }));
    Runners::submit(&runners, waits);
    let runner = kept.last();
    Runners::submit(&runners, job(&ran));
    runner.run();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(count(&runners), 0);
    let mut waits = kept.last();
    assert!(poll(&mut waits).is_pending());
    drop(open);
    assert!(poll(&mut waits).is_ready());
}

/// The destination of a job that can be suspended.
struct Resumes(Arc<Runners>);

impl Destination<()> for Resumes {
    const RESUMES: bool = true;

    fn deliver(done: Done<(), Self>) {
        done.complete();
        drop(done);
    }

    fn resume(&self, job: Resumed) {
        // SAFETY: the jobs below are made for a `RunContext`.
        Runners::resume(&self.0, unsafe { Task::from_resumed(job) });
    }
}

/// Submits a job that waits a number of times, and counts its polls.
fn submit_waiting(runners: &Arc<Runners>, waits: usize, polls: &Arc<AtomicUsize>) -> Waking {
    let (waking, polls) = (Waking::default(), Arc::clone(polls));
    let slot = Arc::clone(&waking.0);
    let job = poll_fn(move |cx| {
        *lock(&slot) = Some(cx.waker().clone());
        match polls.fetch_add(1, Ordering::Relaxed) < waits {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    });
    let (task, _) = Task::bound_for(Polled(job), Resumes(Arc::clone(runners)));
    Runners::submit(runners, task);
    waking
}

/// The waker of the last poll.
#[derive(Default)]
struct Waking(Arc<Mutex<Option<Waker>>>);

impl Waking {
    fn wake(&self) {
        let waker = lock(&self.0).take();
        waker.expect("it was polled").wake();
    }
}

/// The runner that has suspended it parks, and is woken.
#[test]
fn a_job_that_waits_once_needs_no_task() {
    let (kept, runners) = runners(1, 1);
    let polls = Arc::default();
    let waking = submit_waiting(&runners, 1, &polls);
    let mut runner = kept.last();
    for round in 0..2 {
        while count(&runners) > 0 {
            assert!(poll(&mut runner).is_pending(), "it parks");
        }
        assert!(poll(&mut runner).is_pending(), "nobody has started it");
        assert_eq!(polls.load(Ordering::Relaxed), 1 + round);
        if round == 0 {
            waking.wake();
            assert_eq!(count(&runners), 1);
        }
    }
    runners.dismiss();
    while poll(&mut runner).is_pending() {}
    assert_eq!(count(&runners), 0);
}

/// The party that wakes a job may hold a lock that the job's drop acquires. So it is dropped later, by the watchdog.
#[test]
fn a_wake_up_drops_no_job_after_the_end_of_the_runtime() {
    let (kept, runners) = runners(1, 1);
    let polls = Arc::default();
    let waking = submit_waiting(&runners, 1, &polls);
    let mut runner = kept.last();
    while count(&runners) > 0 {
        assert!(poll(&mut runner).is_pending(), "it parks");
    }
    // The job has no record, by which it would be found.
    drop(runner);
    assert_eq!(Arc::strong_count(&polls), 2);
    waking.wake();
    assert_eq!((count(&runners), Arc::strong_count(&polls)), (0, 2));
    let checks = (1..=2 * IDLE_CHECKS).find(|_| {
        runners.check();
        Arc::strong_count(&polls) == 1
    });
    assert!(checks.is_some_and(|checks| checks <= 2), "{checks:?}");
    assert_eq!(polls.load(Ordering::Relaxed), 1);
    assert_eq!(count(&runners), 0);
}

/// A runner that parks is woken as it is dropped: it cancels the job that it was woken for.
#[test]
fn a_job_that_is_woken_before_its_runner_is_dropped_is_cancelled() {
    let (kept, runners) = runners(1, 1);
    let polls = Arc::default();
    let waking = submit_waiting(&runners, 1, &polls);
    let mut runner = kept.last();
    while count(&runners) > 0 {
        assert!(poll(&mut runner).is_pending(), "it parks");
    }
    waking.wake();
    assert_eq!((count(&runners), Arc::strong_count(&polls)), (1, 2));
    drop(runner);
    assert_eq!((count(&runners), Arc::strong_count(&polls)), (0, 1));
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_job_that_waits_twice_becomes_a_task() {
    let (kept, runners) = runners(1, 2);
    let polls = Arc::default();
    let waking = submit_waiting(&runners, 2, &polls);
    let mut runner = kept.last();
    assert!(poll(&mut runner).is_pending());
    waking.wake();
    assert!(poll(&mut runner).is_pending());
    assert_eq!(polls.load(Ordering::Relaxed), 2);
    let mut task = kept.last();
    assert!(poll(&mut task).is_ready(), "a task is polled at once");
    runners.dismiss();
    while poll(&mut runner).is_pending() {}
    assert_eq!(count(&runners), 0);
}

/// One that has been started, and has not run yet, does not take the other for itself.
#[test]
fn a_runner_that_is_started_while_another_parks_runs() {
    let (kept, runners) = runners(2, 2);
    let ran = Arc::default();
    let mut first = submit_and_take(&kept, &runners, &ran);
    let mut second = submit_and_take(&kept, &runners, &ran);
    runners.parking.note_suspended();
    while count(&runners) > 1 {
        assert!(poll(&mut first).is_pending(), "it parks");
    }
    Runners::submit(&runners, job(&ran));
    assert_eq!(count(&runners), 2, "it is started");
    while count(&runners) > 1 {
        assert!(poll(&mut second).is_pending(), "it parks");
    }
    let exits = (0..10).any(|_| poll(&mut first).is_ready());
    assert!(exits, "it is not parked");
    assert_eq!(count(&runners), 0);
    assert_eq!(ran.load(Ordering::Relaxed), 3);
    runners.dismiss();
    while poll(&mut second).is_pending() {}
}

/// Submits a job that starts a runner, which is returned.
fn submit_and_take(kept: &Kept, runners: &Arc<Runners>, ran: &Arc<AtomicUsize>) -> Work {
    Runners::submit(runners, job(ran));
    kept.last()
}
