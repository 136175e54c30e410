//! The whole pool on many random schedules.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, thread};

use super::BlockingPool;

const SCHEDULES: usize = 3_000;

fn pool(core: usize, max: usize, capacity: usize) -> BlockingPool {
    BlockingPool::builder()
        .core_threads(core)
        .max_threads(max)
        .queue_capacity(capacity)
        .build_outside()
}

/// Every task that is accepted runs once, whoever submits, aborts and comes and goes meanwhile, and
/// the bounds hold.
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
            pool.shutdown();
            shuttle::future::block_on(pool.terminated());
            assert_eq!(pool.metrics().threads, 0);
        },
        SCHEDULES,
        3,
    );
}

/// Submits four tasks and aborts one; says how many returned.
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

/// Who waits for room gets it, and a closed pool tells who still waits.
#[test]
fn shuttle_reservations() {
    check_pct(
        || {
            let pool = pool(0, 1, 0);
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let pool = pool.clone();
                    thread::spawn(move || {
                        let permit = shuttle::future::block_on(pool.reserve()).unwrap();
                        permit.spawn_blocking(|| 7).blocking_join().unwrap()
                    })
                })
                .collect();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 7);
            }
            let held = shuttle::future::block_on(pool.reserve()).unwrap();
            let late = {
                let pool = pool.clone();
                thread::spawn(move || shuttle::future::block_on(pool.reserve()).is_err())
            };
            pool.shutdown();
            drop(held);
            // It was told of the end, or came before it and went.
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
