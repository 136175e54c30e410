//! Errors that return what was submitted.

use std::cell::Cell;
use std::error::Error;

use throng::{SerialExecutor, TrySpawnError};

use crate::parts::stream;
use crate::{busy_and_full, held_executor};

#[test]
fn an_error_returns_what_was_submitted() {
    let (jobs, _done) = stream::<(), &str>();
    jobs.close();
    let error = jobs.try_slot("tag").unwrap_err();
    assert!(error.is_closed() && !error.is_full());
    assert_eq!(error.to_string(), "the executor is closed");
    assert_eq!(format!("{error:?}"), "Closed(..)");
    assert!(error.source().is_none());
    assert_eq!(error.into_inner(), "tag");

    let (full, gate) = busy_and_full();
    let error = full.try_spawn_blocking(|| 1).unwrap_err();
    gate.open();
    assert!(error.is_full() && !error.is_closed());
    assert_eq!(format!("{error:?}"), "Full(..)");
    assert!(error.source().is_none());
    assert_eq!(error.into_inner()(), 1);
}

#[test]
fn an_error_of_try_run_returns_the_job() {
    let executor = SerialExecutor::new(0);
    executor.close();
    let error = executor.try_run(|state| *state + 1).unwrap_err();
    assert!(error.is_closed() && !error.is_full());
    assert_eq!(error.to_string(), "the executor is closed");
    assert_eq!(format!("{error:?}"), "Closed(..)");
    assert_eq!(error.into_inner()(&mut 1), 2);
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Converts like `anyhow::Error`.
#[derive(Debug)]
struct AnyError(BoxError);

impl<E: Error + Send + Sync + 'static> From<E> for AnyError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

/// A closure that is not `Sync`.
fn closure() -> impl FnOnce() + Send + 'static {
    let cell = Cell::new(0);
    move || cell.set(1)
}

#[test]
fn the_question_mark_converts_errors_of_closures_that_are_not_sync() {
    fn boxed() -> Result<(), BoxError> {
        let (pool, gate) = busy_and_full();
        let spawned = pool.try_spawn_blocking(closure());
        gate.open();
        spawned?.blocking_join()?;
        Ok(())
    }
    fn any() -> Result<(), AnyError> {
        let (pool, gate) = busy_and_full();
        let spawned = pool.try_spawn_blocking(closure());
        gate.open();
        spawned?.blocking_join()?;
        Ok(())
    }
    let error = boxed().unwrap_err();
    assert_eq!(error.to_string(), any().unwrap_err().0.to_string());
    assert!(
        error.to_string().starts_with("the queue is full"),
        "{error}"
    );
}

#[test]
fn the_question_mark_converts_errors_of_jobs_that_are_not_sync() {
    fn run(executor: &SerialExecutor<u8>) -> Result<(), BoxError> {
        let cell = Cell::new(0);
        Ok(executor.try_run(move |_| cell.set(1))?)
    }
    let (executor, busy, gate) = held_executor();
    let error = run(&executor).unwrap_err();
    assert!(
        error.to_string().starts_with("the executor is busy"),
        "{error}"
    );
    gate.open();
    busy.join().unwrap();
}

/// The error can be sent to another thread, which takes the closure out and runs it.
#[test]
fn a_closure_that_is_not_sync_is_returned_across_threads() {
    let (pool, gate) = busy_and_full();
    let error = pool.try_spawn_blocking(closure()).unwrap_err();
    gate.open();
    std::thread::spawn(move || error.into_inner()())
        .join()
        .unwrap();
}

/// Neither error gives shared access to the closure, so both may be shared whatever it is.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<TrySpawnError<Cell<u8>>>();
};
