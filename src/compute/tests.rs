//! Small pools, for Miri too: the behaviour of large ones is tested through the public interface.

use std::sync::mpsc;

use super::ComputePool;
use crate::sync::{Arc, AtomicUsize, Ordering};

fn pool(threads: usize) -> ComputePool {
    ComputePool::builder()
        .threads(threads)
        .build()
        .expect("there are threads")
}

/// Tasks from outside and from inside, some of which panic.
#[test]
fn tasks_of_all_kinds_run() {
    let pool = pool(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let (done, all) = mpsc::channel::<()>();
    for task in 0..20 {
        let (inner, ran, done) = (pool.clone(), ran.clone(), done.clone());
        pool.execute(move || {
            let (child, done) = (ran.clone(), done);
            inner.execute(move || {
                child.fetch_add(1, Ordering::Relaxed);
                drop(done);
            });
            assert_ne!(task, 7, "as the test wants it");
            ran.fetch_add(1, Ordering::Relaxed);
        });
    }
    drop(done);
    let handles = pool.spawn_batch((0..5).map(|n| move || n));
    let sum: u32 = handles
        .into_iter()
        .map(|handle| handle.blocking_join().expect("it returns"))
        .sum();
    assert_eq!(sum, 10);
    assert_eq!(
        pool.spawn_keyed("key", || 3)
            .blocking_join()
            .expect("it returns"),
        3
    );
    assert!(all.recv().is_err(), "the children drop it without a word");
    pool.close();
    while pool.shared().has_threads() {
        std::thread::yield_now();
    }
    assert_eq!(ran.load(Ordering::Relaxed), 20 + 19);
    assert_eq!(pool.metrics().panicked, 1);
}

/// The tasks behind a task that waits are dropped, with their captures.
#[test]
fn shutdown_now_drops_what_waits() {
    let pool = pool(1);
    let (open, gate) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    pool.execute(move || {
        entered.send(()).expect("the test waits");
        gate.recv().expect("the test opens it");
    });
    inside.recv().expect("it has begun");
    let witness = Arc::new(());
    for _ in 0..3 {
        let witness = witness.clone();
        pool.execute(move || drop(witness));
    }
    let (first, second) = (witness.clone(), witness.clone());
    let handle = pool.spawn(move || drop(first));
    let keyed = pool.spawn_keyed("key", move || drop(second));
    assert_eq!(pool.shutdown_now(), 5);
    assert_eq!(Arc::strong_count(&witness), 1);
    assert!(
        handle
            .blocking_join()
            .expect_err("it was dropped")
            .is_cancelled()
    );
    assert!(
        keyed
            .blocking_join()
            .expect_err("it was dropped")
            .is_cancelled()
    );
    open.send(()).expect("it waits");
}
