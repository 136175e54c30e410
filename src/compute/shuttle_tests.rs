//! Whole pools on many random schedules. In models, every backlog is worth a wake-up, and a batch has two tasks.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, thread};

use super::ComputePool;
use crate::timer::Watchdog as _;

const SCHEDULES: usize = 3_000;

fn pool(threads: usize) -> ComputePool {
    ComputePool::builder().threads(threads).build().unwrap()
}

fn end(pool: &ComputePool) {
    pool.close();
    shuttle::future::block_on(pool.closed());
    assert_eq!(pool.metrics().queued, 0);
}

/// Three threads submit, from outside and from inside, in batches and one by one, while two workers
/// steal from one another: each task runs once.
#[test]
fn shuttle_every_task_runs_once() {
    check_pct(
        || {
            let (pool, ran) = (pool(2), Arc::new(AtomicUsize::new(0)));
            let submitters: Vec<_> = (0..3)
                .map(|submitter| {
                    let (pool, ran) = (pool.clone(), ran.clone());
                    thread::spawn(move || submit_some(&pool, submitter, &ran))
                })
                .collect();
            let submitted: usize = submitters
                .into_iter()
                .map(|submitter| submitter.join().unwrap())
                .sum();
            // The children are submitted by tasks that have been accepted, and so before the end.
            while ran.load(Ordering::Relaxed) < submitted {
                thread::yield_now();
            }
            end(&pool);
            assert_eq!(ran.load(Ordering::Relaxed), submitted);
            assert_eq!(pool.metrics().completed, submitted as u64);
        },
        SCHEDULES,
        3,
    );
}

fn submit_some(pool: &ComputePool, submitter: usize, ran: &Arc<AtomicUsize>) -> usize {
    let count = |ran: &Arc<AtomicUsize>| {
        let ran = ran.clone();
        move || {
            ran.fetch_add(1, Ordering::Relaxed);
        }
    };
    match submitter {
        0 => {
            pool.execute_batch((0..5).map(|_| count(ran)));
            5
        }
        1 => {
            let (inner, own, children) = (pool.clone(), count(ran), [count(ran), count(ran)]);
            pool.execute(move || {
                own();
                children.into_iter().for_each(|child| inner.execute(child));
            });
            3
        }
        _ => {
            (0..2).for_each(|_| pool.spawn(count(ran)).blocking_join().unwrap());
            2
        }
    }
}

/// Submits tasks while the pool ends. Each task runs or is dropped, and no wait lasts forever.
fn submit_against(shutdown: fn(&ComputePool)) {
    check_pct(
        move || {
            let pool = pool(2);
            let submitters: Vec<_> = (0..2)
                .map(|submitter| {
                    let pool = pool.clone();
                    thread::spawn(move || {
                        for task in 0..3 {
                            let handle = match submitter {
                                0 => pool.spawn(move || task),
                                _ => pool.spawn_keyed("key", move || task),
                            };
                            match handle.blocking_join() {
                                Ok(output) => assert_eq!(output, task),
                                Err(error) => assert!(error.is_closed() || error.is_cancelled()),
                            }
                        }
                    })
                })
                .collect();
            let ender = {
                let pool = pool.clone();
                thread::spawn(move || shutdown(&pool))
            };
            ender.join().unwrap();
            for submitter in submitters {
                submitter.join().unwrap();
            }
            end(&pool);
        },
        SCHEDULES,
        3,
    );
}

#[test]
fn shuttle_submit_against_close() {
    submit_against(ComputePool::close);
}

#[test]
fn shuttle_submit_against_shutdown_now() {
    submit_against(|pool| _ = pool.shutdown_now());
}

/// Tasks of two keys from two threads: one for each key at a time, and in the order of each thread.
#[test]
fn shuttle_keys_are_in_order() {
    check_pct(
        || {
            let pool = pool(2);
            let running = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    let (pool, running) = (pool.clone(), running.clone());
                    thread::spawn(move || submit_keyed(&pool, &running))
                })
                .collect();
            for submitter in submitters {
                submitter.join().unwrap();
            }
            end(&pool);
        },
        SCHEDULES,
        3,
    );
}

fn submit_keyed(pool: &ComputePool, running: &Arc<[AtomicUsize; 2]>) {
    let last = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let handles: Vec<_> = (1..=4)
        .map(|task| {
            let (key, running, last) = (task % 2, running.clone(), last.clone());
            pool.spawn_keyed(&key, move || {
                assert_eq!(
                    running[key].fetch_add(1, Ordering::Relaxed),
                    0,
                    "two at once"
                );
                assert!(
                    last[key].swap(task, Ordering::Relaxed) < task,
                    "out of order"
                );
                running[key].fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    for handle in handles {
        handle.blocking_join().unwrap();
    }
}

/// A task waits for another one behind it in its lane: the timer has another worker run that.
#[test]
fn shuttle_the_timer_helps_tasks_behind_a_long_one() {
    check_pct(
        || {
            let pool = pool(2);
            let (tell, told) = shuttle::sync::mpsc::channel();
            let done = Arc::new(AtomicUsize::new(0));
            let (waits, tells) = (done.clone(), done.clone());
            pool.execute_batch([
                Box::new(move || {
                    told.recv().unwrap();
                    waits.fetch_add(1, Ordering::Relaxed);
                }) as Box<dyn FnOnce() + Send>,
                Box::new(move || {
                    tell.send(()).unwrap();
                    tells.fetch_add(1, Ordering::Relaxed);
                }),
            ]);
            while done.load(Ordering::Relaxed) < 2 {
                pool.shared().check();
                thread::yield_now();
            }
            end(&pool);
        },
        SCHEDULES,
        3,
    );
}

/// Each worker runs the closure of a broadcast, scopes end, and `idle` returns.
#[test]
fn shuttle_broadcasts_scopes_and_idle() {
    check_pct(
        || {
            let pool = pool(2);
            let ran = Arc::new(AtomicUsize::new(0));
            let own = ran.clone();
            let handles = pool.broadcast(move |_| own.fetch_add(1, Ordering::Relaxed));
            pool.scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| _ = ran.fetch_add(1, Ordering::Relaxed));
                }
            });
            shuttle::future::block_on(pool.idle());
            assert_eq!(ran.load(Ordering::Relaxed), 4);
            drop(handles);
            end(&pool);
        },
        SCHEDULES,
        3,
    );
}
