//! Asynchronous jobs without a runtime.

use std::future::pending;
use std::sync::mpsc::channel;

use crate::blocking::BlockingPool;
use crate::serial::SerialExecutor;
use crate::sync::thread;

fn on_a_pool<S: Send + 'static>(state: S) -> SerialExecutor<S> {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    SerialExecutor::builder()
        .drain_on(pool)
        .build(state)
        .unwrap()
}

fn spawn(f: impl FnOnce() + Send + 'static) {
    drop(thread::Builder::new().spawn(f).unwrap());
}

#[test]
fn a_guard_is_used_and_dropped_elsewhere() {
    let executor = on_a_pool(vec![1]);
    let job = executor.submit_async(|mut list| async move {
        list.push(2);
        spawn(move || {
            assert_eq!(*list, [1, 2]);
            list.push(3);
        });
    });
    let seen = executor.submit(|list| list.clone());
    job.blocking_join().unwrap();
    assert_eq!(seen.blocking_join().unwrap(), [1, 2, 3]);
}

#[test]
fn a_job_waits_and_is_aborted() {
    let executor = on_a_pool(String::new());
    let (begun, has_begun) = channel();
    let job = executor.submit_async(|mut text| async move {
        text.push('a');
        begun.send(()).unwrap();
        pending::<()>().await;
        drop(text);
    });
    has_begun.recv().unwrap();
    job.abort();
    assert!(job.blocking_join().unwrap_err().is_cancelled());
    let seen = executor.submit(|text| text.clone());
    assert_eq!(seen.blocking_join().unwrap(), "a");
}

#[test]
fn a_job_panics_with_its_guard() {
    let executor = on_a_pool(vec![1]);
    let job = executor.submit_async(|mut list| async move {
        list.clear();
        std::panic::resume_unwind(Box::new(()));
    });
    let panicked: Result<(), _> = job.blocking_join();
    assert!(panicked.unwrap_err().is_panic());
    assert!(executor.clear_poison());
    let seen = executor.submit(|list| list.len());
    assert_eq!(seen.blocking_join().unwrap(), 0);
}
