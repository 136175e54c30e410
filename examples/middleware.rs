//! Middleware around the runs of a mail service: a trace, metrics, a time limit, and a circuit breaker.
//!
//! ```sh
//! cargo run --features test-util,tower --example middleware
//! ```
//!
//! Each mail is a durable task. The provider that delivers the mails sometimes hangs, and fails for a while in the middle of the program.
//! Four layers surround each run, from the inside to the outside:
//!
//! - *A time limit*, which is a layer of the crate `tower`. It drops a run that hangs, and the task is tried again. For runs that may block
//!   their threads, use `DurableTask::TIMEOUT` instead.
//! - *A circuit breaker.* If most of the last runs have failed, it snoozes tasks without running them, so no attempt is counted. From time
//!   to time, it lets one run probe the provider, until a run succeeds.
//! - *Metrics*: the numbers of runs and errors, and the total duration, for each name of a task.
//! - *A trace*, which prints how each run ends.
//!
//! The program takes about two seconds, and fails if a mail is lost. The tasks are kept in memory, so it needs no server and no file.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, RunError, RunOutput, RunRequest,
    RunService, TaskContext, TaskError,
};
use tokio::time::{sleep, timeout};
use tower::layer::layer_fn;
use tower::timeout::TimeoutLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

type Outcome = Result<RunOutput, RunError>;

/// The number of mails.
const MAILS: u64 = 60;
/// The number of requests that fail while the provider is not available.
const OUTAGE: u64 = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = timeout(Duration::from_secs(60), demonstrate()).await??;
    println!("{:#?}", lock(&app.metrics));
    Ok(())
}

/// Sends the mails, and returns the `App` with its metrics.
async fn demonstrate() -> Result<Arc<App>, Box<dyn Error>> {
    let client = DurableClient::open(MemoryStore::new());
    let app = Arc::new(App::default());
    let executor = DurableExecutor::builder(client.clone())
        .register::<SendMail>()
        .max_running(8)
        .retry(Retry::exponential().base(Duration::from_millis(50)))
        .layer(TimeoutLayer::new(Duration::from_millis(100)))
        .layer(around(break_circuit))
        .layer(around(count))
        .layer(around(trace))
        .start(Arc::clone(&app))
        .await?;
    for mail in client.spawn_all((0..MAILS).map(SendMail)).await? {
        mail.await?;
    }
    executor.shutdown(Duration::from_secs(10)).await;
    Ok(app)
}

// ===== The tasks =====

/// Sends the mail of this number.
#[derive(Serialize, Deserialize)]
struct SendMail(u64);

impl DurableTask for SendMail {
    const NAME: &'static str = "mail.send";
    type Output = ();
}

impl Run<App> for SendMail {
    async fn run(self, cx: TaskContext<App>) -> Result<(), TaskError> {
        cx.app().provider.deliver().await
    }
}

/// The state that runs and layers share.
#[derive(Default)]
struct App {
    provider: Provider,
    breaker: Mutex<Breaker>,
    metrics: Mutex<Metrics>,
}

#[derive(Default)]
struct Provider {
    requests: AtomicU64,
}

impl Provider {
    /// Delivers a mail. Two requests hang, and those of the outage fail.
    async fn deliver(&self) -> Result<(), TaskError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(10)).await;
        match request {
            7 | 47 => pending().await,
            20.. if request < 20 + OUTAGE => Err("503 Service Unavailable".into()),
            _ => Ok(()),
        }
    }
}

// ===== The layers =====

/// Returns a layer that calls a function with the inner service and the request of each run.
fn around<R>(
    act: fn(RunService<App>, RunRequest<App>) -> R,
) -> impl Layer<
    RunService<App>,
    Service = impl Service<RunRequest<App>, Response = RunOutput, Error = RunError, Future = R>
              + Clone
              + Send
              + Sync,
>
where
    R: Future<Output = Outcome> + Send + 'static,
{
    layer_fn(move |inner: RunService<App>| service_fn(move |request| act(inner.clone(), request)))
}

/// Prints how each run ends, unless its task was snoozed.
async fn trace(inner: RunService<App>, request: RunRequest<App>) -> Outcome {
    let what = format!(
        "{}, attempt {}",
        request.name(),
        request.context().attempt()
    );
    let result = inner.oneshot(request).await;
    match &result {
        Ok(_) => println!("{what}: done"),
        Err(error) if error.is_snooze() => {}
        Err(error) => println!("{what}: {error}"),
    }
    result
}

/// Counts the runs of each name of a task.
async fn count(inner: RunService<App>, request: RunRequest<App>) -> Outcome {
    let (name, app) = (request.name(), Arc::clone(request.context().app()));
    let begun = Instant::now();
    let result = inner.oneshot(request).await;
    let mut metrics = lock(&app.metrics);
    let of_name = metrics.entry(name).or_default();
    of_name.total += begun.elapsed();
    match &result {
        Ok(_) => of_name.done += 1,
        Err(error) if error.is_snooze() => of_name.put_off += 1,
        Err(_) => of_name.failed += 1,
    }
    drop(metrics);
    result
}

/// The counts for each name of a task.
type Metrics = BTreeMap<&'static str, Counts>;

#[derive(Debug, Default)]
struct Counts {
    done: u64,
    failed: u64,
    put_off: u64,
    /// The total duration of all runs.
    total: Duration,
}

/// Snoozes tasks while most runs fail.
async fn break_circuit(inner: RunService<App>, request: RunRequest<App>) -> Outcome {
    let app = Arc::clone(request.context().app());
    if let Some(pause) = lock(&app.breaker).pause() {
        return Err(TaskError::snooze(pause).into());
    }
    let result = inner.oneshot(request).await;
    lock(&app.breaker).record(result.is_ok());
    result
}

/// The number of last runs that the breaker considers.
const LAST_RUNS: usize = 10;
/// The time until the next run probes the provider.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Breaker {
    /// For each of the last runs, `true` if it has succeeded.
    last: VecDeque<bool>,
    /// The time of the next probe, if the breaker is open.
    probe: Option<Instant>,
}

impl Breaker {
    /// Returns the time for which a task is snoozed, or `None` if it may run.
    fn pause(&mut self) -> Option<Duration> {
        let (probe, now) = (self.probe?, Instant::now());
        if now < probe {
            return Some(probe - now);
        }
        // This run is the probe. Other tasks wait for the next probe.
        self.probe = Some(now + PAUSE);
        None
    }

    fn record(&mut self, succeeded: bool) {
        self.last.push_back(succeeded);
        if self.last.len() > LAST_RUNS {
            self.last.pop_front();
        }
        let failed = self.last.iter().filter(|&&succeeded| !succeeded).count();
        if succeeded && self.probe.take().is_some() {
            println!("The provider works again.");
            self.last.clear();
        } else if failed > LAST_RUNS / 2 && self.probe.is_none() {
            println!("The provider is not available: tasks are snoozed.");
            self.probe = Some(Instant::now() + PAUSE);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no thread panics while it holds the lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_mail_is_delivered_once_and_runs_are_put_off_during_the_outage() {
        let app = demonstrate().await.expect("all mails are sent");
        let metrics = lock(&app.metrics);
        let counts = &metrics[SendMail::NAME];
        let requests = app.provider.requests.load(Ordering::Relaxed);
        assert_eq!((counts.done, requests), (MAILS, MAILS + counts.failed));
        assert!(counts.failed > OUTAGE && counts.put_off > 0);
        assert!(lock(&app.breaker).probe.is_none());
    }
}
