//! Panics of tasks: who gets them, and how they are counted. `tests/join` has those of drops and wakers.

use std::panic::resume_unwind;
use std::thread::{self, ThreadId};

use throng::BlockingPool;
use throng::blocking::Metrics;

use crate::pools::{Busy, output, when_idle};
use crate::support::join;

/// A pool of one thread, which must survive the test.
struct OneThread {
    pool: BlockingPool,
    thread: ThreadId,
}

impl OneThread {
    fn new() -> Self {
        let pool = BlockingPool::builder().max_threads(1).build().unwrap();
        let thread = output(pool.spawn_blocking(|| thread::current().id()));
        when_idle(&pool);
        Self { pool, thread }
    }

    /// Checks that the thread has survived, and returns what was counted.
    #[track_caller]
    fn check(self) -> Metrics {
        let thread = output(self.pool.spawn_blocking(|| thread::current().id()));
        assert_eq!(thread, self.thread);
        let mut metrics = when_idle(&self.pool);
        assert_eq!((metrics.threads, metrics.largest), (1, 1));
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(metrics.submitted, ended);
        metrics.completed -= 2;
        metrics
    }
}

#[test]
fn a_panic_of_the_closure_reaches_the_handle() {
    let one = OneThread::new();
    let error = join(one.pool.spawn_blocking(|| panic!("as it should"))).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    let said = error.into_panic().downcast::<&str>().unwrap();
    assert_eq!(*said, "as it should");

    let number = 7;
    let error = join(one.pool.spawn_blocking(move || panic!("number {number}"))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("panicked with message \"number 7\""),
        "{text}"
    );

    let error = join(one.pool.spawn_blocking(|| resume_unwind(Box::new(7)))).unwrap_err();
    let payload = error.try_into_panic().unwrap();
    assert_eq!(*payload.downcast::<i32>().unwrap(), 7);
    let metrics = one.check();
    assert_eq!((metrics.completed, metrics.panicked), (0, 3));
}

#[test]
fn a_panic_of_a_detached_task_is_counted() {
    let one = OneThread::new();
    let busy = Busy::keep(&one.pool, 1);
    drop(one.pool.spawn_blocking(|| panic!("as it should")));
    busy.release();
    let metrics = one.check();
    assert_eq!((metrics.completed, metrics.panicked), (1, 1));
}
