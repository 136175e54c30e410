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

/// With a limit on the address space there is room for one of two large stacks.
#[cfg(target_os = "linux")]
mod with_one_thread {
    use throng::ComputePool;

    use crate::pools::output;
    use crate::pools::process::{is_own, threads_called};
    use crate::support::wait_until;

    const STACK: usize = 1 << 30;
    const LIMIT_KIB: usize = 7 * STACK / 4 / 1024;

    #[test]
    fn the_threads_that_there_were_end_when_another_is_refused() {
        let name =
            "no_thread::with_one_thread::the_threads_that_there_were_end_when_another_is_refused";
        if !is_own(name, &format!("ulimit -v {LIMIT_KIB} || exit")) {
            return;
        }
        let mut builder = ComputePool::builder();
        builder.name("refused").thread_stack_size(STACK);
        // All, since one that has just begun does not have its name yet.
        let others = || threads_called("").len() - threads_called("throng-steward").len();
        let before = others();
        for _ in 0..3 {
            builder.threads(4).build().unwrap_err();
            wait_until("the thread has ended", || others() == before);
            // And its stack is there for another.
            let pool = builder.threads(1).build().unwrap();
            assert_eq!(output(pool.spawn(|| "ran")), "ran");
            assert_eq!(threads_called("refused-").len(), 1);
            drop(pool);
            wait_until("the thread has ended", || others() == before);
        }
    }
}
