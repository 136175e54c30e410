//! Shutting down, and submitting without an end.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use throng::serial::Level;
use throng::{JoinError, JoinHandle, SerialExecutor};
use tokio::runtime::Runtime;

use super::THREADS;
use crate::support::{Numbers, TEST_TIMEOUT, block_on, multi_thread, receive, rounds, wait_until};

// ===== shutdown =====

/// How jobs ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    ran: usize,
    aborted: usize,
    refused: usize,
}

impl Ends {
    fn count(&mut self, outcome: Result<(), JoinError>) {
        match outcome {
            Ok(()) => self.ran += 1,
            Err(error) if error.is_cancelled() => self.aborted += 1,
            Err(error) => {
                assert!(error.is_closed() || error.is_rejected(), "{error}");
                self.refused += 1;
            }
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            ran: self.ran + other.ran,
            aborted: self.aborted + other.aborted,
            refused: self.refused + other.refused,
        }
    }
}

/// Submits jobs in all ways, and waits for some.
fn submit_all(executor: &SerialExecutor<usize>, seed: usize, jobs: usize) -> Ends {
    let mut numbers = Numbers::new(seed as u64);
    let mut ends = Ends::default();
    let mut handles: Vec<JoinHandle<()>> = Vec::new();
    for _ in 0..jobs {
        match numbers.below(8) {
            0 => handles.push(executor.submit_at(Level::HIGH, |n| *n += 1)),
            1 => handles.push(executor.submit_at(Level::LOW, |n| *n += 1)),
            2 => handles.push(executor.post(|n| *n += 1)),
            3 => match executor.try_submit(|n| *n += 1) {
                Ok(handle) => handles.push(handle),
                Err(_) => ends.refused += 1,
            },
            4 => ends.count(executor.blocking_run(|n| *n += 1)),
            5 => handles
                .drain(..)
                .for_each(|handle| ends.count(block_on(handle))),
            _ => handles.push(executor.submit(|n| *n += 1)),
        }
    }
    for handle in handles {
        ends.count(block_on(handle));
    }
    ends
}

/// Shuts the executor down, again and again, once half of the jobs have run. Returns the number of jobs aborted.
fn shut_down_half_way(
    executor: &SerialExecutor<usize>,
    jobs: usize,
    is_over: impl Fn() -> bool,
) -> usize {
    let mut aborted = 0;
    while !is_over() {
        let metrics = executor.metrics();
        if metrics.inline + metrics.queued > jobs as u64 / 2 {
            aborted += executor.shutdown_now();
        }
        thread::yield_now();
    }
    aborted
}

#[test]
fn each_job_ran_or_was_aborted_or_was_refused() {
    let runtime = multi_thread(2, "drain");
    let jobs = rounds(200, 2_000);
    for round in 0..rounds(20, 500) {
        let mut builder = SerialExecutor::builder();
        if round.is_multiple_of(2) {
            builder.queue_capacity(20);
        }
        let executor = builder.capture_jobs(round % 5).build(0).unwrap();
        let (ends, aborted) = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (executor, runtime) = (&executor, &runtime);
                    scope.spawn(move || {
                        let _in = runtime.enter();
                        submit_all(executor, round * THREADS + thread, jobs)
                    })
                })
                .collect();
            let is_over = || threads.iter().all(thread::ScopedJoinHandle::is_finished);
            let aborted = shut_down_half_way(&executor, THREADS * jobs, is_over);
            let ends = threads.into_iter().map(|thread| thread.join().unwrap());
            (ends.fold(Ends::default(), Ends::add), aborted)
        });
        assert_eq!(ends.aborted, aborted, "{ends:?}");
        assert_eq!(executor.metrics().queue_length, 0);
        assert_eq!(
            block_on(executor.into_inner()).unwrap(),
            ends.ran,
            "{ends:?}"
        );
    }
}

// ===== capture =====

thread_local! {
    static RAN_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Counts the jobs that run on a caller while eight threads submit without end: its own, which ends when `queued`
/// others are queued, and those that it captures.
fn held_for(executor: &SerialExecutor<()>, runtime: &Runtime, queued: usize, job: fn()) -> usize {
    let stop = Arc::new(AtomicBool::new(false));
    let ran = thread::scope(|scope| {
        let again = executor.clone();
        let (entered, has_entered) = channel();
        let caller = scope.spawn(|| {
            let _in = runtime.enter();
            let own = executor.submit(move |()| {
                entered.send(()).unwrap();
                let enough = || again.metrics().queue_length >= queued as u64;
                wait_until("the others have queued enough", enough);
                RAN_HERE.set(RAN_HERE.get() + 1);
            });
            assert!(own.is_finished());
            RAN_HERE.get()
        });
        receive(&has_entered);
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _in = runtime.enter();
                let deadline = Instant::now() + TEST_TIMEOUT;
                while !stop.load(Ordering::Relaxed) && Instant::now() < deadline {
                    drop(executor.submit(move |()| {
                        RAN_HERE.set(RAN_HERE.get() + 1);
                        job();
                    }));
                }
            });
        }
        let ran = caller.join();
        stop.store(true, Ordering::Relaxed);
        ran.unwrap()
    });
    executor.shutdown_now();
    block_on(executor.closed());
    ran
}

#[test]
fn a_caller_captures_as_many_jobs_as_it_may() {
    let runtime = multi_thread(1, "drain");
    for round in 0..rounds(2, 50) {
        for limit in [0, 1, 4, 16, 17, 100] {
            let executor = SerialExecutor::builder()
                .capture_jobs(limit)
                .capture_time(TEST_TIMEOUT)
                .build(())
                .unwrap();
            let ran = held_for(&executor, &runtime, limit + 4, || ());
            assert_eq!(ran, 1 + limit, "round {round}");
            assert!(executor.metrics().captured >= limit as u64);
        }
    }
}

#[test]
fn a_caller_captures_four_jobs_at_most_when_its_time_is_over() {
    const TIME: Duration = Duration::from_micros(20);
    fn long() {
        let start = Instant::now();
        while start.elapsed() < TIME {
            std::hint::spin_loop();
        }
    }
    let runtime = multi_thread(1, "drain");
    for round in 0..rounds(2, 50) {
        for (time, job) in [(Duration::ZERO, (|| ()) as fn()), (TIME, long)] {
            let executor = SerialExecutor::builder()
                .capture_jobs(usize::MAX)
                .capture_time(time)
                .build(())
                .unwrap();
            let ran = held_for(&executor, &runtime, 10, job);
            assert_eq!(ran, 1 + 4, "round {round}");
        }
    }
}
