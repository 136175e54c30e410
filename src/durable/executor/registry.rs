//! [`Registry`]: what a worker can run.

use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use crate::durable::client::MAX_BYTES;
use crate::durable::context::Stop;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{
    Claimed, DeadReason, Epoch, MAX_ATTEMPT_ERROR_BYTES, MAX_ERROR_BYTES, Verdict,
};
use crate::durable::task::unseal;
use crate::durable::task_error::Next;
use crate::durable::{
    DurableClient, DurableError, Run, StopReason, TaskContext, TaskError, report,
};
use crate::retry::Retry;
use crate::unwind::contain;

/// What a worker can run, by name.
pub(crate) struct Registry<App> {
    runners: HashMap<&'static str, Runner<App>>,
}

/// Reads and runs a task of one type.
type Runner<App> = fn(&[u8], TaskContext<App>) -> Result<Running, String>;

/// A run of a task, up to its output as it is stored.
type Running = Pin<Box<dyn Future<Output = Result<Vec<u8>, TaskError>> + Send>>;

/// What runs claimed tasks, whatever they work with.
pub(crate) trait Runs: Send + Sync {
    /// The types that it can run.
    fn set(&self) -> &TypeSet;

    /// Begins a run.
    fn begin(&self, claimed: Claimed, epoch: Epoch, stop: Stop) -> Begun;
}

/// A run that has begun: what comes of it.
pub(crate) type Begun = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// A [`Registry`], and what its tasks work with.
pub(crate) struct Runnable<App> {
    pub(crate) registry: Registry<App>,
    pub(crate) set: TypeSet,
    pub(crate) app: StdArc<App>,
    pub(crate) client: DurableClient,
    pub(crate) retry: Retry,
}

/// The pause, give or take a half, before a run that must not wait for another is repeated.
const DEADLOCK_SNOOZE: Duration = Duration::from_secs(1);

impl<App> Registry<App> {
    pub(crate) fn new() -> Self {
        Self {
            runners: HashMap::new(),
        }
    }

    pub(crate) fn register<T: Run<App>>(&mut self)
    where
        App: Send + Sync + 'static,
    {
        self.runners.insert(T::NAME, run_one::<T, App>);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.runners.keys().copied()
    }
}

impl<App: Send + Sync + 'static> Runs for Runnable<App> {
    fn set(&self) -> &TypeSet {
        &self.set
    }

    fn begin(&self, mut claimed: Claimed, epoch: Epoch, stop: Stop) -> Begun {
        let payload = match std::mem::replace(&mut claimed.payload, Ok(Vec::new())) {
            Ok(payload) => payload,
            Err(error) => return damaged(error),
        };
        // A claim has only kinds of the set, so this name and this envelope are not those that were stored.
        let Some(&runner) = self.registry.runners.get(&*claimed.name) else {
            return damaged(format!("its name cannot be read: {:?}", claimed.name));
        };
        if unseal(&payload).is_none() {
            return damaged(String::from("the envelope of its payload cannot be read"));
        }
        let (app, client) = (StdArc::clone(&self.app), self.client.clone());
        let cx = TaskContext::new(app, client, &claimed, epoch, stop.clone());
        let (retry, failures) = (self.retry, claimed.failures.saturating_add(1));
        Box::pin(report::in_span(&claimed, epoch, async move {
            let ended = contained(Box::pin(run(runner, payload, cx))).await;
            verdict(ended, &retry, failures, stop.reason())
        }))
    }
}

/// Why a run has no output.
enum Failed {
    /// The task cannot be read.
    Unreadable(String),
    Run(Next, String),
}

type Ended = Result<Vec<u8>, Failed>;

/// Reads and runs a task. All of this is the user's code.
async fn run<App>(runner: Runner<App>, payload: Vec<u8>, cx: TaskContext<App>) -> Ended {
    let bytes = unseal(&payload).unwrap_or_default();
    let running = runner(bytes, cx).map_err(Failed::Unreadable)?;
    let output = running.await;
    output.map_err(|error| Failed::Run(next(&error), error.describe()))
}

/// Returns what follows a run that has ended with an error. A run that must not wait for another has not
/// failed.
fn next(error: &TaskError) -> Next {
    match error.next {
        Next::Retry | Next::RetryAfter(_) if is_would_deadlock(error) => {
            Next::Snooze(DEADLOCK_SNOOZE.mul_f64(0.5 + fastrand::f64()))
        }
        next => next,
    }
}

fn is_would_deadlock(error: &TaskError) -> bool {
    let mut next = error.source().map(|error| error as &(dyn Error + 'static));
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<DurableError>() {
            return error.is_would_deadlock();
        }
        next = error.source();
    }
    false
}

fn run_one<T: Run<App>, App: Send + Sync + 'static>(
    bytes: &[u8],
    cx: TaskContext<App>,
) -> Result<Running, String> {
    let task = T::decode(bytes).map_err(|error| error.to_string())?;
    Ok(Box::pin(async move {
        let output = task.run(cx).await?;
        serde_json::to_vec(&output)
            .map_err(|error| TaskError::fatal(format!("its output cannot be encoded: {error}")))
    }))
}

/// Waits for a run, and makes a failure of a panic, also of one when what the run holds is dropped.
async fn contained(mut run: Pin<Box<dyn Future<Output = Ended> + Send>>) -> Ended {
    let ended = poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => Err(panicked(panic)).into(),
        },
    );
    let ended = ended.await;
    match catch_unwind(AssertUnwindSafe(|| drop(run))) {
        Ok(()) => ended,
        Err(panic) => {
            let failed = panicked(panic);
            ended.and(Err(failed))
        }
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Failed {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("it panicked: {}", text.unwrap_or("no message"));
    // It may be anything, and panic in turn.
    contain(|| drop(panic));
    Failed::Run(Next::Retry, text)
}

/// What comes of a run.
fn verdict(ended: Ended, retry: &Retry, failures: u32, stopped: Option<StopReason>) -> Verdict {
    let (next, error) = match ended {
        Ok(output) if output.len() > MAX_BYTES => {
            let error = format!(
                "it has {} bytes, and a store takes at most {MAX_BYTES}: keep the data elsewhere and return its place",
                output.len()
            );
            return dead(DeadReason::OutputTooLarge, error);
        }
        Ok(output) => return Verdict::Done(output),
        Err(Failed::Unreadable(error)) => return dead(DeadReason::Unreadable, error),
        Err(Failed::Run(next, error)) => (next, error),
    };
    match (next, stopped) {
        (Next::Fatal, _) => dead(DeadReason::Fatal, error),
        // It was told to stop, and did: that is no failure.
        (_, Some(StopReason::Shutdown)) => Verdict::Release,
        (Next::Snooze(after), _) => Verdict::Snooze { after },
        (Next::Retry, _) => again(retry.delay(failures), error),
        (Next::RetryAfter(after), _) => again(retry.delay(failures).map(|_| after), error),
    }
}

fn again(after: Option<Duration>, error: String) -> Verdict {
    match after {
        Some(after) => Verdict::Retry {
            after,
            error: shortened(error, MAX_ATTEMPT_ERROR_BYTES),
        },
        None => dead(DeadReason::Attempts, error),
    }
}

/// A task that the store has lost a part of.
fn damaged(error: String) -> Begun {
    Box::pin(async { dead(DeadReason::Damaged, error) })
}

fn dead(reason: DeadReason, error: String) -> Verdict {
    Verdict::Dead {
        reason,
        error: shortened(error, MAX_ERROR_BYTES),
    }
}

fn shortened(mut error: String, most: usize) -> String {
    let mut end = most.min(error.len());
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error.truncate(end);
    error
}
