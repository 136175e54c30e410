//! Ids of tasks.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;

use throng::{BlockingPool, Id, SerialExecutor, spawn_blocking, try_id};

use crate::support::{join, poll, ready, rounds, wait_until};
use crate::{held, inline};

#[test]
fn a_task_keeps_its_id() {
    let (mut handle, gate) = held(());
    let id = handle.id();
    let abort = handle.abort_handle();
    assert!(poll(&mut handle).is_pending());
    assert_eq!((handle.id(), abort.id()), (id, id));
    gate.open();
    wait_until("the task has ended", || handle.is_finished());
    ready(&mut handle).unwrap();
    assert_eq!((handle.id(), abort.id(), abort.clone().id()), (id, id, id));

    let handle = SerialExecutor::new(()).submit(|()| panic!("on purpose"));
    let id = handle.id();
    assert_eq!(handle.abort_handle().id(), id);
    assert_eq!(ready(handle).unwrap_err().id(), id);

    let handle = spawn_blocking(|| panic!("on purpose"));
    let id = handle.id();
    assert_eq!(join::<()>(handle).unwrap_err().id(), id);
}

#[test]
fn ids_are_unique() {
    const THREADS: usize = 4;
    let each = rounds(10_000, 1_000_000);
    let executor = SerialExecutor::new(());
    let barrier = Barrier::new(THREADS);
    let ids: Vec<HashSet<Id>> = thread::scope(|scope| {
        let spawner = || {
            barrier.wait();
            (0..each).map(|_| executor.submit(|()| ()).id()).collect()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(spawner)).collect();
        let ids = threads.into_iter().map(|thread| thread.join().unwrap());
        ids.collect()
    });
    let all: HashSet<Id> = ids.into_iter().flatten().collect();
    assert_eq!(all.len(), THREADS * each);
}

#[test]
fn an_id_can_be_compared_and_displayed() {
    let (first, second) = (inline(()).id(), inline(()).id());
    assert_ne!(first, second);
    assert_ne!(first < second, second < first);
    let number: u64 = first.to_string().parse().unwrap();
    assert_eq!(format!("{first:?}"), format!("Id({number})"));
}

#[test]
fn a_blocking_task_knows_its_id() {
    assert_eq!(try_id(), None);
    let task = spawn_blocking(try_id);
    let id = task.id();
    assert_eq!(join(task).unwrap(), Some(id));

    // A task that is run by the thread that waits for it is nested in another one.
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let inner_pool = pool.clone();
    let outer = pool.spawn_blocking(move || {
        let before = try_id();
        let inner = inner_pool.spawn_blocking(try_id);
        let id = inner.id();
        assert_eq!(inner.blocking_join().unwrap(), Some(id));
        assert_eq!(try_id(), before);
        before
    });
    let id = outer.id();
    assert_eq!(join(outer).unwrap(), Some(id));

    // A panic ends the scope, too.
    let panics = pool.spawn_blocking(|| panic!("on purpose"));
    assert!(join::<()>(panics).unwrap_err().is_panic());
    let task = pool.spawn_blocking(try_id);
    let id = task.id();
    assert_eq!(join(task).unwrap(), Some(id));
}
