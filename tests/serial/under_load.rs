//! Eight threads submit at once, and one closes the executor.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use throng::{JoinError, JoinHandle, SerialExecutor};
use tokio::runtime::Runtime;

use crate::occupied::occupy;
use crate::support::{block_on, join, multi_thread, rounds, wait_until};

const THREADS: usize = 8;

type Counting = SerialExecutor<usize>;

/// The number of jobs that a thread submits, or that run before the end.
fn jobs() -> usize {
    rounds(250, 25_000)
}

/// Without a runtime the submitters run all jobs. With one, its tasks run the queue that is handed over.
fn runtimes() -> [Option<Runtime>; 2] {
    [None, Some(multi_thread(2, "drain"))]
}

/// Calls `each` on all threads from the same moment on, and `meanwhile` on this thread.
fn on_all<T, M>(
    runtime: Option<&Runtime>,
    each: impl Fn() -> T + Sync,
    meanwhile: impl FnOnce() -> M,
) -> (Vec<T>, M)
where
    T: Send,
{
    let barrier = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        let thread = || {
            let _in = runtime.map(Runtime::enter);
            barrier.wait();
            each()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
        barrier.wait();
        let met = meanwhile();
        let each = threads.into_iter().map(|thread| thread.join().unwrap());
        (each.collect(), met)
    })
}

#[test]
fn each_job_of_eight_threads_runs_once() {
    for runtime in runtimes() {
        let executor = SerialExecutor::new(0);
        let busy = occupy(&executor);
        let submit = || (0..jobs()).map(|_| executor.submit(|n| *n += 1));
        let (handles, ()) = on_all(
            runtime.as_ref(),
            || submit().collect::<Vec<_>>(),
            || {
                wait_until("one is queued", || executor.metrics().queue_length > 0);
                busy.release();
            },
        );
        for handle in handles.into_iter().flatten() {
            join(handle).unwrap();
        }
        executor.close();
        block_on(executor.closed());
        let metrics = executor.metrics();
        // The job that kept the executor busy ran at once, too.
        let jobs_run = (THREADS * jobs() + 1) as u64;
        assert_eq!(metrics.inline + metrics.queued, jobs_run);
        assert_eq!(metrics.completed, jobs_run);
        assert_eq!(metrics.queue_length, 0);
        assert!(metrics.max_queue_length >= 1);
        assert_eq!(block_on(executor.into_inner()).unwrap(), THREADS * jobs());
    }
}

/// Submits until the executor is closed, and then once more.
fn submit_until_closed(executor: &Counting, ran: &'static AtomicUsize) -> Vec<JoinHandle<()>> {
    let mut handles = Vec::new();
    loop {
        let closed = executor.is_closed();
        handles.push(executor.submit(move |n| {
            *n += 1;
            ran.fetch_add(1, Ordering::Relaxed);
        }));
        if closed {
            return handles;
        }
    }
}

/// The numbers of jobs by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    ran: usize,
    aborted: usize,
    refused: usize,
}

impl Ends {
    fn of(handles: impl IntoIterator<Item = JoinHandle<()>>) -> Self {
        let mut ends = Self::default();
        for handle in handles {
            match join(handle) {
                Ok(()) => ends.ran += 1,
                Err(error) => *ends.failed(&error) += 1,
            }
        }
        ends
    }

    fn failed(&mut self, error: &JoinError) -> &mut usize {
        match error.is_cancelled() {
            true => &mut self.aborted,
            false => {
                assert!(error.is_closed(), "{error}");
                &mut self.refused
            }
        }
    }
}

/// Eight threads submit until the executor is closed; then `then` is called. Returns how the jobs ended, and the result
/// of `then`.
fn race_to_the_end(
    runtime: Option<&Runtime>,
    then: impl FnOnce(&Counting) -> usize,
) -> (Ends, usize) {
    let ran: &'static AtomicUsize = Box::leak(Box::default());
    let executor = SerialExecutor::new(0);
    let (handles, result) = on_all(
        runtime,
        || submit_until_closed(&executor, ran),
        || {
            let enough = || ran.load(Ordering::Relaxed) >= jobs();
            wait_until("some have run", enough);
            executor.close();
            then(&executor)
        },
    );
    block_on(executor.closed());
    let ends = Ends::of(handles.into_iter().flatten());
    assert_eq!(executor.metrics().queue_length, 0);
    assert_eq!(block_on(executor.into_inner()).unwrap(), ends.ran);
    (ends, result)
}

#[test]
fn jobs_that_are_accepted_before_a_concurrent_close_run() {
    for runtime in runtimes() {
        let (ends, _) = race_to_the_end(runtime.as_ref(), |_| 0);
        assert!(ends.ran >= jobs());
        assert_eq!(ends.aborted, 0);
        assert!(ends.refused >= THREADS, "{ends:?}");
    }
}

#[test]
fn jobs_that_are_accepted_before_a_shutdown_run_or_are_aborted() {
    for runtime in runtimes() {
        let (ends, aborted) = race_to_the_end(runtime.as_ref(), SerialExecutor::shutdown_now);
        assert!(ends.ran >= jobs());
        assert_eq!(ends.aborted, aborted);
        assert!(ends.refused >= THREADS, "{ends:?}");
    }
}
