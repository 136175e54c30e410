//! Closures that a compute pool refuses, and whose captures panic when they are dropped.

use throng::{ComputePool, JoinError};

use crate::support::{Drops, PanicsOnDrop, ready};

/// A closure that must not run, and whose capture panics.
fn panics_on_drop(drops: &Drops) -> impl FnOnce() + Send + 'static {
    let capture = PanicsOnDrop(drops.value());
    move || {
        let _capture = &capture;
        unreachable!("it was refused");
    }
}

/// Has the pool refuse a closure in each way in which it takes one.
fn refusals(pool: &ComputePool, is_as_expected: impl Fn(&JoinError) -> bool) {
    let drops = Drops::new();
    let one = pool.spawn(panics_on_drop(&drops));
    let keyed = pool.spawn_keyed("key", panics_on_drop(&drops));
    let many = pool.spawn_batch([panics_on_drop(&drops), panics_on_drop(&drops)]);
    for handle in many.into_iter().chain([one, keyed]) {
        let error = ready(handle).unwrap_err();
        assert!(is_as_expected(&error), "{error}");
    }
    assert_eq!(drops.count(), 4);
    assert_eq!(pool.metrics().rejected, 4);
}

#[test]
fn the_capture_of_a_closure_that_a_full_compute_pool_refuses_may_panic() {
    let mut builder = ComputePool::builder();
    let pool = builder.threads(1).max_outstanding(1).build().unwrap();
    let permit = ready(Box::pin(pool.reserve())).unwrap();
    refusals(&pool, JoinError::is_rejected);
    drop(permit);
}

#[test]
fn the_capture_of_a_closure_that_a_closed_compute_pool_refuses_may_panic() {
    let pool = ComputePool::builder().threads(1).build().unwrap();
    pool.close();
    refusals(&pool, JoinError::is_closed);
    let mut builder = ComputePool::builder();
    let pool = builder.threads(1).max_outstanding(1).build().unwrap();
    pool.close();
    refusals(&pool, JoinError::is_closed);
}
