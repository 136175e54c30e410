//! The whole pool on many random schedules.

use std::panic::resume_unwind;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, thread};

use super::{BlockingPool, Bulkhead, Metrics, Overflow};
use crate::join::{JoinError, JoinHandle};

const SCHEDULES: usize = 3_000;

fn pool(core: usize, max: usize, capacity: usize) -> BlockingPool {
    BlockingPool::builder()
        .core_threads(core)
        .max_threads(max)
        .queue_capacity(capacity)
        .build_outside()
}

/// Every accepted task runs once, while other threads submit and abort, and the bounds hold.
#[test]
fn shuttle_every_accepted_task_ends_once() {
    check_pct(
        || {
            let pool = pool(1, 3, 2);
            let (running, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let submitters: Vec<_> = (0..3)
                .map(|submitter| {
                    let (pool, running, ran) = (pool.clone(), running.clone(), ran.clone());
                    thread::spawn(move || submit_some(&pool, submitter, &running, &ran))
                })
                .collect();
            let returned: usize = submitters
                .into_iter()
                .map(|submitter| submitter.join().unwrap())
                .sum();
            assert_eq!(returned, ran.load(Ordering::Relaxed));
            pool.close();
            block_on(pool.closed());
            assert_eq!(pool.metrics().threads, 0);
        },
        SCHEDULES,
        3,
    );
}

/// Submits four tasks and aborts one. Returns how many returned.
fn submit_some(
    pool: &BlockingPool,
    submitter: usize,
    running: &Arc<AtomicUsize>,
    ran: &Arc<AtomicUsize>,
) -> usize {
    let handles: Vec<_> = (0..4)
        .map(|_| {
            let (running, ran) = (running.clone(), ran.clone());
            pool.spawn_blocking(move || {
                assert!(
                    running.fetch_add(1, Ordering::Relaxed) < 3,
                    "more than the maximum"
                );
                thread::yield_now();
                running.fetch_sub(1, Ordering::Relaxed);
                ran.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    handles[submitter].abort();
    let ended = handles
        .into_iter()
        .map(|handle| match handle.blocking_join() {
            Ok(()) => 1,
            Err(error) => {
                assert!(error.is_cancelled() || error.is_rejected(), "{error}");
                0
            }
        });
    ended.sum()
}

/// Waiters get permits, and a closed pool wakes those that still wait.
#[test]
fn shuttle_reservations() {
    check_pct(
        || {
            let pool = pool(0, 1, 0);
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let pool = pool.clone();
                    thread::spawn(move || {
                        let permit = block_on(pool.reserve()).unwrap();
                        permit.spawn_blocking(|| 7).blocking_join().unwrap()
                    })
                })
                .collect();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 7);
            }
            let held = block_on(pool.reserve()).unwrap();
            let late = {
                let pool = pool.clone();
                thread::spawn(move || block_on(pool.reserve()).is_err())
            };
            pool.close();
            drop(held);
            // It was woken by the close, or got its permit before that.
            late.join().unwrap();
        },
        SCHEDULES,
        3,
    );
}

/// Tasks that come while the pool is closed by the last handle.
#[test]
fn shuttle_submit_against_the_last_handle() {
    check_pct(
        || {
            let pool = pool(0, 2, 10);
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    let pool = pool.clone();
                    thread::spawn(move || {
                        let handle = pool.spawn_blocking(|| 1);
                        drop(pool);
                        handle.blocking_join().unwrap()
                    })
                })
                .collect();
            drop(pool);
            for submitter in submitters {
                assert_eq!(submitter.join().unwrap(), 1);
            }
        },
        SCHEDULES,
        3,
    );
}

/// Two tasks come to two idle threads, whose keep-alive may pass at any point, and the first waits
/// for the second. A thread that ends while a task is queued leaves the second behind the first.
#[test]
fn shuttle_a_task_that_waits_for_the_next() {
    check_pct(
        || {
            a_task_that_waits_for_the_next(&pool(0, 2, 10));
        },
        SCHEDULES,
        4,
    );
}

/// The same with threads that stay, and sleep until they are woken: the first one wakes the second.
#[test]
fn shuttle_a_woken_thread_wakes_the_next() {
    check_pct(
        || a_task_that_waits_for_the_next(&pool(2, 2, 10)),
        SCHEDULES,
        4,
    );
}

fn a_task_that_waits_for_the_next(pool: &BlockingPool) {
    // Two threads, each of which has met a task.
    let (tell, told) = shuttle::sync::mpsc::channel();
    let first = pool.spawn_blocking(move || told.recv().unwrap());
    let second = pool.spawn_blocking(move || tell.send(0).unwrap());
    first.blocking_join().unwrap();
    second.blocking_join().unwrap();

    let (tell, told) = shuttle::sync::mpsc::channel();
    let first = pool.spawn_blocking(move || told.recv().unwrap());
    let second = pool.spawn_blocking(move || tell.send(7).unwrap());
    assert_eq!(first.blocking_join().unwrap(), 7);
    second.blocking_join().unwrap();
}

/// The leaves of a tree whose branches are tasks that wait for one another, on few threads.
#[test]
fn shuttle_fork_and_join_is_never_refused() {
    fn leaves(pool: &BlockingPool, depth: u32) -> usize {
        if depth == 0 {
            return 1;
        }
        let branches = [(); 2].map(|()| {
            let own = pool.clone();
            pool.spawn_blocking(move || leaves(&own, depth - 1))
        });
        thread::yield_now();
        let counts = branches.map(|branch| branch.blocking_join().expect("it is not refused"));
        counts.into_iter().sum()
    }

    check_pct(
        || {
            let pool = pool(2, 2, 100);
            let own = pool.clone();
            let root = pool.spawn_blocking(move || leaves(&own, 4));
            assert_eq!(root.blocking_join().unwrap(), 16);
        },
        SCHEDULES,
        4,
    );
}

/// Threads that are idle, woken or at a task when there may be fewer: of what comes then, one runs at a time.
#[test]
fn shuttle_threads_beyond_the_maximum_take_no_task() {
    check_pct(
        || {
            let pool = pool(2, 3, 100);
            let first = [(); 3].map(|()| pool.spawn_blocking(thread::yield_now));
            thread::yield_now();
            pool.set_core_threads(0).unwrap();
            pool.set_max_threads(1).unwrap();
            let running = Arc::new(AtomicUsize::new(0));
            let then = [(); 3].map(|()| {
                let running = running.clone();
                pool.spawn_blocking(move || {
                    assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::Relaxed);
                })
            });
            for handle in first.into_iter().chain(then) {
                handle.blocking_join().unwrap();
            }
        },
        SCHEDULES,
        3,
    );
}

/// A pool and its bulkhead, used in every way at once.
#[derive(Clone)]
struct Everything {
    pool: BlockingPool,
    bulkhead: Bulkhead,
    /// The number of running tasks of the bulkhead.
    running: Arc<AtomicUsize>,
    /// The number of tasks that returned, and of those that panicked.
    ended: Arc<[AtomicUsize; 2]>,
}

/// The maximum number of threads, without compensating threads.
const MAX_THREADS: usize = 2;

/// Batches, bulkheads, tasks that wait for tasks, panics, aborts, setters, replaced tasks and both kinds of end: every
/// handle resolves, every task counts once, and no thread is left.
#[test]
fn shuttle_everything_adds_up() {
    check_pct(
        || {
            let all = Everything::new();
            let users = [(); 3].map(|()| {
                let all = all.clone();
                thread::spawn(move || all.use_at_random())
            });
            if thread_rng().gen_bool(0.5) {
                all.pool.shutdown_now();
            }
            for user in users {
                user.join().unwrap();
            }
            all.end();
        },
        SCHEDULES,
        3,
    );
}

impl Everything {
    fn new() -> Self {
        let pool = BlockingPool::builder()
            .core_threads(1)
            .max_threads(MAX_THREADS)
            .queue_capacity(1)
            .overflow(Overflow::DropOldest)
            .build_outside();
        Self {
            bulkhead: pool.bulkhead(1, 2).unwrap(),
            pool,
            running: Arc::new(AtomicUsize::new(0)),
            ended: Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]),
        }
    }

    fn use_at_random(&self) {
        let mut handles = Vec::new();
        for _ in 0..3 {
            match thread_rng().gen_range(0..8) {
                0 => handles.push(self.pool.spawn_blocking(self.task())),
                1 => handles.extend(self.pool.spawn_batch([self.task(), self.task()])),
                2 => handles.push(self.bulkhead.spawn_blocking(self.in_bulkhead())),
                3 => handles.push(self.pool.spawn_blocking(self.panicking())),
                4 => handles.push(self.pool.spawn_blocking(self.waiting(false))),
                5 => handles.push(self.pool.spawn_blocking(self.waiting(true))),
                6 => self.set_at_random(),
                _ => handles.last().into_iter().for_each(JoinHandle::abort),
            }
            let threads = self.pool.metrics().threads;
            assert!(threads <= 2 * MAX_THREADS as u64, "{threads} threads");
        }
        for handle in handles {
            resolve(handle.blocking_join());
        }
    }

    fn set_at_random(&self) {
        let numbers = &mut thread_rng();
        // Which may be refused: there must not be more core threads than threads.
        let (core, max) = (numbers.gen_range(0..=1), numbers.gen_range(1..=MAX_THREADS));
        self.pool.set_core_threads(core).unwrap();
        self.pool.set_max_threads(max).unwrap();
        self.pool.set_keep_alive(Duration::from_secs(1));
    }

    fn task(&self) -> impl FnOnce() + Send + use<> {
        let ended = self.ended.clone();
        move || {
            thread::yield_now();
            ended[0].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn panicking(&self) -> impl FnOnce() + Send + use<> {
        let ended = self.ended.clone();
        move || {
            ended[1].fetch_add(1, Ordering::Relaxed);
            // Without a message.
            resume_unwind(Box::new(()))
        }
    }

    /// At most one task of the bulkhead runs at a time.
    fn in_bulkhead(&self) -> impl FnOnce() + Send + use<> {
        let (running, task) = (self.running.clone(), self.task());
        move || {
            let others = running.fetch_add(1, Ordering::Relaxed);
            assert_eq!(others, 0, "more than the bulkhead may run");
            task();
            running.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits for another task of the pool or of the bulkhead.
    fn waiting(&self, polls: bool) -> impl FnOnce() + Send + use<> {
        let (all, task) = (self.clone(), self.task());
        move || {
            let inner = match thread_rng().gen_bool(0.5) {
                true => all.pool.spawn_blocking(all.task()),
                false => all.bulkhead.spawn_blocking(all.task()),
            };
            resolve(match polls {
                true => block_on(inner),
                false => inner.blocking_join(),
            });
            task();
        }
    }

    fn end(&self) {
        self.pool.close();
        block_on(self.pool.closed());
        let metrics = self.pool.metrics();
        let left = [metrics.threads, metrics.blocked, metrics.queued];
        assert_eq!(left, [0; 3], "{metrics:?}");
        assert_eq!(
            [self.bulkhead.metrics().busy, self.bulkhead.metrics().queued],
            [0; 2]
        );
        let ended = [metrics.completed, metrics.panicked];
        let counted = [0, 1].map(|way: usize| self.ended[way].load(Ordering::Relaxed) as u64);
        assert_eq!(ended, counted, "{metrics:?}");
        let Metrics {
            submitted,
            cancelled,
            ..
        } = metrics;
        assert_eq!(submitted, ended[0] + ended[1] + cancelled, "{metrics:?}");
    }
}

/// A task may end in any way, but it ends.
fn resolve(outcome: Result<(), JoinError>) {
    if let Err(error) = outcome {
        let refused = error.is_closed() || error.is_rejected();
        let ended = error.is_cancelled() || error.is_panic() || error.is_would_deadlock();
        assert!(refused || ended, "{error}");
    }
}
