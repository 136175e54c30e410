//! [`RunFn`]: decodes a stored task, and runs it.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use crate::durable::envelope::{OpenPayload, open_payload, seal_output};
use crate::durable::task::decode_version;
use crate::durable::task_error::Next;
use crate::durable::{DurableError, Run, TaskContext, TaskError};
use crate::unwind::contain;

/// Decodes a task of one type and runs it.
pub(crate) type RunFn<App> = fn(StoredTask<'_>, TaskContext<App>) -> Result<EncodedRun, String>;

/// A task as it was stored.
pub(crate) struct StoredTask<'a> {
    name: &'static str,
    payload: OpenPayload<'a>,
}

/// A run of a task, which returns the encoded output in its envelope.
pub(crate) type EncodedRun = Pin<Box<dyn Future<Output = Result<Vec<u8>, TaskError>> + Send>>;

/// The mean delay before a task whose run must not wait for another task runs again. The delay varies by half.
const DEADLOCK_SNOOZE: Duration = Duration::from_secs(1);

/// Decodes a task. A panic counts as an error: the task cannot be decoded.
pub(crate) fn decode<App>(
    run_fn: RunFn<App>,
    name: &'static str,
    payload: Vec<u8>,
    cx: TaskContext<App>,
) -> Result<EncodedRun, String> {
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let payload = open_payload(&payload).ok_or("its envelope cannot be read")?;
        run_fn(StoredTask { name, payload }, cx)
    }));
    decoded.unwrap_or_else(|panic| Err(panic_message(panic)))
}

/// The [`RunFn`] of a type.
pub(crate) fn run_one<T: Run<App>, App: Send + Sync + 'static>(
    stored: StoredTask<'_>,
    cx: TaskContext<App>,
) -> Result<EncodedRun, String> {
    let StoredTask { name, payload } = stored;
    let task = decode_version::<T>(payload.version, payload.bytes);
    let task = task.map_err(|error| error.to_string())?;
    Ok(Box::pin(async move {
        let output = task.run(cx).await.map_err(snoozed_if_deadlock)?;
        // Programs that have stored the task under a former name know only that name.
        seal_output(name, &output)
            .map_err(|error| TaskError::fatal(format!("its output cannot be encoded: {error}")))
    }))
}

/// Turns the error of a run that must not wait for another task into a snooze, since such a run has not failed.
pub(crate) fn snoozed_if_deadlock(mut error: TaskError) -> TaskError {
    let is_retried = matches!(error.next, Next::Retry | Next::RetryAfter(_));
    if is_retried && is_would_deadlock(&error) {
        error.next = Next::Snooze(DEADLOCK_SNOOZE.mul_f64(0.5 + fastrand::f64()));
    }
    error
}

fn is_would_deadlock(error: &TaskError) -> bool {
    let mut next = error.source().map(|error| error as &(dyn Error + 'static));
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<DurableError>() {
            return error.is_would_deadlock() && !error.is_own_run();
        }
        next = error.source();
    }
    false
}

/// Returns the message of a panic, and drops its payload.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("it panicked: {}", text.unwrap_or("no message"));
    // The payload of a panic may be of any type, and its drop may panic.
    contain(|| drop(panic));
    text
}
