//! [`Registry`]: what a worker can run.

use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use crate::durable::client::MAX_BYTES;
use crate::durable::context::Stop;
use crate::durable::store::{Claimed, DeadReason, Epoch, Verdict};
use crate::durable::task::unseal;
use crate::durable::task_error::Next;
use crate::durable::{DurableClient, Run, StopReason, TaskContext, TaskError, report};
use crate::retry::Retry;

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
    /// Begins a run.
    fn begin(&self, claimed: Claimed, epoch: Epoch, stop: Stop) -> Begun;
}

/// A run that has begun: what comes of it.
pub(crate) type Begun = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// A [`Registry`], and what its tasks work with.
pub(crate) struct Runnable<App> {
    pub(crate) registry: Registry<App>,
    pub(crate) app: StdArc<App>,
    pub(crate) client: DurableClient,
    pub(crate) retry: Retry,
}

/// How long a task whose name or format is unknown here is left to other workers, and how long until
/// it is clear that there are none.
const UNKNOWN_SNOOZE: Duration = Duration::from_secs(30);
const UNKNOWN_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// How much of an error is stored.
const MAX_ERROR: usize = 4096;

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
    fn begin(&self, claimed: Claimed, epoch: Epoch, stop: Stop) -> Begun {
        let runner = self.registry.runners.get(&*claimed.name);
        let (Some(runner), Some(bytes)) = (runner, unseal(&claimed.payload)) else {
            let verdict = unknown(&claimed);
            return Box::pin(async { verdict });
        };
        let (app, client) = (StdArc::clone(&self.app), self.client.clone());
        let cx = TaskContext::new(app, client, &claimed, epoch, stop.clone());
        let begun = catch_unwind(AssertUnwindSafe(|| runner(bytes, cx)));
        let (retry, failures) = (self.retry, claimed.failures + 1);
        Box::pin(report::in_span(&claimed, epoch, async move {
            let ended = match begun {
                Ok(Ok(running)) => contained(running).await,
                Ok(Err(error)) => return dead(DeadReason::Unreadable, error),
                Err(panic) => Err(panicked(&*panic)),
            };
            verdict(ended, &retry, failures, stop.reason())
        }))
    }
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

/// Waits for a run, and makes an error of a panic.
async fn contained(mut running: Running) -> Result<Vec<u8>, TaskError> {
    let polled = poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => Err(panicked(&*panic)).into(),
        },
    );
    let ended = polled.await;
    // What the run has captured may panic when it is dropped, too.
    match catch_unwind(AssertUnwindSafe(|| drop(running))) {
        Ok(()) => ended,
        Err(panic) => ended.and(Err(panicked(&*panic))),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> TaskError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    TaskError::retry(format!("it panicked: {}", text.unwrap_or("no message")))
}

/// What comes of a run.
fn verdict(
    ended: Result<Vec<u8>, TaskError>,
    retry: &Retry,
    failures: u32,
    stopped: Option<StopReason>,
) -> Verdict {
    let error = match ended {
        Ok(output) if output.len() > MAX_BYTES => {
            let error = format!("{} bytes, and a store takes {MAX_BYTES}", output.len());
            return dead(DeadReason::OutputTooLarge, error);
        }
        Ok(output) => return Verdict::Done(output),
        Err(error) => error,
    };
    match (error.next, stopped) {
        (Next::Fatal, _) => dead(DeadReason::Fatal, error.describe()),
        // It was told to stop, and did: that is no failure.
        (_, Some(StopReason::Shutdown)) => Verdict::Release,
        (Next::Snooze(after), _) => Verdict::Snooze { after },
        (Next::Retry, _) => again(retry.delay(failures), &error),
        (Next::RetryAfter(after), _) => again(retry.delay(failures).map(|_| after), &error),
    }
}

fn again(after: Option<Duration>, error: &TaskError) -> Verdict {
    match after {
        Some(after) => Verdict::Retry {
            after,
            error: shortened(error.describe()),
        },
        None => dead(DeadReason::Attempts, error.describe()),
    }
}

/// A task that nobody here can run: other workers may, those of a newer version for instance.
fn unknown(claimed: &Claimed) -> Verdict {
    match claimed.age > UNKNOWN_LIMIT {
        true => dead(DeadReason::Unknown, String::new()),
        false => Verdict::Snooze {
            after: UNKNOWN_SNOOZE,
        },
    }
}

fn dead(reason: DeadReason, error: String) -> Verdict {
    Verdict::Dead {
        reason,
        error: shortened(error),
    }
}

fn shortened(mut error: String) -> String {
    let mut end = MAX_ERROR.min(error.len());
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error.truncate(end);
    error
}
