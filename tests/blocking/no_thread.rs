//! A system that refuses threads: nothing hangs, and tasks that cannot run are rejected.

#![cfg(target_pointer_width = "64")]

use std::error::Error;
use std::thread;

use futures::FutureExt;
use throng::{BlockingPool, JoinError};

use crate::pools::{rounds_for, run};
use crate::support::join;

/// A pool that gets no thread, since its stacks are as large as the address space.
fn impossible(tasks: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(tasks)
        .queue_capacity(0)
        .thread_stack_size(1 << 47)
        .build()
        .unwrap()
}

fn assert_refused(error: &JoinError) {
    assert!(error.is_rejected() && !error.is_closed() && !error.is_cancelled());
    let source = error.source().expect("the error of the system");
    assert!(source.is::<std::io::Error>());
}

#[test]
fn without_any_thread_the_closure_is_returned() {
    let pool = impossible(100);
    for attempt in 1..=3 {
        let error = pool.try_spawn_blocking(|| "handed back").unwrap_err();
        assert!(error.source().is_some());
        assert!(error.source().is_some() && !error.is_full());
        assert_eq!(error.into_inner()(), "handed back");
        let metrics = pool.metrics();
        assert_eq!(
            (metrics.spawn_failures, metrics.rejected),
            (attempt, attempt)
        );
    }
    assert_refused(&join(pool.spawn_blocking(|| ())).unwrap_err());
    let permit = run(pool.reserve()).unwrap();
    assert_refused(&join(permit.spawn_blocking(|| ())).unwrap_err());

    let metrics = pool.metrics();
    assert_eq!((metrics.spawn_failures, metrics.rejected), (5, 5));
    assert_eq!((metrics.submitted, metrics.queued), (0, 0));
    assert_eq!((metrics.threads, metrics.largest), (0, 0));
    pool.close();
    run(pool.closed());
}

#[test]
fn a_refused_task_releases_its_permit() {
    let pool = impossible(1);
    for _ in 0..10 {
        let error = pool.try_spawn_blocking(|| ()).unwrap_err();
        assert!(error.source().is_some());
    }
}

/// A task may be queued for a thread of another submitter that the system then refuses.
#[test]
fn no_task_waits_for_a_thread_that_never_comes() {
    const TASKS: usize = 4 * 8;
    for _ in rounds_for(0.5) {
        let pool = impossible(TASKS);
        let handles = thread::scope(|scope| {
            let submitters =
                [(); 4].map(|()| scope.spawn(|| [(); 8].map(|()| pool.spawn_blocking(|| ()))));
            submitters.map(|submitter| submitter.join().unwrap())
        });
        for handle in handles.into_iter().flatten() {
            assert_refused(&join(handle).unwrap_err());
        }
        let metrics = pool.metrics();
        assert_eq!((metrics.threads, metrics.queued), (0, 0));
        assert!(metrics.spawn_failures > 0);
        assert_eq!(metrics.submitted + metrics.rejected, TASKS as u64);
        // All permits are free again.
        let permits: Vec<_> = (0..TASKS)
            .map(|_| pool.reserve().now_or_never().expect("at once").unwrap())
            .collect();
        assert!(pool.reserve().now_or_never().is_none());
        drop(permits);
        pool.close();
        run(pool.closed());
    }
}

/// Under a limit, the address space holds only one large stack.
#[cfg(target_os = "linux")]
mod with_one_thread {
    use std::env;
    use std::process::{Command, Output};
    use std::time::{Duration, Instant};

    use throng::BlockingPool;

    use crate::pools::{Busy, output, when_idle};
    use crate::support::{threads_called, wait_until};

    const STACK: usize = 1 << 30;
    const LIMIT_KIB: usize = 7 * STACK / 4 / 1024;
    const IN_CHILD: &str = "THRONG_TEST_IN_CHILD";

    #[test]
    fn a_refused_thread_leaves_the_task_to_existing_threads() {
        if env::var_os(IN_CHILD).is_some() {
            return in_child();
        }
        let name =
            "no_thread::with_one_thread::a_refused_thread_leaves_the_task_to_existing_threads";
        // A sanitizer needs more address space than that.
        if !limited(&["--list"]).status.success() {
            eprintln!("NOT RUN: the tests do not start in {LIMIT_KIB} KiB of address space");
            return;
        }
        let child = limited(&["--exact", name, "--test-threads=1", "--nocapture"]);
        let said = String::from_utf8_lossy(&child.stdout);
        let complained = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}{complained}");
        assert!(said.contains("1 passed"), "it did not run: {said}");
    }

    /// Runs this program again with little address space.
    fn limited(args: &[&str]) -> Output {
        Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -v {LIMIT_KIB} && exec \"$0\" \"$@\""))
            .arg(env::current_exe().unwrap())
            .args(args)
            .env(IN_CHILD, "1")
            .output()
            .unwrap()
    }

    fn in_child() {
        let pool = BlockingPool::builder()
            .thread_stack_size(STACK)
            .name("refused")
            .keep_alive(Duration::from_millis(1))
            .build()
            .unwrap();
        let busy = Busy::keep(&pool, 1);
        assert_eq!(pool.metrics().spawn_failures, 0);

        // The system refuses, but a thread exists: the tasks wait for it. After a refusal, no thread is created for
        // 50 ms.
        let asked = Instant::now();
        let queued = [(); 100].map(|()| pool.try_spawn_blocking(|| ()).unwrap());
        let pauses = asked.elapsed().as_millis() as u64 / 50;
        let metrics = pool.metrics();
        assert_eq!((metrics.threads, metrics.queued), (1, 100));
        assert!(
            (1..=1 + pauses).contains(&metrics.spawn_failures),
            "{metrics:?}"
        );
        busy.release();
        queued.into_iter().for_each(output);
        assert_eq!(when_idle(&pool).rejected, 0);

        // Once the stack of that thread is freed, another fits.
        wait_until("the thread has ended", || {
            threads_called("refused").is_empty()
        });
        let failures = pool.metrics().spawn_failures;
        assert_eq!(output(pool.spawn_blocking(|| "again")), "again");
        assert_eq!(pool.metrics().spawn_failures, failures);
    }
}
