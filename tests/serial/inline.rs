//! Jobs of an idle executor, which run at once.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng::{JoinHandle, SerialExecutor};

use crate::support::{TEST_TIMEOUT, current_thread, ready};

#[test]
fn an_idle_executor_runs_the_job_on_the_caller() {
    let executor = SerialExecutor::new(1);
    let handle = executor.submit(|n| {
        *n += 1;
        (*n, thread::current().id())
    });
    assert!(handle.is_finished());
    assert_eq!(ready(handle).unwrap(), (2, thread::current().id()));
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn a_job_runs_although_its_handle_is_dropped() {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| *n += 1));
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn a_clone_is_the_same_executor() {
    let executor = SerialExecutor::new(0);
    drop(executor.clone().submit(|n| *n += 1));
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn a_loop_over_ready_handles_lets_others_run() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0_u64);
        let fired = Arc::new(AtomicBool::new(false));
        let timer = tokio::spawn({
            let fired = Arc::clone(&fired);
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                fired.store(true, Ordering::SeqCst);
            }
        });
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !fired.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline, "the loop never yielded");
            executor.submit(|n| *n += 1).await.unwrap();
        }
        timer.await.unwrap();
    });
}

#[test]
fn a_job_is_anything_that_can_be_called_once_with_the_state() {
    fn named(n: &mut u32) -> u32 {
        *n
    }
    let executor = SerialExecutor::new(1);
    let pointer: fn(&mut u32) -> u32 = named;
    let boxed: Box<dyn FnOnce(&mut u32) -> u32 + Send> = Box::new(|n| *n);
    // Neither `Sync` nor callable twice.
    let (cell, list) = (Cell::new(0), vec![1]);
    let owns = move |n: &mut u32| {
        cell.set(*n);
        drop(list);
        cell.get()
    };
    let handles: [JoinHandle<u32>; 4] = [
        executor.submit(named),
        executor.submit(pointer),
        executor.submit(boxed),
        executor.submit(owns),
    ];
    assert_eq!(handles.map(|handle| ready(handle).unwrap()), [1; 4]);
}
