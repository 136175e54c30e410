//! `try_run`: a job runs now or not at all.

use std::panic::catch_unwind;

use throng::SerialExecutor;

use crate::occupied::occupy;
use crate::support::{message, ready};

#[test]
fn try_run_borrows_from_its_surroundings() {
    let executor = SerialExecutor::new(String::from("state"));
    let mut seen = String::new();
    let length = executor.try_run(|state| {
        seen.push_str(state);
        state.len()
    });
    assert_eq!((length.unwrap(), seen.as_str()), (5, "state"));
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn try_run_returns_the_job_if_the_executor_is_busy_poisoned_or_closed() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let error = executor.try_run(|n| *n).unwrap_err();
    assert!(error.is_full());
    assert!(format!("{error:?}").contains("Busy"));
    assert!(error.to_string().contains("busy"));
    assert_eq!(error.into_inner()(&mut 7), 7);
    busy.release();

    drop(executor.submit(|_| panic!("on purpose")));
    let error = executor.try_run(|n| *n).unwrap_err();
    assert!(!error.is_full() && !error.is_closed());
    assert!(format!("{error:?}").contains("Poisoned"));
    assert!(error.to_string().contains("poisoned"));
    assert_eq!(error.into_inner()(&mut 8), 8);

    executor.close();
    let error = executor.try_run(|n| *n).unwrap_err();
    assert!(error.is_closed());
    assert!(format!("{error:?}").contains("Closed"));
    assert!(error.to_string().contains("closed"));
    assert_eq!(error.into_inner()(&mut 9), 9);
}

#[test]
fn try_run_within_a_job_of_the_same_executor_is_refused() {
    let executor = SerialExecutor::new(());
    let again = executor.clone();
    let inner = ready(executor.submit(move |()| again.try_run(|()| ()).is_err()));
    assert!(inner.unwrap());
}

#[test]
fn try_run_propagates_a_panic_and_poisons() {
    let executor = SerialExecutor::new(0);
    let job = |n: &mut i32| {
        *n = 1;
        panic!("on purpose");
    };
    let payload = catch_unwind(|| executor.try_run(job)).unwrap_err();
    assert_eq!(message(payload), "on purpose");
    assert!(executor.is_poisoned());
    assert_eq!(executor.metrics().panicked, 1);

    assert!(executor.clear_poison());
    assert_eq!(executor.try_run(|n| *n).unwrap(), 1);
}

#[test]
fn try_run_runs_what_was_queued_meanwhile() {
    let executor = SerialExecutor::new(0);
    let inner = executor.try_run(|n| {
        *n = 1;
        executor.submit(|n| *n + 1)
    });
    assert_eq!(ready(inner.unwrap()).unwrap(), 2);
}
