//! Under load, each task ends exactly once.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;

use throng::{ComputePool, JoinHandle};

use crate::pools::{of, rest};
use crate::support::{Numbers, join, rounds};

const PRODUCERS: usize = 8;
/// The number of tasks that a producer submits before it checks their outcomes.
const PART: usize = 2_500;

/// In the account of a task: it has run.
const RAN: u8 = 1;
/// It was dropped without having run.
const DROPPED: u8 = 16;

/// The part of a producer: what became of each of its tasks.
struct Account(Box<[AtomicU8]>);

/// A task, which enters into the account what becomes of it.
struct Entry {
    account: Arc<Account>,
    index: usize,
    ran: bool,
}

impl Account {
    fn new() -> Arc<Self> {
        Arc::new(Self((0..PART).map(|_| AtomicU8::new(0)).collect()))
    }

    /// The task of this index. It panics if it should.
    fn task(self: &Arc<Self>, index: usize, panics: bool) -> impl FnOnce() + Send + 'static {
        let entry = Entry {
            account: Arc::clone(self),
            index,
            ran: false,
        };
        move || {
            let mut entry = entry;
            entry.enter(RAN);
            entry.ran = true;
            if panics {
                resume_unwind(Box::new("as it should"));
            }
        }
    }

    /// The number of tasks that have ended in this way.
    fn count(&self, way: u8) -> usize {
        let entries = self.0.iter();
        entries
            .filter(|entry| entry.load(Ordering::SeqCst) == way)
            .count()
    }
}

impl Entry {
    fn enter(&self, what: u8) {
        self.account.0[self.index].fetch_add(what, Ordering::SeqCst);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.ran {
            self.enter(DROPPED);
        }
    }
}

/// Submits a part in all ways, aborts some, and returns the handles of those.
fn submit(pool: &ComputePool, account: &Arc<Account>, numbers: &mut Numbers) -> Vec<Kept> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < PART {
        let panics = numbers.below(20) == 0;
        let batch = numbers.below(60) as usize;
        let end = PART.min(index + batch);
        let handles = match numbers.below(6) {
            0 => {
                pool.execute_batch((index..end).map(|index| account.task(index, panics)));
                index = end;
                continue;
            }
            1 => {
                let tasks = (index..end).map(|index| account.task(index, panics));
                index = end;
                pool.spawn_batch(tasks)
            }
            way => {
                let task = account.task(index, panics);
                index += 1;
                match way {
                    2 => vec![pool.spawn(task)],
                    3 => vec![pool.spawn_keyed(&numbers.below(8), task)],
                    4 => vec![pool.spawn_keyed(&numbers.below(1 << 20), task)],
                    _ => {
                        pool.execute(task);
                        continue;
                    }
                }
            }
        };
        for handle in handles {
            match numbers.below(4) {
                0 => drop(handle),
                1 => {
                    handle.abort();
                    kept.push(Kept { handle, panics });
                }
                _ => kept.push(Kept { handle, panics }),
            }
        }
    }
    kept
}

struct Kept {
    handle: JoinHandle<()>,
    panics: bool,
}

#[test]
fn each_task_ends_exactly_once() {
    let parts = rounds(200_000, 10_000_000) / PART / PRODUCERS;
    let pool = of(3);
    let (all_ran, all_aborted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (pool, all_ran, all_aborted) = (&pool, &all_ran, &all_aborted);
            scope.spawn(move || {
                let mut numbers = Numbers::new(producer as u64 + 1);
                for _ in 0..parts {
                    let account = Account::new();
                    let kept = submit(pool, &account, &mut numbers);
                    let mut aborted = 0;
                    for Kept { handle, panics } in kept {
                        match join(handle) {
                            Ok(()) => assert!(!panics),
                            Err(error) if error.is_cancelled() => aborted += 1,
                            Err(error) => assert!(error.is_panic() && panics, "{error}"),
                        }
                    }
                    // All have ended when the account is ours alone.
                    crate::support::wait_until("all have ended", || {
                        Arc::strong_count(&account) == 1
                    });
                    let (ran, dropped) = (account.count(RAN), account.count(DROPPED));
                    assert_eq!((ran + dropped, dropped), (PART, aborted));
                    all_ran.fetch_add(ran, Ordering::Relaxed);
                    all_aborted.fetch_add(aborted, Ordering::Relaxed);
                }
            });
        }
    });
    let (ran, aborted) = (all_ran.into_inner(), all_aborted.into_inner());
    println!("{ran} ran, {aborted} were aborted");
    assert_eq!(ran + aborted, parts * PART * PRODUCERS);
    let metrics = rest(&pool);
    assert_eq!(
        (metrics.rejected, metrics.cancelled),
        (0, metrics.cancelled)
    );
}

/// Sleeping and waking, over and over: no task is left behind.
#[test]
fn no_task_is_left_to_a_thread_that_falls_asleep() {
    let mut numbers = Numbers::new(1);
    for threads in [1, 2, 3] {
        let pool = of(threads);
        for n in crate::pools::hunt(0.7) {
            let handle = match n % 3 {
                0 => pool.spawn(move || n),
                1 => pool.spawn_keyed(&n, move || n),
                _ => pool.spawn_batch([move || n]).remove(0),
            };
            assert_eq!(join(handle).ok(), Some(n));
            crate::pools::jitter(&mut numbers, 100);
        }
    }
}
