//! [`Registry`]: the types of tasks that an executor can run.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use crate::durable::context::Stop;
use crate::durable::envelope::{OpenPayload, open_output, open_payload, seal_output};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{
    Claimed, DeadReason, Epoch, MAX_ATTEMPT_ERROR_BYTES, MAX_ERROR_BYTES, MAX_PAYLOAD_BYTES,
    Verdict, shortened,
};
use crate::durable::task::{TaskNames, decode_version, version_of};
use crate::durable::task_error::Next;
use crate::durable::{
    DurableClient, DurableError, Run, StopReason, TaskContext, TaskError, report,
};
use crate::retry::Retry;
use crate::unwind::contain;

/// The types of tasks that an executor can run, by name. A type with former names is there several times.
pub(crate) struct Registry<App> {
    types: HashMap<&'static str, Registered<App>>,
    /// A name that two of the types have, and these types.
    ambiguity: Option<Ambiguity>,
}

/// A type of tasks, under one of its names.
struct Registered<App> {
    run: RunFn<App>,
    /// The newest version that can run.
    version: u8,
    type_id: TypeId,
    type_name: &'static str,
}

/// A name that two registered types have.
#[derive(Clone, Copy)]
pub(crate) struct Ambiguity {
    pub(crate) name: &'static str,
    pub(crate) types: [&'static str; 2],
}

/// Decodes a task of one type and runs it.
type RunFn<App> = fn(StoredTask<'_>, TaskContext<App>) -> Result<EncodedRun, String>;

/// A task as it was stored.
struct StoredTask<'a> {
    name: &'static str,
    payload: OpenPayload<'a>,
}

/// A run of a task, which returns the encoded output in its envelope.
type EncodedRun = Pin<Box<dyn Future<Output = Result<Vec<u8>, TaskError>> + Send>>;

/// Runs claimed tasks. It hides the type of the `App`.
pub(crate) trait TaskRunner: Send + Sync {
    /// Returns the types that it can run.
    fn set(&self) -> &TypeSet;

    /// Starts a run.
    fn run(&self, claimed: Claimed, epoch: Epoch, stop: Stop) -> BoxedRun;
}

/// A run of a task, which returns its verdict.
pub(crate) type BoxedRun = Pin<Box<dyn Future<Output = RunOutcome> + Send>>;

/// How a run output.
pub(crate) struct RunOutcome {
    pub(crate) verdict: Verdict,
    /// `true` if the run has panicked.
    pub(crate) panicked: bool,
}

/// A [`Registry`] and the `App` of its tasks.
pub(crate) struct AppRunner<App> {
    pub(crate) registry: Registry<App>,
    pub(crate) set: TypeSet,
    pub(crate) app: StdArc<App>,
    pub(crate) client: DurableClient,
    pub(crate) retry: Retry,
}

/// The mean pause before a run is repeated that must not wait for another one. It varies by half.
const DEADLOCK_SNOOZE: Duration = Duration::from_secs(1);

impl<App> Registry<App> {
    pub(crate) fn new() -> Self {
        Self {
            types: HashMap::new(),
            ambiguity: None,
        }
    }

    pub(crate) fn register<T: Run<App>>(&mut self)
    where
        App: Send + Sync + 'static,
    {
        for name in TaskNames::of::<T>().all() {
            let registered = Registered {
                run: run_one::<T, App>,
                version: version_of::<T>(),
                type_id: TypeId::of::<T>(),
                type_name: type_name::<T>(),
            };
            let other = self.types.insert(name, registered);
            if let Some(other) = other.filter(|other| other.type_id != TypeId::of::<T>()) {
                let types = [other.type_name, type_name::<T>()];
                self.ambiguity = Some(Ambiguity { name, types });
            }
        }
    }

    pub(crate) fn ambiguity(&self) -> Option<Ambiguity> {
        self.ambiguity
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.types.keys().copied()
    }

    /// Returns the names of the types, each with the newest version that can run.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&'static str, u8)> {
        self.types.iter().map(|(&name, it)| (name, it.version))
    }
}

impl<App> Clone for Registry<App> {
    fn clone(&self) -> Self {
        Self {
            types: self.types.clone(),
            ambiguity: self.ambiguity,
        }
    }
}

impl<App> Clone for Registered<App> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<App> Copy for Registered<App> {}

impl<App: Send + Sync + 'static> TaskRunner for AppRunner<App> {
    fn set(&self) -> &TypeSet {
        &self.set
    }

    fn run(&self, mut claimed: Claimed, epoch: Epoch, stop: Stop) -> BoxedRun {
        let payload = match std::mem::replace(&mut claimed.payload, Ok(Vec::new())) {
            Ok(payload) => payload,
            Err(error) => return damaged(error),
        };
        // A claim has only types of the set, so this name, and the envelope below, are not those that were stored.
        let Some((&name, registered)) = self.registry.types.get_key_value(&*claimed.name) else {
            return damaged(format!("its name cannot be read: {:?}", claimed.name));
        };
        let Some(OpenPayload { version, tick, .. }) = open_payload(&payload) else {
            return damaged(String::from("the envelope of its payload cannot be read"));
        };
        if version > registered.version {
            return damaged(format!("its version cannot be read: {version}"));
        }
        let (app, client) = (StdArc::clone(&self.app), self.client.clone());
        let cx = TaskContext::new(app, client, &claimed, epoch, stop.clone());
        let (cx, run_fn) = (cx.at_tick(tick), registered.run);
        let (retry, failures) = (self.retry, claimed.failures.saturating_add(1));
        Box::pin(report::in_span(&claimed, epoch, async move {
            let output = contained(Box::pin(decode_and_run(run_fn, name, payload, cx))).await;
            RunOutcome {
                panicked: matches!(output, Err(Failed::Panicked(_))),
                verdict: verdict(output, &retry, failures, stop.reason()),
            }
        }))
    }
}

/// The reason why a run has no output.
enum Failed {
    /// The task cannot be decoded.
    Unreadable(String),
    /// It has failed, and its group is held for this time.
    Error(Next, Option<Duration>, String),
    Panicked(String),
}

type Output = Result<Vec<u8>, Failed>;

/// Decodes and runs a task. All of this is code of the user.
async fn decode_and_run<App>(
    run_fn: RunFn<App>,
    name: &'static str,
    payload: Vec<u8>,
    cx: TaskContext<App>,
) -> Output {
    let output = decode(run_fn, name, payload, cx)?.await;
    output.map_err(|error| Failed::Error(next(&error), error.group_hold, error.describe()))
}

/// Decodes a task. A panic shows that the task cannot be decoded, as an error does.
fn decode<App>(
    run_fn: RunFn<App>,
    name: &'static str,
    payload: Vec<u8>,
    cx: TaskContext<App>,
) -> Result<EncodedRun, Failed> {
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let payload = open_payload(&payload).ok_or("its envelope cannot be read")?;
        run_fn(StoredTask { name, payload }, cx)
    }));
    let decoded = decoded.unwrap_or_else(|panic| Err(message(panic)));
    decoded.map_err(Failed::Unreadable)
}

/// Returns what follows a run that has ended with an error. A run that must not wait for another one has not failed.
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
            return error.is_would_deadlock() && !error.is_own_run();
        }
        next = error.source();
    }
    false
}

fn run_one<T: Run<App>, App: Send + Sync + 'static>(
    stored: StoredTask<'_>,
    cx: TaskContext<App>,
) -> Result<EncodedRun, String> {
    let StoredTask { name, payload } = stored;
    let task = decode_version::<T>(payload.version, payload.bytes);
    let task = task.map_err(|error| error.to_string())?;
    Ok(Box::pin(async move {
        let output = task.run(cx).await?;
        // Programs that have stored the task under a former name know only that name.
        seal_output(name, &output)
            .map_err(|error| TaskError::fatal(format!("its output cannot be encoded: {error}")))
    }))
}

/// Waits for a run, and turns a panic into a failure, even if it happens while the run is dropped.
async fn contained(mut run: Pin<Box<dyn Future<Output = Output> + Send>>) -> Output {
    let polled = poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => Err(panicked(panic)).into(),
        },
    );
    let output = polled.await;
    match catch_unwind(AssertUnwindSafe(|| drop(run))) {
        Ok(()) => output,
        Err(panic) => {
            let failed = panicked(panic);
            output.and(Err(failed))
        }
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Failed {
    Failed::Panicked(message(panic))
}

fn message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("it panicked: {}", text.unwrap_or("no message"));
    // The payload of a panic may be of any type, and its drop may panic.
    contain(|| drop(panic));
    text
}

/// Returns the verdict on a run.
fn verdict(output: Output, retry: &Retry, failures: u32, stopped: Option<StopReason>) -> Verdict {
    let (next, hold, error) = match output {
        Ok(output) => return done(output),
        Err(Failed::Unreadable(error)) => return dead(DeadReason::Unreadable, error),
        Err(Failed::Error(next, hold, error)) => (next, hold, error),
        Err(Failed::Panicked(error)) => (Next::Retry, None, error),
    };
    let then = match (next, stopped) {
        (Next::Fatal, _) => dead(DeadReason::Fatal, error),
        // A run that ends because it was asked to stop has not failed.
        (_, Some(StopReason::Shutdown)) => Verdict::Release,
        (Next::Snooze(after), _) => Verdict::Snooze { after },
        (Next::Retry, _) => retry_after(retry.delay(failures), error),
        (Next::RetryAfter(after), _) => retry_after(retry.delay(failures).map(|_| after), error),
    };
    match hold {
        Some(wait) => Verdict::HoldGroup {
            wait,
            then: Box::new(then),
        },
        None => then,
    }
}

/// Returns the verdict on a run with this output, in its envelope.
fn done(sealed: Vec<u8>) -> Verdict {
    let len = open_output(&sealed).map_or(0, |(_, output)| output.len());
    if len > MAX_PAYLOAD_BYTES {
        let error = format!(
            "it has {len} bytes, and a store accepts at most {MAX_PAYLOAD_BYTES}: keep the data elsewhere and return a reference to it"
        );
        return dead(DeadReason::OutputTooLarge, error);
    }
    Verdict::Done(sealed)
}

/// Returns the verdict on a run that has failed; `None`: no attempt is left.
fn retry_after(after: Option<Duration>, error: String) -> Verdict {
    match after {
        Some(after) => Verdict::Retry {
            after,
            error: shortened(error, MAX_ATTEMPT_ERROR_BYTES),
        },
        None => dead(DeadReason::Attempts, error),
    }
}

/// Returns the run of a task that cannot be read as it was stored.
fn damaged(error: String) -> BoxedRun {
    Box::pin(async {
        RunOutcome {
            verdict: dead(DeadReason::Damaged, error),
            panicked: false,
        }
    })
}

fn dead(reason: DeadReason, error: String) -> Verdict {
    Verdict::Dead {
        reason,
        error: shortened(error, MAX_ERROR_BYTES),
    }
}
