//! [`AppRunner`]: runs claimed tasks, and determines the verdicts on their runs.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::{Attempt, TimeLimit, dead};
#[cfg(feature = "tower")]
use super::middleware::{RunRequest, RunService};
use super::registry::TypeRegistry;
use super::run_fn::{RunFn, decode, panic_message};
use crate::durable::context::Stop;
use crate::durable::envelope::{OpenPayload, open_output, open_payload, stamp_output};
use crate::durable::progress::RunProgress;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{Claimed, DeadReason, Epoch, MAX_PAYLOAD_BYTES, Verdict};
use crate::durable::task_error::Next;
use crate::durable::workflow::run_steps::RunSteps;
use crate::durable::{DurableClient, StopReason, TaskContext, TaskError, report};
use crate::retry::Retry;

/// Runs claimed tasks. It hides the type of the `App`.
pub(crate) trait TaskRunner: Send + Sync {
    /// Returns the types that it can run.
    fn set(&self) -> &TypeSet;

    /// Returns the names of these types.
    fn names(&self) -> Vec<&'static str>;

    /// Starts a run of a task of the queue.
    fn run(
        &self,
        queue: &QueueName,
        claimed: Claimed,
        epoch: Epoch,
        stop: Stop,
        progress: StdArc<RunProgress>,
    ) -> StartedRun;
}

/// A run, which the caller must poll from now on, and its timeout, if it has one.
pub(crate) struct StartedRun {
    pub(crate) run: BoxedRun,
    pub(crate) limit: Option<Box<TimeLimit>>,
}

/// A run of a task, which returns its verdict.
pub(crate) type BoxedRun = Pin<Box<dyn Future<Output = RunOutcome> + Send>>;

/// The end of a run.
pub(crate) struct RunOutcome {
    pub(crate) verdict: Verdict,
    /// `true` if the run has panicked.
    pub(crate) panicked: bool,
    /// `true` if the run has found what its task was waiting for, and nothing had woken the task.
    pub(crate) woken_late: bool,
    /// The duration of the run.
    pub(crate) took: Duration,
}

/// A [`TypeRegistry`] and the `App` of its tasks.
pub(crate) struct AppRunner<App> {
    pub(crate) registry: TypeRegistry<App>,
    pub(crate) set: TypeSet,
    pub(crate) app: StdArc<App>,
    pub(crate) client: DurableClient,
    pub(crate) retry: Retry,
    /// The layers around each run, if there are any.
    #[cfg(feature = "tower")]
    pub(crate) layers: Option<StdArc<RunService<App>>>,
}

impl<App: Send + Sync + 'static> TaskRunner for AppRunner<App> {
    fn set(&self) -> &TypeSet {
        &self.set
    }

    fn names(&self) -> Vec<&'static str> {
        self.registry.names().collect()
    }

    fn run(
        &self,
        queue: &QueueName,
        mut claimed: Claimed,
        epoch: Epoch,
        stop: Stop,
        progress: StdArc<RunProgress>,
    ) -> StartedRun {
        let payload = match std::mem::replace(&mut claimed.payload, Ok(Vec::new())) {
            Ok(payload) => payload,
            Err(error) => return damaged(error),
        };
        // A claim has only types of the set, so this name, and the envelope below, are not those that were stored.
        let Some((name, registered)) = self.registry.find(&claimed.name) else {
            return damaged(format!("its name cannot be read: {:?}", claimed.name));
        };
        let opened = open_payload(&payload);
        let Some(OpenPayload {
            version,
            trace,
            tick,
            policy,
            ..
        }) = opened
        else {
            return damaged(String::from("the envelope of its payload cannot be read"));
        };
        if version > registered.version {
            return damaged(format!("its version cannot be read: {version}"));
        }
        let (app, client) = (StdArc::clone(&self.app), self.client.clone());
        let cx = TaskContext::new(app, client, &claimed, epoch, stop.clone(), progress);
        let steps = StdArc::clone(&cx.steps);
        let run = self.start(registered.run, name, payload, cx.at_tick(tick));
        let policy = policy.or(registered.policy);
        let attempt = Attempt::new(policy.retry.unwrap_or(self.retry), &claimed);
        let limit = policy.timeout.map(|timeout| TimeLimit { timeout, attempt });
        let run = Box::pin(async move {
            let began = Instant::now();
            let mut output = contained(run).await;
            let took = began.elapsed();
            if let Ok(sealed) = &mut output {
                stamp_output(sealed, took);
            }
            let outcome = RunOutcome {
                took,
                panicked: matches!(output, Err(Failed::Panicked(_))),
                woken_late: steps.was_woken_late(),
                verdict: verdict(output, &attempt, stop.reason(), &steps).after(took),
            };
            report::run_ended(&outcome.verdict);
            outcome
        });
        let propagation = self.client.propagation();
        StartedRun {
            run: report::in_span(propagation, (queue, &claimed), epoch, trace, run),
            limit: limit.map(Box::new),
        }
    }
}

impl<App: Send + Sync + 'static> AppRunner<App> {
    /// Returns a future that decodes a task and runs it, in the layers if there are any.
    fn start(
        &self,
        run_fn: RunFn<App>,
        name: &'static str,
        payload: Vec<u8>,
        cx: TaskContext<App>,
    ) -> OutputFuture {
        #[cfg(feature = "tower")]
        if let Some(layers) = &self.layers {
            let request = RunRequest::new(run_fn, name, payload, cx);
            return Box::pin(run_in_layers(StdArc::clone(layers), request));
        }
        Box::pin(decode_and_run(run_fn, name, payload, cx))
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

type OutputFuture = Pin<Box<dyn Future<Output = Output> + Send>>;

impl From<TaskError> for Failed {
    fn from(error: TaskError) -> Self {
        Self::Error(error.next, error.group_hold, error.describe())
    }
}

/// Decodes and runs a task. All of this is user code.
async fn decode_and_run<App>(
    run_fn: RunFn<App>,
    name: &'static str,
    payload: Vec<u8>,
    cx: TaskContext<App>,
) -> Output {
    let run = decode(run_fn, name, payload, cx).map_err(Failed::Unreadable)?;
    Ok(run.await?)
}

/// Decodes and runs a task in layers. All of this is user code.
#[cfg(feature = "tower")]
async fn run_in_layers<App>(layers: StdArc<RunService<App>>, request: RunRequest<App>) -> Output {
    match layers.run(request).await {
        Ok(output) => Ok(output.into_sealed()),
        Err(error) if error.is_unreadable() => {
            Err(Failed::Unreadable(error.task_error().describe()))
        }
        Err(error) => Err(Failed::from(error.into_task_error())),
    }
}

/// Waits for a run, and turns a panic into a failure, even if it happens while the run is dropped.
async fn contained(mut run: OutputFuture) -> Output {
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
    Failed::Panicked(panic_message(panic))
}

/// Returns the verdict on a run.
fn verdict(
    output: Output,
    attempt: &Attempt,
    stopped: Option<StopReason>,
    steps: &RunSteps,
) -> Verdict {
    let suspension = match output {
        Err(Failed::Error(next, ..)) => steps.suspension(next),
        _ => None,
    };
    let (next, hold, error) = match output {
        Ok(output) => return done(output),
        Err(Failed::Unreadable(error)) => return dead(DeadReason::Unreadable, error),
        Err(Failed::Error(next, hold, error)) => (next, hold, error),
        Err(Failed::Panicked(error)) => (Next::Retry, None, error),
    };
    let then = match (suspension, next, stopped) {
        // A fatal error may be what the program has made of the error of the wait.
        (Some(suspension), Next::Fatal | Next::Wait, _) => suspension,
        (None, Next::Fatal, _) => dead(DeadReason::Fatal, error),
        (None, Next::Wait, _) => dead(DeadReason::Fatal, steps.error().unwrap_or(error)),
        // A run that ends because it was asked to stop has not failed.
        (_, _, Some(StopReason::Shutdown)) => Verdict::Release,
        (suspension, Next::Snooze(after), _) => earlier(Verdict::Snooze { after }, suspension),
        (suspension, Next::Retry, _) => earlier(attempt.failed(None, error), suspension),
        (suspension, Next::RetryAfter(after), _) => {
            earlier(attempt.failed(Some(after), error), suspension)
        }
    };
    match hold {
        Some(wait) => Verdict::HoldGroup {
            wait,
            then: Box::new(then),
        },
        None => then,
    }
}

/// Returns the verdict on a run that has asked for a wait and then ended with an error, for which it would otherwise get this verdict. The
/// task runs again at the earlier of both times. It is no dead letter while it waits.
fn earlier(verdict: Verdict, suspension: Option<Verdict>) -> Verdict {
    let Some(mut suspension) = suspension else {
        return verdict;
    };
    if let Verdict::Suspend { after, .. } = &mut suspension {
        match verdict {
            Verdict::Retry { after: delay, .. } if delay < *after => return verdict,
            // A step for which the task waits may still end the delay earlier.
            Verdict::Snooze { after: delay } => *after = delay.min(*after),
            _ => {}
        }
    }
    suspension
}

/// Returns the verdict on a run with this output, in its envelope.
fn done(sealed: Vec<u8>) -> Verdict {
    let len = open_output(&sealed).map_or(0, |opened| opened.bytes.len());
    if len > MAX_PAYLOAD_BYTES {
        let error = format!(
            "it has {len} bytes, and a store accepts at most {MAX_PAYLOAD_BYTES}: keep the data elsewhere and return a reference to it"
        );
        return dead(DeadReason::OutputTooLarge, error);
    }
    Verdict::Done(sealed)
}

/// Returns the run of a task that cannot be read as it was stored.
fn damaged(error: String) -> StartedRun {
    let run = Box::pin(async {
        RunOutcome {
            verdict: dead(DeadReason::Damaged, error),
            panicked: false,
            woken_late: false,
            took: Duration::ZERO,
        }
    });
    StartedRun { run, limit: None }
}
