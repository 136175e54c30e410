//! Runners that are run by hand, and what the timer sees of them, without the timer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::coop;

use super::{QUIET_VISITS, Runners, Sight};
use crate::join::{RunContext, Spawn, Work, sealed};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::task::{Polled, Task};

/// Keeps so many pieces of work, and hands back those that come later.
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

/// Runners that nobody runs, and whom the timer does not visit.
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

fn hired(runners: &Runners) -> usize {
    runners.hired.load(Ordering::Relaxed)
}

#[test]
fn help_is_wanted_where_nothing_is_taken_and_once() {
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    let mut sight = Sight::default();
    assert!(!runners.needs_help(&mut sight), "nothing waits");
    // The first is its runner's own.
    for _ in 0..4 {
        Runners::submit(&runners, job(&ran));
    }
    // What waits in the inbox, and then what waits in the queue.
    for _ in 0..2 {
        assert!(runners.needs_help(&mut sight));
        assert!(!runners.needs_help(&mut sight), "it has not come yet");
        assert!(runners.next().is_some());
        assert!(!runners.needs_help(&mut sight), "somebody takes");
    }
    assert!(runners.needs_help(&mut sight));
    assert!(runners.next().is_some());
    for _ in 0..3 {
        assert!(!runners.needs_help(&mut sight), "nothing waits");
    }
    // The work has the runners, and they have what keeps the work.
    drop(kept.last());
}

#[test]
fn the_steward_goes_when_nobody_has_been_hired_for_some_visits() {
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    let mut sight = Sight::default();
    for _ in 1..QUIET_VISITS {
        assert!(!runners.is_quiet(&mut sight));
    }
    Runners::submit(&runners, job(&ran));
    for _ in 0..2 * QUIET_VISITS {
        assert!(!runners.is_quiet(&mut sight), "somebody is hired");
    }
    kept.last().run();
    for _ in 1..QUIET_VISITS {
        assert!(!runners.is_quiet(&mut sight));
        assert!(runners.watched.load(Ordering::Relaxed));
    }
    assert!(runners.is_quiet(&mut sight));
    assert!(!runners.watched.load(Ordering::Relaxed));
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

/// One was hired in place of one that was held up. When that is back, they are one too many.
#[test]
fn a_runner_too_many_ends_although_there_are_jobs() {
    let (kept, runners) = runners(1, 2);
    let ran = Arc::default();
    for _ in 0..100 {
        Runners::submit(&runners, job(&ran));
    }
    let mut first = kept.last();
    Runners::start_thread(&runners, usize::MAX, None);
    let mut second = kept.last();
    // Somebody has a job in hand: both are needed.
    runners.busy.add(1);
    assert!(poll(&mut second).is_pending());
    assert!(poll(&mut first).is_pending());
    assert_eq!(hired(&runners), 2);
    runners.busy.subtract(1);
    assert!(poll(&mut first).is_ready());
    assert_eq!(hired(&runners), 1);
    drop(first);
    assert!(ran.load(Ordering::Relaxed) < 100);
    second.run();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
    assert_eq!(hired(&runners), 0);
}

/// One was too many, and ended. The other one has a job of its own that is pending.
#[test]
fn a_runner_that_stays_with_its_own_job_leaves_no_queue_behind() {
    let (kept, runners) = runners(1, 3);
    let ran = Arc::default();
    let (_open, opened) = tokio::sync::oneshot::channel::<()>();
    let waits = Task::detached(Polled(async move { drop(opened.await) }));
    Runners::submit(&runners, waits);
    let mut first = kept.last();
    for _ in 0..100 {
        Runners::submit(&runners, job(&ran));
    }
    Runners::start_thread(&runners, usize::MAX, None);
    assert!(poll(&mut kept.last()).is_ready(), "two are too many");
    assert!(ran.load(Ordering::Relaxed) < 100);
    assert!(poll(&mut first).is_pending());
    assert_eq!(hired(&runners), 1);
    kept.last().run();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
    assert_eq!(hired(&runners), 0);
}

/// Whoever polls it may have used up all of Tokio's budget before.
#[test]
fn a_runner_without_a_budget_leaves_nothing_behind() {
    let (kept, runners) = runners(1, 1);
    let ran = Arc::default();
    for _ in 0..3 {
        Runners::submit(&runners, job(&ran));
    }
    // What is left has come out of the inbox, too.
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
    assert_eq!(hired(&runners), 0);
}

#[test]
fn a_runner_that_is_refused_leaves_what_is_queued_to_the_others() {
    let (kept, runners) = runners(2, 1);
    let ran = Arc::default();
    runners.pace.set(0);
    for _ in 0..3 {
        Runners::submit(&runners, job(&ran));
    }
    // The third was worth a runner, which was refused, and so would be all others.
    assert_eq!((hired(&runners), Arc::strong_count(&ran)), (1, 3));
    drop(kept.last());
    assert_eq!((hired(&runners), Arc::strong_count(&ran)), (0, 1));
    // Who comes later is left to whoever does not run it.
    Runners::submit(&runners, job(&ran));
    assert_eq!((hired(&runners), Arc::strong_count(&ran)), (0, 1));
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

/// Were each cancelled within the cancellation of the one before it, no stack would be deep enough.
#[test]
fn jobs_that_submit_others_when_they_are_cancelled_do_not_nest() {
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

/// Its job waits for something. What was submitted meanwhile gets another runner.
#[test]
fn a_runner_whose_own_job_is_pending_is_one_no_more() {
    let (kept, runners) = runners(1, 3);
    let (ran, gate) = (Arc::default(), tokio::sync::oneshot::channel::<()>());
    let (open, opened) = gate;
    let waits = Task::detached(Polled(async move { drop(opened.await) }));
    Runners::submit(&runners, waits);
    let mut first = kept.last();
    Runners::submit(&runners, job(&ran));
    assert!(poll(&mut first).is_pending());
    assert_eq!(hired(&runners), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    kept.last().run();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(hired(&runners), 0);
    assert!(poll(&mut first).is_pending());
    drop(open);
    assert!(poll(&mut first).is_ready());
    assert_eq!(hired(&runners), 0);
}
