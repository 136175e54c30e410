//! Trivial closures, one after the other or in windows.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use futures::executor::block_on;

use super::peers::{Pool, Shape};
use super::{Setup, Work};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample};

/// Closures that a submitter has in flight before it awaits them.
const WINDOW: u64 = 1_000;

/// Closures of one round.
const TASKS: u64 = 200_000;

/// Trivial closures in windows, from a number of tasks at once.
#[derive(Clone, Copy)]
pub(super) struct Throughput {
    pub(super) submitters: u64,
    pub(super) max: usize,
    /// Closures that each task has in flight before it awaits them.
    pub(super) window: u64,
}

impl Throughput {
    pub(super) fn in_windows(submitters: u64, max: usize) -> Self {
        Self {
            submitters,
            max,
            window: WINDOW,
        }
    }

    /// All closures of a round are in flight before the first one is awaited.
    pub(super) fn all_at_once(submitters: u64, max: usize) -> Self {
        Self {
            submitters,
            max,
            window: TASKS,
        }
    }
}

impl Work for Throughput {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let Setup { pool, runtime, .. } = Setup::<P>::new(Shape::of(self.max));
        rules.measure(rules.scaled(TASKS), |tasks| {
            on_worker(&runtime, self.submit(pool.clone(), tasks));
        })
    }
}

impl Throughput {
    async fn submit<P: Pool>(self, pool: P, tasks: u64) {
        let share = tasks / self.submitters;
        let first = tasks - share * (self.submitters - 1);
        let others: Vec<_> = (1..self.submitters)
            .map(|_| tokio::spawn(self.submit_share(pool.clone(), share)))
            .collect();
        self.submit_share(pool, first).await;
        for other in others {
            other.await.expect("a submitting task panicked");
        }
    }

    async fn submit_share<P: Pool>(self, pool: P, tasks: u64) {
        submit_windows(pool, tasks, self.window, |task| move || task).await;
    }
}

/// As [`Throughput`] from one task, of closures that capture 64 bytes.
#[derive(Clone, Copy)]
pub(super) struct Wide {
    pub(super) max: usize,
}

impl Work for Wide {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let Setup { pool, runtime, .. } = Setup::<P>::new(Shape::of(self.max));
        assert_eq!(size_of_val(&wide(0)), 64);
        rules.measure(rules.scaled(TASKS), |tasks| {
            on_worker(&runtime, submit_windows(pool.clone(), tasks, WINDOW, wide));
        })
    }
}

/// A closure that captures 64 bytes, and reads all of them.
fn wide(task: u64) -> impl FnOnce() -> u64 + Send + 'static {
    let words = [task; 8];
    move || black_box(words)[7]
}

/// Submits closures that capture a number and return it.
pub(super) async fn submit_trivial<P: Pool>(pool: P, tasks: u64) {
    submit_windows(pool, tasks, WINDOW, |task| move || task).await;
}

async fn submit_windows<P: Pool, F>(pool: P, tasks: u64, window: u64, closure: impl Fn(u64) -> F)
where
    F: FnOnce() -> u64 + Send + 'static,
{
    let mut handles = Vec::with_capacity(window.min(tasks) as usize);
    for begin in (0..tasks).step_by(window as usize) {
        let end = tasks.min(begin + window);
        handles.extend((begin..end).map(|task| pool.run(closure(task))));
        for (handle, task) in handles.drain(..).zip(begin..) {
            assert_eq!(handle.await, task);
        }
    }
}

/// One trivial closure at a time.
#[derive(Clone, Copy)]
pub(super) struct RoundTrip {
    pub(super) max: usize,
}

impl Work for RoundTrip {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let Setup { pool, runtime, .. } = Setup::<P>::new(Shape::of(self.max));
        rules.measure(rules.scaled(5_000), |tasks| {
            let pool = pool.clone();
            on_worker(&runtime, async move {
                for task in 0..tasks {
                    assert_eq!(pool.run(move || task).await, task);
                }
            });
        })
    }
}

/// Trivial closures from threads outside of any runtime, each of which waits for windows of its own.
#[derive(Clone, Copy)]
pub(super) struct Submitters {
    pub(super) threads: u64,
}

impl Work for Submitters {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let setup = Setup::<P>::new(Shape::of(4));
        let round = submitting_threads(self.threads, &setup.pool);
        rules.measure(rules.scaled(TASKS), round)
    }
}

/// Starts threads that submit their shares of a round. The returned closure runs a round.
fn submitting_threads<P: Pool>(number: u64, pool: &P) -> impl FnMut(u64) {
    let (done, all_done) = mpsc::channel();
    let start = |_| {
        let (order, orders) = mpsc::channel();
        let (pool, done) = (pool.clone(), done.clone());
        // The thread exits when the sender is dropped with the round.
        thread::spawn(move || {
            for share in orders {
                block_on(submit_trivial(pool.clone(), share));
                done.send(()).expect("a round waits for its submitters");
            }
        });
        order
    };
    let submitters: Vec<_> = (0..number).map(start).collect();
    move |tasks| {
        for (begin, submitter) in (0..).zip(&submitters) {
            let share = (tasks + begin) / number;
            submitter.send(share).expect("a submitter waits for orders");
        }
        for _ in &submitters {
            all_done.recv().expect("a submitter ends its share");
        }
    }
}
