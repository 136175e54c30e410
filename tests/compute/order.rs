//! Order where nothing can be stolen: in a pool of one thread, each submitter's tasks start as they came.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use throng::ComputePool;

use crate::pools::{Busy, of, output, rest, run};
use crate::support::receive;

/// The tasks that have run, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn entry(&self, n: u32) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.0.lock().unwrap().push(n)
    }

    #[track_caller]
    fn check(self, expected: impl Iterator<Item = u32>) {
        let log = self.0.lock().unwrap();
        assert!(log.iter().copied().eq(expected), "{log:?}");
    }
}

/// Submits in all ways, mixed.
fn submit_all_ways(pool: &ComputePool, log: &Log, numbers: std::ops::Range<u32>) {
    let mut numbers = numbers;
    while let Some(n) = numbers.next() {
        match n % 5 {
            0 => pool.execute(log.entry(n)),
            1 => drop(pool.spawn(log.entry(n))),
            2 => pool.try_execute(log.entry(n)).unwrap(),
            3 => {
                let rest: Vec<_> = std::iter::once(n).chain(numbers.by_ref().take(3)).collect();
                pool.execute_batch(rest.into_iter().map(|n| log.entry(n)));
            }
            _ => {
                let rest: Vec<_> = std::iter::once(n).chain(numbers.by_ref().take(6)).collect();
                drop(pool.spawn_batch(rest.into_iter().map(|n| log.entry(n))));
            }
        }
    }
}

#[test]
fn what_one_thread_submits_starts_in_that_order() {
    let (pool, log) = (of(1), Log::default());
    let busy = Busy::keep(&pool, 1);
    submit_all_ways(&pool, &log, 0..5_000);
    busy.release();
    rest(&pool);
    log.check(0..5_000);
}

#[test]
fn what_one_thread_submits_while_the_pool_runs_starts_in_that_order() {
    let (pool, log) = (of(1), Log::default());
    for part in 0..50 {
        submit_all_ways(&pool, &log, part * 400..(part + 1) * 400);
        thread::yield_now();
    }
    rest(&pool);
    log.check(0..20_000);
}

#[test]
fn a_batch_starts_in_its_order() {
    let (pool, log) = (of(1), Log::default());
    pool.execute_batch((0..5_000).map(|n| log.entry(n)));
    drop(pool.spawn_batch((5_000..9_000).map(|n| log.entry(n))));
    rest(&pool);
    log.check(0..9_000);
}

#[test]
fn an_abort_leaves_the_order_of_the_others() {
    let (pool, log) = (of(1), Log::default());
    let busy = Busy::keep(&pool, 1);
    for n in 0..1_000 {
        let handle = pool.spawn(log.entry(n));
        if n % 3 == 0 {
            handle.abort();
        }
    }
    busy.release();
    rest(&pool);
    log.check((0..1_000).filter(|n| n % 3 != 0));
}

#[test]
fn each_of_several_threads_keeps_its_order() {
    let pool = of(1);
    let logs = [(); 4].map(|()| Log::default());
    thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| submit_all_ways(&pool, log, 0..3_000));
        }
    });
    rest(&pool);
    for log in logs {
        log.check(0..3_000);
    }
}

#[test]
fn what_one_task_submits_starts_in_that_order() {
    let (pool, log) = (of(1), Log::default());
    let (own, own_log) = (pool.clone(), log.clone());
    output(pool.spawn(move || submit_all_ways(&own, &own_log, 0..5_000)));
    rest(&pool);
    log.check(0..5_000);
}

#[test]
fn each_of_several_tasks_keeps_its_order_beside_threads() {
    let pool = of(1);
    let logs = [(); 8].map(|()| Log::default());
    let (of_tasks, of_threads) = logs.split_at(4);
    thread::scope(|scope| {
        for log in of_threads {
            scope.spawn(|| submit_all_ways(&pool, log, 0..2_000));
        }
        for log in of_tasks {
            let (own, log) = (pool.clone(), log.clone());
            pool.execute(move || {
                // Parts, between which others may run.
                for part in 0..10 {
                    let (own_too, log) = (own.clone(), log.clone());
                    own.execute(move || {
                        submit_all_ways(&own_too, &log, part * 200..(part + 1) * 200);
                    });
                }
            });
        }
    });
    rest(&pool);
    for log in logs {
        log.check(0..2_000);
    }
}

/// The order is that of the submissions, not that of the reservations.
#[test]
fn a_permit_reserves_no_position_in_the_order() {
    let (pool, log) = (of(1), Log::default());
    let busy = Busy::keep(&pool, 1);
    run(async {
        let permit = pool.reserve().await.unwrap();
        pool.execute(log.entry(0));
        permit.execute(log.entry(1)).unwrap();
        drop(pool.reserve().await.unwrap().spawn(log.entry(2)));
    });
    busy.release();
    rest(&pool);
    log.check(0..3);
}

/// With several threads as well, where one task after the other is awaited.
#[test]
fn a_task_sees_what_an_awaited_one_did() {
    let pool = of(4);
    let (told, tells) = mpsc::channel();
    for n in 0..2_000 {
        let told = told.clone();
        output(pool.spawn(move || told.send(n).unwrap()));
        assert_eq!(receive(&tells), n);
    }
}
