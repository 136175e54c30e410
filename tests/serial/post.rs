//! `post`: jobs that do not run on their submitter.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use throng::SerialExecutor;

use crate::occupied::occupy;
use crate::support::{Drops, current_thread, join, multi_thread, ready, thread_name, within};

#[test]
fn post_returns_before_the_job_runs() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let returned = Arc::new(AtomicBool::new(false));
        let has_returned = Arc::clone(&returned);
        let handle = executor.post(move |()| has_returned.load(Ordering::SeqCst));
        assert!(!handle.is_finished());
        returned.store(true, Ordering::SeqCst);
        assert!(within(handle).await.unwrap());
        assert_eq!(executor.metrics().inline, 0);
        assert_eq!(executor.metrics().handed_over, 1);
    });
}

#[test]
fn post_goes_to_another_thread_if_there_is_one() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(());
    let _in = runtime.enter();
    assert_eq!(join(executor.post(|()| thread_name())).unwrap(), "drain");
}

#[test]
fn post_may_be_called_under_a_lock_that_the_job_takes() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(());
    let lock = Arc::new(Mutex::new(0));
    let _in = runtime.enter();
    let handles = {
        let mut held = lock.lock().unwrap();
        *held = 1;
        let job = |_| {
            let lock = Arc::clone(&lock);
            executor.post(move |()| *lock.lock().unwrap() += 1)
        };
        [(); 3].map(job)
    };
    for handle in handles {
        join(handle).unwrap();
    }
    assert_eq!(*lock.lock().unwrap(), 4);
}

#[test]
fn post_to_an_idle_executor_is_rejected_without_a_runtime() {
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let value = captured.value();
    let error = ready(executor.post(move |_| drop(value))).unwrap_err();
    assert!(error.is_rejected());
    assert!(error.source().unwrap().to_string().contains("runtime"));
    assert_eq!(captured.count(), 1);
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
}

#[test]
fn post_to_a_busy_executor_needs_no_runtime() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let handle = executor.post(|()| thread::current().id());
    assert!(!handle.is_finished());
    let holder = busy.release();
    assert_eq!(join(handle).unwrap(), holder);
}

#[test]
fn post_from_a_job_runs_after_it() {
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let inner = ready(executor.submit(move |n| {
        let inner = again.post(|n| *n * 10);
        *n = 5;
        inner
    }));
    assert_eq!(join(inner.unwrap()).unwrap(), 50);
}

#[test]
fn post_is_refused_as_submit_is() {
    let executor = SerialExecutor::new(());
    drop(executor.submit(|()| panic!("on purpose")));
    assert!(ready(executor.post(|()| ())).unwrap_err().is_poisoned());
    executor.close();
    assert!(ready(executor.post(|()| ())).unwrap_err().is_closed());
}
