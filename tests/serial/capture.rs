//! The capture limit: how many jobs of others a submitter runs.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use throng::SerialExecutor;

use crate::support::{TEST_TIMEOUT, block_on, multi_thread, receive, rounds};

#[test]
fn a_caller_runs_no_more_jobs_of_others_than_the_limit() {
    let runtime = multi_thread(1, "drain");
    for limit in [0, 1, 16] {
        for depth in 0..20 {
            let executor = SerialExecutor::builder()
                .capture_jobs(limit)
                .capture_time(TEST_TIMEOUT)
                .drain_on(runtime.handle().clone())
                .build(())
                .unwrap();
            let others = if captures_at(depth) { limit } else { 0 };
            assert_eq!(captured_by(executor, depth), 1 + others, "at {depth}");
        }
    }
}

#[test]
fn a_caller_runs_jobs_of_others_for_no_longer_than_the_limit() {
    let runtime = multi_thread(1, "drain");
    for micros in [0, 1_000] {
        for depth in (0..20).filter(|depth| captures_at(*depth)) {
            let executor = SerialExecutor::builder()
                .capture_jobs(usize::MAX)
                .capture_time(Duration::from_micros(micros))
                .drain_on(runtime.handle().clone())
                .build(())
                .unwrap();
            let jobs = captured_by(executor, depth);
            assert!(jobs > 1, "it runs some");
            assert!(micros > 0 || jobs <= 1 + 4, "{jobs} jobs in no time");
        }
    }
}

/// Returns `true` if a job that is nested `depth` deep has no other job around it when it ends. That is so for the
/// job of the caller, and for every eighth job below it, which is deferred until the outermost job has ended.
fn captures_at(depth: usize) -> bool {
    depth.is_multiple_of(8)
}

/// Counts the jobs that run on a caller before it returns. Its job is the first of an endless sequence, and is nested
/// in the jobs of `depth` other executors.
fn captured_by(executor: SerialExecutor<()>, depth: usize) -> usize {
    let endless = Arc::new(Endless::new());
    let (returned, has_returned) = channel();
    let caller = thread::spawn({
        let endless = Arc::clone(&endless);
        move || {
            let on_caller = Arc::new(AtomicUsize::new(0));
            let (caller, counter) = (thread::current().id(), Arc::clone(&on_caller));
            let count = move || {
                if thread::current().id() == caller {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            };
            nest(depth, Box::new(move || endless.start(&executor, count)));
            returned.send(on_caller.load(Ordering::SeqCst)).unwrap();
        }
    });
    let jobs = receive(&has_returned);
    endless.stop();
    caller.join().unwrap();
    jobs
}

/// Calls `f` inside the jobs of `depth` executors.
pub(crate) fn nest(depth: usize, f: Box<dyn FnOnce() + Send>) {
    match depth.checked_sub(1) {
        Some(depth) => drop(SerialExecutor::new(()).submit(move |()| nest(depth, f))),
        None => f(),
    }
}

/// A job that submits itself again until it is stopped, so that the queue is never empty.
pub(crate) struct Endless {
    stopped: AtomicBool,
    /// It stops itself then, so that a test fails instead of hanging.
    pub(crate) deadline: Instant,
}

impl Endless {
    pub(crate) fn new() -> Self {
        Self {
            stopped: AtomicBool::new(false),
            deadline: Instant::now() + TEST_TIMEOUT,
        }
    }

    pub(crate) fn start<S, F>(self: &Arc<Self>, executor: &SerialExecutor<S>, each: F)
    where
        S: Send + 'static,
        F: Fn() + Send + 'static,
    {
        let (this, again) = (Arc::clone(self), executor.clone());
        drop(executor.submit(move |_| {
            each();
            if !this.stopped.load(Ordering::SeqCst) && Instant::now() < this.deadline {
                this.start(&again, each);
            }
        }));
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_caller_returns_although_many_others_submit() {
    const LIMIT: usize = 2;
    thread_local! {
        static RAN_HERE: Cell<usize> = const { Cell::new(0) };
    }
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder()
        .capture_jobs(LIMIT)
        .build(())
        .unwrap();
    let jobs = rounds(3_000, 300_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _in = runtime.enter();
                for _ in 0..jobs {
                    RAN_HERE.set(0);
                    drop(executor.submit(|()| RAN_HERE.set(RAN_HERE.get() + 1)));
                    assert!(RAN_HERE.get() <= 1 + LIMIT);
                }
            });
        }
    });
    block_on(executor.into_inner()).unwrap();
}
