//! Small pools, which Miri can run. Large ones are tested through the public interface.

use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;

use super::options::Limits;
use super::parker::Parker;
use super::state::State;
use super::stopwatch::Lap;
use super::{BlockingPool, Bulkhead};
use crate::join::{AbortHandle, JoinError, JoinHandle, Spawn, TrySpawnError, Work};
use crate::sync::Arc;
use crate::task::{Task, Thunk};

fn pool(threads: usize) -> BlockingPool {
    BlockingPool::builder().max_threads(threads).build_outside()
}

/// Waits for the end of a pool. Returns how many tasks have returned, have panicked, and were cancelled.
fn end(pool: &BlockingPool) -> (u64, u64, u64) {
    assert_eq!(pool.blocking_shutdown(Duration::MAX), 0);
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.queued), (0, 0), "{metrics:?}");
    (metrics.completed, metrics.panicked, metrics.cancelled)
}

/// Starts a task that ends when the sender is dropped.
fn gated(spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> JoinHandle<()>) -> Sender<()> {
    let (gate, closed) = mpsc::channel::<()>();
    let (tell, begun) = mpsc::channel();
    let task = move || {
        tell.send(()).expect("the test waits");
        assert!(closed.recv().is_err(), "nothing is sent");
    };
    drop(spawn(Box::new(task)));
    begun.recv().expect("it begins");
    gate
}

fn is_cancelled<T>(outcome: Result<T, JoinError>) -> bool {
    outcome.is_err_and(|error| error.is_cancelled())
}

fn closed<F>(refused: Result<JoinHandle<()>, TrySpawnError<F>>) -> F {
    match refused {
        Err(error) if error.is_closed() => error.into_inner(),
        other => panic!("the pool is closed: {:?}", other.map_err(drop)),
    }
}

/// A pool whose inbox is open, and whose only thread runs a task until the sender is dropped.
fn with_open_inbox() -> (BlockingPool, Sender<()>) {
    let pool = pool(1);
    let gate = gated(|task| pool.spawn_blocking(task));
    tasks_take(&pool, Duration::ZERO);
    // The submitter finds that tasks are short, and opens the inbox.
    drop(pool.spawn_blocking(|| ()));
    assert!(is_inbox_open(&pool));
    (pool, gate)
}

/// Records that many tasks have taken this time together.
fn tasks_take(pool: &BlockingPool, time: Duration) {
    let lap = Lap { tasks: 2_000, time };
    pool.shared().lock().lap_ended(Some(lap));
}

/// Pushes a task to the inbox if that is open.
fn is_inbox_open(pool: &BlockingPool) -> bool {
    let (task, _) = Task::joinable(Thunk(|| ()));
    pool.shared().try_push(task).is_ok()
}

/// Otherwise a thread that was never woken would be counted as one that was.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the thread has not parked")]
fn a_thread_that_has_not_parked_cannot_unpark() {
    let limits = Limits {
        core_threads: 0,
        max_threads: 2,
        keep_alive: Duration::MAX,
        core_timeout: false,
    };
    let mut state = State::new(limits);
    let [one, other] = [(); 2].map(|()| Arc::new(Parker::new()));
    state.park(&one);
    state.park(&other);
    // The other one is woken.
    assert!(Arc::ptr_eq(&state.wake_all()[1], &other));
    state.unpark(&one);
    state.unpark(&one);
}

/// The times of long tasks are recorded one by one, which takes the lock.
#[test]
fn the_inbox_is_closed_once_tasks_are_long() {
    let (pool, gate) = with_open_inbox();
    tasks_take(&pool, Duration::from_secs(1));
    let own = pool.clone();
    let was_open = pool.spawn_blocking(move || is_inbox_open(&own));
    // Without another task, the thread would close the inbox because it is empty.
    drop(pool.spawn_blocking(|| ()));
    drop(gate);
    assert!(!was_open.blocking_join().expect("it returns"));
}

/// The other thread runs a task, and takes none that would close the inbox.
#[test]
fn a_thread_that_is_one_too_many_closes_the_inbox() {
    let pool = pool(2);
    let [leaves, stays] = [(); 2].map(|()| gated(|task| pool.spawn_blocking(task)));
    tasks_take(&pool, Duration::ZERO);
    drop(pool.spawn_blocking(|| ()));
    assert!(is_inbox_open(&pool));
    pool.set_max_threads(1).expect("there are no core threads");
    tasks_take(&pool, Duration::ZERO);
    drop(pool.spawn_blocking(|| ()));
    tasks_take(&pool, Duration::from_secs(1));
    assert!(is_inbox_open(&pool));
    drop(leaves);
    while pool.metrics().threads == 2 {
        thread::yield_now();
    }
    assert!(!is_inbox_open(&pool));
    drop(stays);
}

/// Tasks in the sample are queued with the lock, and the others are pushed to the inbox.
#[test]
fn tasks_of_one_submitter_start_in_order() {
    const TASKS: usize = 500;
    let (pool, gate) = with_open_inbox();
    let started = Arc::new(Mutex::new(Vec::new()));
    let spawn = |task| {
        let started = Arc::clone(&started);
        pool.spawn_blocking(move || started.lock().expect("no task panics").push(task))
    };
    let handles: Vec<_> = (0..TASKS).map(spawn).collect();
    drop(gate);
    for handle in handles {
        handle.blocking_join().expect("it returns");
    }
    let started = started.lock().expect("no task panics");
    assert!(started.iter().copied().eq(0..TASKS), "{started:?}");
}

#[test]
fn tasks_return_and_panic() {
    let pool = pool(2);
    let bulkhead = pool.bulkhead(1, 5).unwrap();
    let witness = Arc::new(());
    let share = || {
        let share = witness.clone();
        move || share
    };
    for handle in pool.spawn_batch([share(), share()]) {
        drop(handle.blocking_join().expect("it returns"));
    }
    // These are detached.
    drop(pool.spawn_blocking(share()));
    drop(bulkhead.spawn_blocking(share()));
    let panics = [
        pool.spawn_blocking(|| panic!("as the test wants it")),
        bulkhead.spawn_blocking(|| panic!("as the test wants it")),
    ];
    for handle in panics {
        let ended: Result<(), _> = handle.blocking_join();
        assert!(ended.is_err_and(|error| error.is_panic()));
    }
    assert_eq!(end(&pool), (4, 2, 0));
    assert_eq!(Arc::strong_count(&witness), 1);
}

/// A closure is moved out of its cell, even if that is inside the cell of a carrier.
#[test]
fn a_closed_pool_returns_the_closure() {
    let pool = pool(1);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    pool.close();
    let witness = Arc::new(String::from("whole"));
    let share = || {
        let share = witness.clone();
        move || assert_eq!(*share, "whole")
    };
    closed(pool.try_spawn_blocking(share()))();
    closed(bulkhead.try_spawn_blocking(share()))();
    for handle in pool.spawn_batch([share(), share()]) {
        assert!(handle.blocking_join().is_err_and(|error| error.is_closed()));
    }
    let inner = share();
    let work = Work::future(async move { inner() });
    pool.spawn_work(work).expect_err("it is closed").run();
    assert_eq!(Arc::strong_count(&witness), 1);
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
    assert_eq!((end(&pool), pool.metrics().rejected), ((0, 0, 0), 5));
}

/// A pool of one thread that is busy, and a bulkhead with a task in the pool and one that waits.
fn all_waiting(witness: &Arc<()>) -> (BlockingPool, Bulkhead, Sender<()>, Vec<JoinHandle<()>>) {
    let share = || {
        let share = witness.clone();
        move || drop(share)
    };
    let pool = pool(1);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let gate = gated(|task| pool.spawn_blocking(task));
    let waiting = vec![
        pool.spawn_blocking(share()),
        bulkhead.spawn_blocking(share()),
        bulkhead.spawn_blocking(share()),
    ];
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (1, 1));
    (pool, bulkhead, gate, waiting)
}

#[test]
fn an_abort_drops_a_task_wherever_it_waits() {
    let witness = Arc::new(());
    let (pool, bulkhead, gate, waiting) = all_waiting(&witness);
    for handle in waiting {
        handle.abort();
        assert!(is_cancelled(handle.blocking_join()));
    }
    assert_eq!(Arc::strong_count(&witness), 1);
    drop(gate);
    assert_eq!(end(&pool), (1, 0, 3));
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
}

#[test]
fn a_shutdown_now_aborts_tasks_wherever_they_wait() {
    let witness = Arc::new(());
    let (pool, bulkhead, gate, waiting) = all_waiting(&witness);
    // Tasks that wait in the bulkhead are not counted.
    assert_eq!(pool.shutdown_now(), 2);
    assert!(
        waiting
            .into_iter()
            .all(|handle| is_cancelled(handle.blocking_join()))
    );
    assert_eq!(Arc::strong_count(&witness), 1);
    drop(gate);
    assert_eq!(end(&pool), (1, 0, 3));
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
}

/// Tasks of a pool of one thread that wait for others, of the pool and of a bulkhead.
#[test]
fn a_task_that_waits_runs_the_other_or_a_compensating_thread_does() {
    let pool = pool(1);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let waits: [fn(JoinHandle<u32>) -> u32; 2] = [
        |handle| handle.blocking_join().expect("it returns"),
        |handle| block_on(handle).expect("it returns"),
    ];
    for wait in waits {
        let (inner, bulkhead) = (pool.clone(), bulkhead.clone());
        let outer = pool.spawn_blocking(move || {
            wait(inner.spawn_blocking(|| 1)) + wait(bulkhead.spawn_blocking(|| 2))
        });
        assert_eq!(outer.blocking_join().expect("it returns"), 3);
    }
    assert_eq!(end(&pool), (6, 0, 0));
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
}

/// A thread takes a task while another thread aborts it and a third one waits for it.
#[test]
fn runs_and_aborts_meet() {
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 500 };
    let pool = pool(2);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let witness = Arc::new(());
    let mut ran = 0;
    for _ in 0..ROUNDS {
        let (one, two) = (witness.clone(), witness.clone());
        let handles = [
            pool.spawn_blocking(move || drop(one)),
            bulkhead.spawn_blocking(move || drop(two)),
        ];
        let aborts = handles.each_ref().map(JoinHandle::abort_handle);
        thread::scope(|scope| {
            scope.spawn(|| aborts.iter().for_each(AbortHandle::abort));
            for handle in handles {
                match handle.blocking_join() {
                    Ok(()) => ran += 1,
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
        });
        assert_eq!(Arc::strong_count(&witness), 1);
    }
    assert_eq!(end(&pool), (ran, 0, 2 * ROUNDS - ran));
}
