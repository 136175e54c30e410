//! The maximum number of handles of one task.

use std::panic::catch_unwind;

use throng::JoinHandle;

use crate::busy_pool;
use crate::support::{Drops, ready, wait_until};

/// Creates handles of the task until that panics.
fn use_up_handles<T>(task: &JoinHandle<T>) {
    let refused = catch_unwind(|| {
        for _ in 0..=1 << 24 {
            std::mem::forget(task.abort_handle());
        }
    });
    assert!(refused.is_err(), "there is no limit");
}

#[test]
fn a_task_with_the_maximum_number_of_handles_is_aborted() {
    let (pool, busy, gate) = busy_pool();
    let captured = Drops::new();
    let capture = captured.value();
    let task = pool.spawn_blocking(move || drop(capture));
    let abort = task.abort_handle();
    use_up_handles(&task);
    abort.abort();
    assert!(abort.is_finished());
    assert_eq!(captured.count(), 1);
    assert!(ready(task).unwrap_err().is_cancelled());

    let task = pool.spawn_blocking(|| ());
    use_up_handles(&task);
    task.abort();
    assert!(ready(task).unwrap_err().is_cancelled());
    gate.open();
    busy.blocking_join().unwrap();
}

#[test]
fn a_task_with_the_maximum_number_of_handles_is_awaited() {
    let pool = throng::BlockingPool::builder()
        .max_threads(1)
        .build()
        .unwrap();
    let inner = pool.clone();
    // The only thread waits for the inner task, so it runs that itself.
    let outer = pool.spawn_blocking(move || {
        let task = inner.spawn_blocking(|| 7);
        use_up_handles(&task);
        task.blocking_join().unwrap()
    });
    wait_until("the task has ended", || outer.is_finished());
    assert_eq!(ready(outer).unwrap(), 7);
}
