//! Models of the pool: threads that start and exit against tasks that are submitted.
//!
//! A time-out returns at any point (see `sync`), so a thread may reach its keep-alive before or after each step of a
//! submitter.

use loom::future::block_on;
use loom::thread;

use super::{BlockingPool, Metrics, Overflow};
use crate::join::{JoinError, JoinHandle};

fn pool(core: usize, max: usize) -> BlockingPool {
    BlockingPool::builder()
        .core_threads(core)
        .max_threads(max)
        .build_outside()
}

/// Waits for the end of a pool. Then no thread is left, and each task is counted once.
fn end(pool: &BlockingPool) -> Metrics {
    pool.close();
    block_on(pool.closed());
    let metrics = pool.metrics();
    let left = (metrics.threads, metrics.blocked, metrics.queued);
    assert_eq!(left, (0, 0, 0), "{metrics:?}");
    let ended = metrics.completed + metrics.panicked + metrics.cancelled;
    assert_eq!(metrics.submitted, ended, "{metrics:?}");
    metrics
}

/// Returns 1 if the task has run, and 0 if it was cancelled.
fn has_run<T>(outcome: Result<T, JoinError>) -> u64 {
    match outcome {
        Ok(_) => 1,
        Err(error) => {
            assert!(error.is_cancelled(), "{error}");
            0
        }
    }
}

fn the_first_waits_for_the_second(pool: &BlockingPool) {
    let (tell, told) = loom::sync::mpsc::channel();
    let first = pool.spawn_blocking(move || told.recv().unwrap());
    // The first gets its answer, so there is no need to wait for the second, too.
    drop(pool.spawn_blocking(move || tell.send(7).unwrap()));
    assert_eq!(first.blocking_join().unwrap(), 7);
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
        the_first_waits_for_the_second(&pool);
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
        pool.close();
        block_on(pool.closed());
        let submitted = pool.metrics().submitted;
        submitter.join().unwrap();
        // After the end nothing was accepted.
        assert_eq!(pool.metrics().submitted, submitted);
    });
}

/// A thread runs a task of a pool that is closed: no other task is accepted meanwhile.
#[test]
fn loom_a_closed_pool_refuses_while_a_thread_runs() {
    loom::model(|| {
        let pool = pool(1, 1);
        drop(pool.spawn_blocking(|| ()));
        pool.close();
        let refused = pool.try_spawn_blocking(|| ());
        assert!(refused.is_err_and(|error| error.is_closed()));
        assert_eq!(end(&pool).completed, 1);
    });
}

/// An idle core thread, which sleeps without a time-out, is told of the end.
#[test]
fn loom_shutdown_against_going_idle() {
    loom::model(|| {
        let pool = pool(1, 1);
        drop(pool.spawn_blocking(|| ()));
        pool.close();
        block_on(pool.closed());
        assert_eq!(pool.metrics().threads, 0);
    });
}

/// An abort meets the thread at a queued task: one of the two counts it.
#[test]
fn loom_abort_against_run() {
    loom::model(|| {
        let pool = pool(1, 1);
        let handle = pool.spawn_blocking(|| 1);
        handle.abort();
        let ran = has_run(handle.blocking_join());
        assert_eq!(end(&pool).completed, ran);
    });
}

/// All that is queued is dropped when a thread is about to take it.
#[test]
fn loom_shutdown_now_against_take() {
    loom::model(|| {
        let pool = pool(1, 1);
        let handles = [1, 2].map(|n| pool.spawn_blocking(move || n));
        let dropped = pool.shutdown_now() as u64;
        let ran: u64 = handles
            .map(|handle| has_run(handle.blocking_join()))
            .iter()
            .sum();
        assert_eq!(ran + dropped, 2);
        assert_eq!(end(&pool).completed, ran);
    });
}

/// A task comes for which the oldest is dropped, when a thread is about to take that.
#[test]
fn loom_drop_oldest_against_take() {
    loom::model(|| {
        let pool = BlockingPool::builder()
            .core_threads(1)
            .max_threads(1)
            .queue_capacity(0)
            .overflow(Overflow::DropOldest)
            .build_outside();
        let oldest = pool.spawn_blocking(|| 1);
        let ran = match pool.spawn_blocking(|| 2).blocking_join() {
            Ok(_) => 1 + has_run(oldest.blocking_join()),
            // None waited.
            Err(error) => {
                assert!(error.is_rejected(), "{error}");
                assert_eq!(oldest.blocking_join().unwrap(), 1);
                1
            }
        };
        // The only permit is free again.
        assert!(pool.shared().try_acquire().is_ok());
        assert!(pool.shared().try_acquire().is_err());
        assert_eq!(end(&pool).completed, ran);
    });
}

/// Two tasks are submitted to a pool without threads, and the first waits for the second, so a second thread must be
/// created.
#[test]
fn loom_a_thread_that_starts_creates_the_next() {
    loom::model(|| {
        let pool = pool(2, 2);
        the_first_waits_for_the_second(&pool);
    });
}

/// There are to be fewer threads when two are about to take two tasks.
#[test]
fn loom_fewer_threads_against_take() {
    loom::model(|| {
        let pool = pool(0, 2);
        let handles = [1, 2].map(|n| pool.spawn_blocking(move || n));
        pool.set_max_threads(1).unwrap();
        let [first, second] = handles;
        assert_eq!(first.blocking_join().unwrap(), 1);
        assert_eq!(end(&pool).completed, 2);
        // It has ended, so this is no third wait.
        assert_eq!(second.blocking_join().unwrap(), 2);
    });
}

/// A task that waits for another of its pool.
fn nested(pool: &BlockingPool, wait: fn(JoinHandle<u32>) -> u32) -> JoinHandle<u32> {
    let inner = pool.clone();
    pool.spawn_blocking(move || wait(inner.spawn_blocking(|| 7)))
}

/// One thread waits for a task that another is about to take.
#[test]
fn loom_wait_inside_against_take() {
    loom::model(|| {
        let pool = pool(2, 2);
        let outer = nested(&pool, |inner| inner.blocking_join().unwrap());
        assert_eq!(outer.blocking_join().unwrap(), 7);
        assert_eq!(end(&pool).completed, 2);
    });
}

/// The only allowed thread polls a handle, and a compensating thread runs the task.
#[test]
fn loom_wait_inside_has_a_compensating_thread() {
    // Two waits, and a thread more: one preemption less than elsewhere keeps this in seconds.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.map(|bound| bound.saturating_sub(1));
    model.check(|| {
        let pool = pool(1, 1);
        let outer = nested(&pool, |inner| block_on(inner).unwrap());
        assert_eq!(outer.blocking_join().unwrap(), 7);
        assert_eq!(end(&pool).completed, 2);
    });
}

/// A task of a bulkhead ends while the next one is submitted.
#[test]
fn loom_submit_to_a_bulkhead_against_its_task() {
    loom::model(|| {
        let pool = pool(1, 1);
        let bulkhead = pool.bulkhead(1, 1).unwrap();
        let handles = [1, 2].map(|n| bulkhead.spawn_blocking(move || n));
        assert_eq!(end(&pool).completed, 2);
        assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
        assert_eq!(
            handles.map(|handle| handle.blocking_join().unwrap()),
            [1, 2]
        );
    });
}

/// A task of a bulkhead is aborted while the pool is about to run it.
#[test]
fn loom_abort_in_a_bulkhead_against_run() {
    loom::model(|| {
        let pool = pool(1, 1);
        let bulkhead = pool.bulkhead(1, 1).unwrap();
        let handle = bulkhead.spawn_blocking(|| 1);
        handle.abort();
        let ran = has_run(handle.blocking_join());
        assert_eq!(end(&pool).completed, ran);
    });
}
