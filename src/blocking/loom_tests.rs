//! Models of the pool: threads that come and go against tasks that come.
//!
//! Time-outs are returns at arbitrary points (see `sync`), so a thread may reach its keep-alive before
//! or after each step of a submitter.

use loom::future::block_on;
use loom::thread;

use super::BlockingPool;

fn pool(core: usize, max: usize) -> BlockingPool {
    BlockingPool::builder()
        .core_threads(core)
        .max_threads(max)
        .build_outside()
}

/// A thread that reaches its keep-alive while a task comes takes it, or is replaced.
#[test]
fn loom_submit_against_keep_alive() {
    // With more preemptions more threads come and go than loom can have.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.map(|bound| bound.min(2));
    model.check(|| {
        let pool = pool(0, 1);
        assert_eq!(pool.spawn_blocking(|| 1).blocking_join().unwrap(), 1);
        assert_eq!(pool.spawn_blocking(|| 2).blocking_join().unwrap(), 2);
    });
}

#[test]
fn loom_two_submitters_and_one_thread() {
    loom::model(|| {
        let pool = pool(1, 1);
        let other = {
            let pool = pool.clone();
            thread::spawn(move || pool.spawn_blocking(|| 1).blocking_join().unwrap())
        };
        assert_eq!(pool.spawn_blocking(|| 2).blocking_join().unwrap(), 2);
        assert_eq!(other.join().unwrap(), 1);
    });
}

/// One thread is idle for good, two tasks come, and the first waits for the second: the second must
/// get a thread of its own.
#[test]
fn loom_a_task_that_waits_for_the_next() {
    // Three threads with many steps each: one preemption less than elsewhere keeps this in seconds.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.map(|bound| bound.saturating_sub(1));
    model.check(|| {
        let pool = pool(1, 2);
        pool.spawn_blocking(|| ()).blocking_join().unwrap();
        let (tell, told) = loom::sync::mpsc::channel();
        let first = pool.spawn_blocking(move || told.recv().unwrap());
        let second = pool.spawn_blocking(move || tell.send(7).unwrap());
        assert_eq!(first.blocking_join().unwrap(), 7);
        second.blocking_join().unwrap();
    });
}

/// A task that comes while the pool is closed is run or refused, and the pool ends.
#[test]
fn loom_submit_against_shutdown() {
    loom::model(|| {
        let pool = pool(0, 1);
        let submitter = {
            let pool = pool.clone();
            thread::spawn(move || match pool.spawn_blocking(|| 1).blocking_join() {
                Ok(one) => assert_eq!(one, 1),
                Err(error) => assert!(error.is_closed()),
            })
        };
        pool.shutdown();
        block_on(pool.terminated());
        submitter.join().unwrap();
    });
}

/// An idle core thread, which sleeps without a time-out, is told of the end.
#[test]
fn loom_shutdown_against_going_idle() {
    loom::model(|| {
        let pool = pool(1, 1);
        drop(pool.spawn_blocking(|| ()));
        pool.shutdown();
        block_on(pool.terminated());
        assert_eq!(pool.metrics().threads, 0);
    });
}

/// An abort meets the thread at a queued task.
#[test]
fn loom_abort_against_run() {
    loom::model(|| {
        let pool = pool(0, 1);
        let handle = pool.spawn_blocking(|| 1);
        handle.abort();
        match handle.blocking_join() {
            Ok(one) => assert_eq!(one, 1),
            Err(error) => assert!(error.is_cancelled()),
        }
    });
}
