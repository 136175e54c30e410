//! A system that gives no thread: the pool is not made, and leaves nothing behind.

#![cfg(target_pointer_width = "64")]

use throng::ComputePool;

#[test]
fn a_pool_whose_threads_are_refused_is_not_made() {
    for threads in [1, 3] {
        let mut builder = ComputePool::builder();
        // As large as the address space.
        builder.threads(threads).thread_stack_size(1 << 47);
        let error = builder.build().unwrap_err();
        assert_ne!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
}

/// A limit on the address space leaves room for one of two large stacks.
#[cfg(target_os = "linux")]
mod with_one_thread {
    use std::fs;
    use std::thread;
    use std::time::{Duration, Instant};

    use throng::ComputePool;

    use crate::pools::output;
    use crate::pools::process::is_own;
    use crate::support::{TEST_TIMEOUT, threads_called};

    const STACK: usize = 1 << 30;
    const LIMIT_KIB: usize = 7 * STACK / 4 / 1024;

    /// The names and states of all threads but the timer: one that has just begun has no name yet.
    fn threads() -> Vec<String> {
        let statuses = threads_called("").into_iter();
        let lines = statuses.filter_map(|status| {
            let status = fs::read_to_string(status).ok()?;
            let lines: Vec<_> = status.lines().collect();
            let state = lines.iter().find(|line| line.starts_with("State:"))?;
            Some(format!("{} {state}", lines.first()?))
        });
        lines.filter(|line| !line.contains("timer")).collect()
    }

    /// Waits until there are no more threads than that.
    #[track_caller]
    fn wait_for_end(before: usize) {
        let end = Instant::now() + TEST_TIMEOUT;
        while threads().len() != before {
            let left = threads();
            assert!(Instant::now() < end, "{left:?} are left, not {before}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_threads_that_there_were_end_when_another_is_refused() {
        let name =
            "no_thread::with_one_thread::the_threads_that_there_were_end_when_another_is_refused";
        if !is_own(name, &format!("ulimit -v {LIMIT_KIB} || exit")) {
            return;
        }
        let mut builder = ComputePool::builder();
        builder.name("refused").thread_stack_size(STACK);
        let before = threads().len();
        for _ in 0..3 {
            builder.threads(4).build().unwrap_err();
            wait_for_end(before);
            // And its stack is there for another.
            let pool = builder.threads(1).build().unwrap();
            assert_eq!(output(pool.spawn(|| "ran")), "ran");
            assert_eq!(threads_called("refused-").len(), 1);
            drop(pool);
            wait_for_end(before);
        }
    }
}
