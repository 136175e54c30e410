//! Models of the runners: submissions against runners that exit, are dropped, or are watched.

use std::future::{Future as _, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::sync::Mutex as StdMutex;
use std::task::{Context, Poll, Waker};

use loom::future::AtomicWaker;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

use super::{IfDropped, Runners};
use crate::inbox::FifoList;
use crate::join::{RunContext, Spawn, Work, sealed};
use crate::sync::Plain;
use crate::task::{Abort, Destination, Done, Polled, Resumed, Task};
use crate::timer::Watchdog as _;

/// Runs each piece of work on a thread that the model can join.
#[derive(Clone, Default)]
struct Threads(StdArc<StdMutex<Vec<JoinHandle<()>>>>);

impl sealed::Sealed for Threads {}
impl Spawn for Threads {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        let thread = thread::spawn(move || work.run());
        self.0.lock().unwrap().push(thread);
        Ok(())
    }
}

impl Threads {
    /// Waits for all threads, including those that start meanwhile.
    fn join(&self) {
        let next = || self.0.lock().unwrap().pop();
        while let Some(thread) = next() {
            thread.join().unwrap();
        }
    }
}

/// Keeps a number of pieces of work for the model, and drops the others.
#[derive(Clone)]
struct Ending(StdArc<StdMutex<Kept>>);

struct Kept {
    works: Vec<Work>,
    room: usize,
}

impl sealed::Sealed for Ending {}
impl Spawn for Ending {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        let mut kept = self.0.lock().unwrap();
        if let Some(room) = kept.room.checked_sub(1) {
            kept.room = room;
            kept.works.push(work);
            return Ok(());
        }
        drop(kept);
        drop(work);
        Ok(())
    }
}

impl Ending {
    fn after(works: usize) -> Self {
        Self(StdArc::new(StdMutex::new(Kept {
            works: Vec::new(),
            room: works,
        })))
    }

    fn take(&self) -> Vec<Work> {
        std::mem::take(&mut self.0.lock().unwrap().works)
    }
}

/// Refuses all work.
struct Refusing;

impl sealed::Sealed for Refusing {}
impl Spawn for Refusing {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        Err(work)
    }
}

/// Counts the jobs that have run, and the jobs that are not dropped.
struct Jobs {
    ran: Arc<AtomicUsize>,
    held: Arc<()>,
}

impl Jobs {
    fn new() -> Self {
        Self {
            ran: Arc::new(AtomicUsize::new(0)),
            held: Arc::new(()),
        }
    }

    fn job(&self) -> Task<RunContext> {
        let (ran, held) = (self.ran.clone(), self.held.clone());
        // Loom reports it if two threads run the job.
        let mine = Plain::new(0);
        Task::detached(Polled(async move {
            let _held = held;
            mine.add(1);
            ran.fetch_add(1, Ordering::Relaxed);
        }))
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::Relaxed)
    }

    fn are_gone(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }
}

fn runners_on(runtime: impl Spawn, limit: usize) -> Arc<Runners> {
    Runners::new(Box::new(runtime), limit, Box::new(FifoList::new))
}

fn on_threads(limit: usize) -> (Threads, Arc<Runners>) {
    let threads = Threads::default();
    (threads.clone(), runners_on(threads, limit))
}

#[test]
fn loom_submit_against_a_runner_that_exits() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let jobs = Jobs::new();
        Runners::submit(&runners, jobs.job());
        Runners::submit(&runners, jobs.job());
        threads.join();
        assert_eq!(jobs.ran(), 2);
        assert!(jobs.are_gone());
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn loom_two_submitters_against_a_runner() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let jobs = Jobs::new();
        let (other, job) = (runners.clone(), jobs.job());
        let submitter = thread::spawn(move || Runners::submit(&other, job));
        Runners::submit(&runners, jobs.job());
        submitter.join().unwrap();
        threads.join();
        assert_eq!(jobs.ran(), 2);
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// Each job runs once, and the runner that empties the inbox also empties the queue.
#[test]
fn loom_two_runners_share_the_jobs() {
    loom::model(|| {
        let ending = Ending::after(2);
        let runners = runners_on(ending.clone(), 2);
        let jobs = Jobs::new();
        for _ in 0..3 {
            Runners::submit(&runners, jobs.job());
        }
        let mut both = ending.take().into_iter();
        let (one, two) = (both.next().unwrap(), both.next().unwrap());
        let runner = thread::spawn(move || one.run());
        two.run();
        runner.join().unwrap();
        assert_eq!(jobs.ran(), 3);
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// The job is cancelled at the latest when both threads are done.
#[test]
fn loom_submit_against_a_runner_that_is_dropped() {
    loom::model(|| {
        let ending = Ending::after(1);
        let runners = runners_on(ending.clone(), 1);
        let jobs = Jobs::new();
        Runners::submit(&runners, jobs.job());
        let runner = ending.take();
        let (other, job) = (runners.clone(), jobs.job());
        let submitter = thread::spawn(move || Runners::submit(&other, job));
        drop(runner);
        submitter.join().unwrap();
        assert_eq!(jobs.ran(), 0);
        assert!(jobs.are_gone(), "a job is left behind");
    });
}

/// Neither of two dropped runners relies on the other one if that has already looked for jobs.
#[test]
fn loom_submit_against_two_runners_that_are_dropped() {
    loom::model(|| {
        let ending = Ending::after(2);
        let runners = runners_on(ending.clone(), 2);
        let jobs = Jobs::new();
        // The second finds another one queued, which justifies another runner.
        for _ in 0..3 {
            Runners::submit(&runners, jobs.job());
        }
        let mut both = ending.take().into_iter();
        let (one, two) = (both.next().unwrap(), both.next().unwrap());
        assert!(both.next().is_none());
        let dropper = thread::spawn(move || drop(one));
        let (other, job) = (runners.clone(), jobs.job());
        let submitter = thread::spawn(move || Runners::submit(&other, job));
        drop(two);
        dropper.join().unwrap();
        submitter.join().unwrap();
        assert!(jobs.are_gone(), "a job is left behind");
    });
}

/// The runtime accepts nothing: each submitter cancels its own job, or the other's.
#[test]
fn loom_two_submitters_that_are_refused() {
    loom::model(|| {
        let runners = runners_on(Refusing, 1);
        let jobs = Jobs::new();
        let (other, job) = (runners.clone(), jobs.job());
        let submitter = thread::spawn(move || Runners::submit(&other, job));
        Runners::submit(&runners, jobs.job());
        submitter.join().unwrap();
        assert_eq!(jobs.ran(), 0);
        assert!(jobs.are_gone(), "a job is left behind");
    });
}

/// A job that is pending and cannot be suspended becomes a task. The runner goes on, or another one starts.
#[test]
fn loom_submit_against_a_runner_whose_job_waits() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let jobs = Jobs::new();
        let mut polled = false;
        let waits = Task::detached(Polled(poll_fn(move |cx| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        Runners::submit(&runners, waits);
        Runners::submit(&runners, jobs.job());
        threads.join();
        assert_eq!(jobs.ran(), 1);
        assert!(jobs.are_gone(), "a job is left behind");
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// A wake-up before the job has its final waker is made up for by the second poll.
#[test]
fn loom_a_pending_job_against_its_wake_up() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let shared = Arc::new((AtomicBool::new(false), AtomicWaker::new()));
        let (seen, ran) = (shared.clone(), Arc::new(AtomicUsize::new(0)));
        let done = ran.clone();
        let job = Task::detached(Polled(async move {
            poll_fn(|cx| {
                seen.1.register_by_ref(cx.waker());
                match seen.0.load(Ordering::Acquire) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            done.fetch_add(1, Ordering::Relaxed);
        }));
        // The other waits for this one, or gets a runner too.
        Runners::submit(&runners, Jobs::new().job());
        Runners::submit(&runners, job);
        shared.0.store(true, Ordering::Release);
        shared.1.wake();
        threads.join();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

/// An abort before, during or after the first poll, or before the second: the job is dropped.
#[test]
fn loom_abort_against_the_first_poll() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let held = Arc::new(());
        let (job, join_ref) = Task::joinable(Polled({
            let held = held.clone();
            async move {
                let _held = held;
                pending::<()>().await;
            }
        }));
        let abort = join_ref.abort_ref();
        drop(join_ref);
        Runners::submit(&runners, job);
        abort.abort();
        threads.join();
        assert_eq!(Arc::strong_count(&held), 1);
    });
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
        // SAFETY: jobs with this destination are made for a `RunContext`, below.
        Runners::resume(&self.0, unsafe { Task::from_resumed(job) });
    }
}

/// A job that waits once, the party that wakes it, and a witness of its end.
struct Waiting {
    opened: Arc<(AtomicBool, AtomicWaker)>,
    ran: Arc<AtomicUsize>,
    held: Arc<()>,
}

impl Waiting {
    fn submit(runners: &Arc<Runners>) -> (Self, Abort) {
        let this = Self {
            opened: Arc::new((AtomicBool::new(false), AtomicWaker::new())),
            ran: Arc::new(AtomicUsize::new(0)),
            held: Arc::new(()),
        };
        let (opened, ran, held) = (this.opened.clone(), this.ran.clone(), this.held.clone());
        let mine = Plain::new(0);
        let job = async move {
            let _held = held;
            poll_fn(|cx| {
                mine.add(1);
                opened.1.register_by_ref(cx.waker());
                match opened.0.load(Ordering::Acquire) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            ran.fetch_add(1, Ordering::Relaxed);
        };
        let (task, abort) = Task::bound_for(Polled(job), Resumes(runners.clone()));
        Runners::submit(runners, task);
        (this, abort)
    }

    fn wake(&self) {
        self.opened.0.store(true, Ordering::Release);
        self.opened.1.wake();
    }

    fn is_gone(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }
}

/// A job is woken before, while or after it is suspended, or its runner parks.
#[test]
fn loom_a_suspended_job_against_its_wake_up() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let (waiting, _) = Waiting::submit(&runners);
        waiting.wake();
        // The runner that has parked exits, or none parks.
        runners.dismiss();
        threads.join();
        assert_eq!(waiting.ran.load(Ordering::Relaxed), 1);
        assert!(waiting.is_gone());
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// As above, with an abort.
#[test]
fn loom_a_suspended_job_against_its_abort() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        let (waiting, abort) = Waiting::submit(&runners);
        abort.abort();
        runners.dismiss();
        threads.join();
        assert!(waiting.is_gone());
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// A job that is suspended, and the only runner, which is parked. Without a record, the job is not found when the runner
/// is dropped.
fn suspended(ending: &Ending, recorded: bool) -> (Arc<Runners>, Waiting, Vec<Work>) {
    let job = StdArc::new(StdMutex::new(None::<Abort>));
    let suspended = job.clone();
    let take_suspended = move || {
        let mut taken = FifoList::new();
        let abort = suspended.lock().unwrap().take();
        if let Some(job) = abort.and_then(|abort| abort.take_suspended()) {
            // SAFETY: the job is made for a `RunContext`.
            taken.push_back(unsafe { Task::from_resumed(job) });
        }
        taken
    };
    let runners = Runners::new(Box::new(ending.clone()), 1, Box::new(take_suspended));
    let (waiting, abort) = Waiting::submit(&runners);
    *job.lock().unwrap() = recorded.then_some(abort);
    let mut runner = ending.take();
    let mut cx = Context::from_waker(Waker::noop());
    while runners.count.load(Ordering::Relaxed) > 0 {
        assert!(Pin::new(&mut runner[0]).poll(&mut cx).is_pending());
    }
    (runners, waiting, runner)
}

/// The runtime shuts down while a job is woken: the runner finds it suspended or queued, or leaves it to the watchdog.
#[test]
fn loom_a_suspended_job_against_a_runner_that_is_dropped() {
    loom::model(|| {
        let ending = Ending::after(1);
        let (runners, waiting, runner) = suspended(&ending, true);
        let opened = waiting.opened.clone();
        let waker = thread::spawn(move || opened.1.wake());
        drop(runner);
        waker.join().unwrap();
        if !waiting.is_gone() {
            assert!(runners.watched.load(Ordering::Relaxed));
            end_by_watchdog(&runners);
        }
        assert!(waiting.is_gone(), "a job is left behind");
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// Starts a runner as the watchdog does, which in models has no reference to the runners.
fn end_by_watchdog(runners: &Arc<Runners>) {
    Runners::start_below(runners, usize::MAX, IfDropped::Cancel);
}

/// The watchdog stops while a job is woken that is left to it.
#[test]
fn loom_watchdog_stops_against_a_wake_up_that_is_refused() {
    loom::model(|| {
        let ending = Ending::after(1);
        let (runners, waiting, runner) = suspended(&ending, false);
        drop(runner);
        let opened = waiting.opened.clone();
        let waker = thread::spawn(move || opened.1.wake());
        let goes_on = runners.check();
        waker.join().unwrap();
        let watched = goes_on || runners.watched.load(Ordering::Relaxed);
        assert!(watched && !waiting.is_gone());
        end_by_watchdog(&runners);
        assert!(waiting.is_gone(), "a job is left behind");
    });
}

/// The stream ends while the runtime drops the runner that is parked.
#[test]
fn loom_dismiss_against_a_runner_that_is_dropped() {
    loom::model(|| {
        let ending = Ending::after(1);
        let (runners, waiting, runner) = suspended(&ending, true);
        let dropper = thread::spawn(move || drop(runner));
        runners.dismiss();
        dropper.join().unwrap();
        assert!(waiting.is_gone());
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// A job is submitted while a runner parks.
#[test]
fn loom_submit_against_a_runner_that_parks() {
    loom::model(|| {
        let (threads, runners) = on_threads(1);
        runners.parking.note_suspended();
        let jobs = Jobs::new();
        // The third may start the first runner again, while a second one parks.
        for _ in 0..3 {
            Runners::submit(&runners, jobs.job());
        }
        // It may be parked for good only if nothing is left.
        runners.dismiss();
        threads.join();
        assert_eq!(jobs.ran(), 3);
        assert_eq!(runners.count.load(Ordering::Relaxed), 0);
    });
}

/// The watchdog stops while a runner starts: it goes on, or is armed again.
#[test]
fn loom_watchdog_stops_against_a_runner_that_starts() {
    loom::model(|| {
        let ending = Ending::after(1);
        let runners = runners_on(ending.clone(), 1);
        Runners::arm_watchdog(&runners);
        let jobs = Jobs::new();
        let (other, job) = (runners.clone(), jobs.job());
        let submitter = thread::spawn(move || Runners::submit(&other, job));
        // In models, it stops after one quiet check.
        let goes_on = runners.check();
        submitter.join().unwrap();
        assert!(
            goes_on || runners.watched.load(Ordering::Relaxed),
            "the queue is not watched"
        );
        drop(ending.take());
    });
}
