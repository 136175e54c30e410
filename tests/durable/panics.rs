//! Panics of tasks, and of what belongs to them: each is a failed attempt, and the executor goes on.

use std::error::Error;
use std::fmt;
use std::panic::{panic_any, resume_unwind};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use throng::Retry;
use throng::durable::{
    DeadReason, DurableError, DurableExecutor, DurableTask, Run, TaskContext, TaskError,
};
use tokio::task::yield_now;

use crate::harness::{App, TestStore, builder, spawn, start, start_as};
use crate::ledger::assert_balanced;
use crate::support::{Drops, PanicsOnDrop, within};

on_all_stores! {
    a_panic_is_an_attempt,
    a_panic_has_its_message_in_the_dead_letter,
    a_future_may_panic_before_it_is_one,
    what_a_task_has_captured_may_panic_when_it_is_dropped,
    a_payload_may_panic_when_it_is_dropped,
    an_error_may_panic_when_it_is_dropped,
    an_error_may_panic_when_it_is_shown,
    a_task_may_panic_when_it_is_read,
    an_output_may_panic_when_it_is_dropped,
}

/// Sees that an executor still runs tasks: that of number 0 succeeds.
async fn goes_on(executor: &DurableExecutor) {
    let handle = spawn(executor.client(), 0).await;
    assert_eq!(within(handle).await.unwrap(), 0);
    assert_balanced(&executor.client().counts().await.unwrap());
}

/// The error of a task of number 1, which fails in one attempt, after which the executor goes on.
async fn error_of<F>(
    store: &TestStore,
    act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
) -> DurableError
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    let client = store.client().await;
    let executor = start_as(
        builder(&client).retry(Retry::exponential().attempts(1)),
        act,
    )
    .await;
    let handle = spawn(&client, 1).await;
    let error = tokio::select! {
        end = within(handle) => end.unwrap_err(),
        () = executor.closed() => panic!("the executor has ended"),
    };
    goes_on(&executor).await;
    error
}

async fn a_panic_is_an_attempt(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, cx| async move {
        match (number, cx.attempt()) {
            (0, _) | (_, 3) => return Ok(number),
            (_, 1) => panic!("before it waits"),
            _ => yield_now().await,
        }
        panic!("after it has waited")
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
    let metrics = executor.metrics();
    assert_eq!((metrics.retried, metrics.panicked), (2, 2));
    goes_on(&executor).await;
}

async fn a_panic_has_its_message_in_the_dead_letter(store: TestStore) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.retry(Retry::exponential().attempts(1));
    let executor = start_as(builder, |number, _| async move {
        match number {
            0 => Ok(0),
            1 => panic!("as it should"),
            2 => panic!("number {number}"),
            3 => panic_any(7_u8),
            _ => resume_unwind(Box::new(vec![1])),
        }
    })
    .await;
    for (number, text) in (1..5).zip(["as it should", "number 2", "no message", "no message"]) {
        let error = within(spawn(&client, number).await).await.unwrap_err();
        assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
        let text = format!("it panicked: {text}");
        assert!(error.to_string().contains(&text), "{error}");
    }
    goes_on(&executor).await;
}

async fn a_future_may_panic_before_it_is_one(store: TestStore) {
    let error = error_of(&store, |number, _| {
        assert_eq!(number, 0, "no future");
        async { Ok(0) }
    })
    .await;
    assert!(error.to_string().contains("no future"), "{error}");
}

async fn what_a_task_has_captured_may_panic_when_it_is_dropped(store: TestStore) {
    let drops = Drops::new();
    let counted = drops.clone();
    let error = error_of(&store, move |number, _| {
        let captured = (number == 1).then(|| PanicsOnDrop(counted.value()));
        async move {
            yield_now().await;
            drop(captured);
            Ok(number)
        }
    })
    .await;
    assert!(error.to_string().contains("the drop panics"), "{error}");
    assert_eq!(drops.count(), 1);
}

async fn a_payload_may_panic_when_it_is_dropped(store: TestStore) {
    let drops = Drops::new();
    let error = error_of(&store, move |number, _| {
        let value = drops.value();
        async move {
            match number {
                0 => Ok(0),
                _ => panic_any(PanicsOnDrop(value)),
            }
        }
    })
    .await;
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
}

/// An error that panics when it is dropped, or when it is shown.
#[derive(Debug)]
struct Bad {
    _value: Option<PanicsOnDrop>,
    shows: bool,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(self.shows, "it cannot be shown");
        f.write_str("a bad error")
    }
}

impl Error for Bad {}

async fn an_error_may_panic_when_it_is_dropped(store: TestStore) {
    let drops = Drops::new();
    let error = error_of(&store, move |number, _| {
        let value = drops.value();
        async move {
            match number {
                0 => Ok(0),
                _ => Err(Bad {
                    _value: Some(PanicsOnDrop(value)),
                    shows: true,
                }
                .into()),
            }
        }
    })
    .await;
    assert!(error.is_dead(), "{error}");
}

async fn an_error_may_panic_when_it_is_shown(store: TestStore) {
    let error = error_of(&store, |number, _| async move {
        match number {
            0 => Ok(0),
            _ => Err(Bad {
                _value: None,
                shows: false,
            }
            .into()),
        }
    })
    .await;
    assert!(error.is_dead(), "{error}");
}

/// A task that panics when it is read, or whose output panics when it is dropped.
#[derive(Serialize)]
struct Wild(u8);

impl<'de> Deserialize<'de> for Wild {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = u8::deserialize(deserializer)?;
        assert_ne!(kind, 1, "it cannot be read");
        Ok(Self(kind))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct WildOutput(u8);

impl Drop for WildOutput {
    fn drop(&mut self) {
        if self.0 == 2 && !std::thread::panicking() {
            panic!("the output panics");
        }
    }
}

impl DurableTask for Wild {
    const NAME: &'static str = "wild";
    type Output = WildOutput;
}

impl Run<()> for Wild {
    async fn run(self, _: TaskContext<()>) -> Result<WildOutput, TaskError> {
        Ok(WildOutput(self.0))
    }
}

async fn wild(store: &TestStore, kind: u8) -> DurableError {
    let client = store.client().await;
    let mut builder = DurableExecutor::builder::<()>(client.clone());
    builder.register::<Wild>();
    let _executor = builder
        .retry(Retry::exponential().attempts(1))
        .start(Arc::new(()))
        .await
        .unwrap();
    let error = within(client.spawn(Wild(kind)).await.unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        within(client.spawn(Wild(0)).await.unwrap())
            .await
            .unwrap()
            .0,
        0
    );
    error
}

async fn a_task_may_panic_when_it_is_read(store: TestStore) {
    let error = wild(&store, 1).await;
    assert!(error.to_string().contains("it cannot be read"), "{error}");
}

async fn an_output_may_panic_when_it_is_dropped(store: TestStore) {
    let error = wild(&store, 2).await;
    assert!(error.to_string().contains("the output panics"), "{error}");
}
