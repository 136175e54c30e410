//! Errors: their kinds, their messages, and what they convert into.

use std::any::Any;
use std::error::Error;
use std::io;
use std::panic::{catch_unwind, panic_any};
use std::pin::pin;

use throng::{JoinError, SerialExecutor, spawn_blocking};

use crate::parts::stream;
use crate::support::{join, message, ready};
use crate::{busy, busy_and_full};

fn cancelled() -> JoinError {
    let (pool, gate) = busy();
    let handle = pool.spawn_blocking(|| ());
    handle.abort();
    gate.open();
    ready(handle).unwrap_err()
}

fn panicked(payload: impl Any + Send) -> JoinError {
    join(spawn_blocking(move || panic_any(payload))).unwrap_err()
}

fn rejected() -> JoinError {
    let (pool, gate) = busy_and_full();
    let handle = pool.spawn_blocking(|| ());
    gate.open();
    ready(handle).unwrap_err()
}

fn closed() -> JoinError {
    let executor = SerialExecutor::new(());
    executor.close();
    ready(executor.submit(|()| ())).unwrap_err()
}

fn poisoned() -> JoinError {
    let executor = SerialExecutor::new(());
    drop(executor.submit(|()| panic!("on purpose")));
    ready(executor.submit(|()| ())).unwrap_err()
}

fn lost() -> JoinError {
    let (jobs, mut done) = stream::<(), ()>();
    drop(ready(pin!(jobs.slot(()))).unwrap());
    let completed = ready(pin!(done.next())).unwrap();
    completed.outcome.unwrap_err()
}

/// One error of each kind, its message after the id, and the kind of the `io::Error` that it converts into.
fn errors() -> [(JoinError, &'static str, io::ErrorKind); 8] {
    use io::ErrorKind::{Other, WouldBlock};

    let poisoned_text = "did not run: an earlier job panicked and left the state poisoned";
    [
        (cancelled(), "was cancelled", Other),
        (panicked("a"), "panicked with message \"a\"", Other),
        (
            panicked(String::from("b")),
            "panicked with message \"b\"",
            Other,
        ),
        (panicked(7), "panicked", Other),
        (rejected(), "was rejected: the queue is full", WouldBlock),
        (closed(), "was submitted to a closed executor", Other),
        (poisoned(), poisoned_text, Other),
        (lost(), "was lost: its slot was dropped", Other),
    ]
}

#[test]
fn an_error_is_of_one_kind() {
    let kinds = errors().map(|(error, ..)| {
        let kinds = [
            error.is_cancelled(),
            error.is_panic(),
            error.is_rejected(),
            error.is_closed(),
            error.is_poisoned(),
            error.is_lost(),
            error.is_would_deadlock(),
        ];
        assert_eq!(kinds.iter().filter(|is| **is).count(), 1, "{error}");
        kinds.iter().position(|is| *is).unwrap()
    });
    assert_eq!(kinds, [0, 1, 1, 1, 2, 3, 4, 5]);
}

#[test]
fn an_error_names_its_task_and_the_reason() {
    for (error, text, _) in errors() {
        let id = error.id();
        assert_eq!(error.to_string(), format!("task {id} {text}"));
        let debug = format!("JoinError({id:?}: task {id} {text})");
        assert_eq!(format!("{error:?}"), debug);
    }
}

#[test]
fn only_a_rejection_has_a_source() {
    for (error, ..) in errors() {
        let source = error.source();
        assert_eq!(source.is_some(), error.is_rejected(), "{error}");
        if let Some(source) = source {
            let source: &io::Error = source.downcast_ref().unwrap();
            assert_eq!(source.kind(), io::ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn an_error_converts_into_an_io_error() {
    for (error, text, kind) in errors() {
        let converted = io::Error::from(error);
        assert_eq!(converted.kind(), kind, "{text}");
        let inner: &JoinError = converted.get_ref().unwrap().downcast_ref().unwrap();
        assert!(inner.to_string().ends_with(text));
        assert!(converted.to_string().ends_with(text));
    }
}

#[test]
fn a_panic_returns_its_payload() {
    assert_eq!(message(panicked("a").into_panic()), "a");
    assert_eq!(message(panicked(String::from("b")).into_panic()), "b");
    assert_eq!(*panicked(7).into_panic().downcast::<i32>().unwrap(), 7);
    let payload = panicked("a").try_into_panic().unwrap();
    assert_eq!(message(payload), "a");
}

#[test]
fn only_a_panic_has_a_payload() {
    for (error, ..) in errors() {
        if error.is_panic() {
            continue;
        }
        let (id, text) = (error.id(), error.to_string());
        let error = error.try_into_panic().unwrap_err();
        assert_eq!((error.id(), error.to_string()), (id, text.clone()));
        let wrapped = std::panic::AssertUnwindSafe(error);
        let payload = catch_unwind(|| {
            let wrapped = wrapped;
            wrapped.0.into_panic()
        });
        let said = message(payload.unwrap_err());
        assert_eq!(said, format!("the task did not panic: {text}"));
    }
}

#[tokio::test]
async fn an_error_of_tokio_converts() {
    let panics = tokio::spawn(async { panic!("on purpose") }).await;
    let error = JoinError::from(panics.unwrap_err());
    assert_eq!(message(error.into_panic()), "on purpose");

    let never = tokio::spawn(std::future::pending::<()>());
    never.abort();
    let error = JoinError::from(never.await.unwrap_err());
    assert!(error.is_cancelled());

    async fn both() -> Result<u32, JoinError> {
        Ok(tokio::spawn(async { 1 }).await? + spawn_blocking(|| 2).await?)
    }
    assert_eq!(both().await.unwrap(), 3);
}
