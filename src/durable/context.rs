//! [`TaskContext`]: the context of a run.

use std::fmt;
use std::sync::{Arc as StdArc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::progress::{self, RunProgress};
use super::queue::group::GroupName;
use super::store::{Claimed, Epoch, ProgressState};
use super::workflow::run_steps::RunSteps;
use super::{DurableClient, DurableError, TaskId, report};

/// The context of a run: the `App`, the client, and facts about the task.
///
/// Clones are the same context, for instance for a blocking closure that checks [`stop_reason`](Self::stop_reason).
pub struct TaskContext<App> {
    app: StdArc<App>,
    client: DurableClient,
    id: TaskId,
    group: Option<GroupName>,
    failures: u32,
    crashes: u32,
    epoch: Epoch,
    tick: Option<u64>,
    stop: Stop,
    progress: StdArc<RunProgress>,
    pub(super) steps: StdArc<RunSteps>,
}

/// Why a run is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The task was [cancelled](DurableClient::cancel). If the run ends with an error, the task is cancelled; if it succeeds
    /// nevertheless, the task has succeeded.
    Cancelled,
    /// The store may have given the task to another worker. If it has, the output of this run is ignored; if not, a success
    /// counts.
    LeaseLost,
    /// The executor is being [shut down](crate::durable::DurableExecutor::shutdown). If the run ends with an error, the task
    /// is given back, and nothing is counted.
    Shutdown,
    /// The run has exceeded its [timeout](crate::durable::DurableTask::TIMEOUT). If it ends within a further
    /// [lease](crate::durable::Builder::lease), its output or its error counts as that of any other run. Otherwise, the attempt has
    /// failed, and the result of this run is ignored.
    TimedOut,
}

/// Asks one run to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    token: CancellationToken,
    reason: StdArc<OnceLock<StopReason>>,
}

impl<App> TaskContext<App> {
    pub(crate) fn new(
        app: StdArc<App>,
        client: DurableClient,
        claimed: &Claimed,
        epoch: Epoch,
        stop: Stop,
        progress: StdArc<RunProgress>,
    ) -> Self {
        Self {
            app,
            client,
            id: claimed.id,
            group: claimed.group.clone(),
            failures: claimed.failures,
            crashes: claimed.crashes,
            epoch,
            tick: None,
            stop,
            progress,
            steps: StdArc::new(RunSteps::new(claimed)),
        }
    }

    /// Sets the tick for which a schedule has stored the task, in milliseconds since 1970.
    pub(crate) fn at_tick(mut self, tick: Option<u64>) -> Self {
        self.tick = tick;
        self
    }

    /// Returns the value that the executor was [started](crate::durable::Builder::start) with.
    ///
    /// # Examples
    ///
    /// See [`Run`](crate::durable::Run).
    pub fn app(&self) -> &StdArc<App> {
        &self.app
    }

    /// Returns the client of the executor, to spawn further tasks.
    ///
    /// # Examples
    ///
    /// See [`DurableHandle`](crate::durable::DurableHandle).
    pub fn client(&self) -> &DurableClient {
        &self.client
    }

    /// Returns the task's id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the [group](crate::durable::SpawnOptions::group) of the task, or `None` if it has no group.
    pub fn group(&self) -> Option<&str> {
        self.group.as_ref().map(GroupName::as_str)
    }

    /// Returns the attempt number, starting at 1.
    ///
    /// # Examples
    ///
    /// See [`Run`](crate::durable::Run).
    pub fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// Returns the number of workers that are known to have died while they ran the task.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// Returns a number that is higher than that of every earlier run of this task.
    ///
    /// A system that the task writes to can remember the highest number that it has received, and refuse lower ones. Then a
    /// run that has lost its lease cannot overwrite what its successor wrote.
    ///
    /// The number also rises after an older copy of the store is restored, or a replica of a Redis server that lacks
    /// the last claims is promoted. If the clock is right then, it rises in any case, since the number is at least the
    /// time in microseconds since 1970. If the clock is behind, it rises if the copy was taken while a worker had the
    /// store open, and at most five minutes before the last claim that the copy lacks. After an older copy, it rises
    /// for as long as the clients that have received the last claims are running.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore};
    /// use std::collections::HashMap;
    /// use std::sync::Mutex;
    ///
    /// use throng::durable::{Run, TaskContext, TaskError, TaskId};
    ///
    /// # #[derive(Serialize, Deserialize)] struct Report { user: u64 }
    /// # impl DurableTask for Report { const NAME: &'static str = "report"; type Output = (); }
    /// /// The report of each task, and the token of the run that has written it.
    /// type Reports = Mutex<HashMap<TaskId, (u64, String)>>;
    ///
    /// impl Run<Reports> for Report {
    ///     async fn run(self, cx: TaskContext<Reports>) -> Result<(), TaskError> {
    ///         let mut reports = cx.app().lock().expect("no run panics");
    ///         let (highest, report) = reports.entry(cx.id()).or_default();
    ///         if *highest > cx.fencing_token() {
    ///             return Err(TaskError::retry("a later run has already written the report"));
    ///         }
    ///         (*highest, *report) = (cx.fencing_token(), format!("user {}", self.user));
    ///         Ok(())
    ///     }
    /// }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let reports = std::sync::Arc::new(Reports::default());
    /// # let mut builder = DurableExecutor::builder(client.clone());
    /// # let mut executor = builder.register::<Report>().start_inline(reports.clone()).await?;
    /// # let id = client.spawn(Report { user: 7 }).await?.id();
    /// # executor.run_due().await?;
    /// # let reports = reports.lock().expect("no run panics");
    /// # assert!(reports[&id].0 > 0 && reports[&id].1 == "user 7");
    /// # Ok(()) }
    /// ```
    pub fn fencing_token(&self) -> u64 {
        self.epoch
    }

    /// Returns a text that is the same in all runs of this task, and different from that of every other task. Pass it to
    /// services that act once for each key.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn post(_: &str, _: (&str, String)) -> Result<(), TaskError> { Ok(()) }
    /// async fn pay(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     // The service charges once for this key, even if the task runs again.
    ///     post("/charges", ("Idempotency-Key", cx.idempotency_key())).await
    /// }
    /// # let _ = pay;
    /// ```
    pub fn idempotency_key(&self) -> String {
        self.id.to_string()
    }

    /// Returns the *tick* of the task: the time for which a [schedule](DurableClient::schedule) has stored it. Returns `None` if no
    /// schedule has stored the task.
    ///
    /// All runs of the task have the same tick, and it does not include [jitter](crate::durable::ScheduleOptions::jitter). So use
    /// it instead of the current time to determine, for example, which day a report covers: the task may run much later, for
    /// instance after an outage. For a task that [`fire_now`](crate::durable::Schedules::fire_now) has stored, the tick is the
    /// time of that call.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{TaskContext, TaskError};
    /// # use std::time::SystemTime;
    /// # async fn report_until(_: SystemTime) -> Result<(), TaskError> { Ok(()) }
    /// async fn nightly(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     report_until(cx.tick().unwrap_or_else(SystemTime::now)).await
    /// }
    /// # let _ = nightly;
    /// ```
    pub fn tick(&self) -> Option<SystemTime> {
        let since_1970 = self.tick.map(Duration::from_millis);
        since_1970.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time))
    }

    /// Reports the progress of the task: any value that has at most 4 KiB as JSON. This method never waits.
    ///
    /// A [stream](crate::durable::DurableHandle::progress) in any process yields the progress, and the next run of the task can
    /// [read](Self::last_progress) it. Each report replaces the one before, and the executor stores the last report about once a second.
    /// So a run can report as often as it likes, and some reports are never stored. If the run ends and the task may run again, the last
    /// report is stored first, unless the store does not answer within a second. If the worker dies, the reports of about a second are
    /// lost.
    ///
    /// The progress is kept until the task ends. A [replayed](crate::durable::DeadLetters::replay) dead letter starts without progress.
    ///
    /// A value that is larger, or that cannot be encoded, is ignored; with the feature `tracing`, a warning is emitted. If another worker
    /// has claimed the task meanwhile, the report is ignored, and this run is asked to [stop](StopReason::LeaseLost).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn import_file(_: u32) -> Result<(), TaskError> { Ok(()) }
    /// #[derive(Serialize, Deserialize)]
    /// struct Imported {
    ///     files: u32,
    ///     of: u32,
    /// }
    ///
    /// async fn import(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     // Continue after the last file that an earlier run has imported.
    ///     let before: Option<Imported> = cx.last_progress().await?;
    ///     for file in before.map_or(0, |before| before.files)..100 {
    ///         import_file(file).await?;
    ///         cx.progress(&Imported { files: file + 1, of: 100 });
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = import;
    /// ```
    pub fn progress<P: Serialize + ?Sized>(&self, progress: &P) {
        match progress::encode(progress) {
            Ok(bytes) => self.progress.report(bytes),
            Err(error) => report::progress_dropped(self.client.store_name(), self.id, &error),
        }
    }

    /// Returns the last [progress](Self::progress) that this run has reported or, if it has reported none, the last progress of the
    /// earlier runs of the task. Returns `None` if there is none. See [`progress`](Self::progress) for an example.
    ///
    /// # Errors
    ///
    /// - The progress is not a `P` ([`is_decode`](DurableError::is_decode)).
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn last_progress<P: DeserializeOwned>(&self) -> Result<Option<P>, DurableError> {
        let own = self.progress.last();
        let last = match own {
            Some(bytes) => Some(bytes),
            None => self.stored_progress().await?,
        };
        let decoded = last.map(|bytes| serde_json::from_slice(&bytes)).transpose();
        let store_name = self.client.store_name();
        decoded.map_err(|error| DurableError::decode_progress(store_name, self.id, error))
    }

    async fn stored_progress(&self) -> Result<Option<Vec<u8>>, DurableError> {
        let id = self.id;
        let states = self.client.ask(Some(id), |store| store.progress(vec![id]));
        match states.await?.pop() {
            Some(ProgressState::Alive(Some(progress))) => Ok(Some(progress.bytes)),
            _ => Ok(None),
        }
    }

    /// Waits until the run should stop, and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped, and the method called again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn copy_next_chunk() -> Result<bool, TaskError> { Ok(false) }
    /// async fn copy(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     loop {
    ///         tokio::select! {
    ///             reason = cx.stopped() => return Err(TaskError::retry(format!("stopped: {reason:?}"))),
    ///             more = copy_next_chunk() => if !more? { return Ok(()) },
    ///         }
    ///     }
    /// }
    /// # let _ = copy;
    /// ```
    pub async fn stopped(&self) -> StopReason {
        self.stop.token.cancelled().await;
        self.stop_reason().unwrap_or(StopReason::LeaseLost)
    }

    /// Asks the run to stop.
    pub(super) fn stop(&self, reason: StopReason) {
        self.stop.set(reason);
    }

    /// Returns the reason why the run should stop, or `None` if it should continue.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{TaskContext, TaskError};
    /// # fn copy_chunk(_: u32) {}
    /// async fn copy(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     let copied = throng::spawn_blocking(move || {
    ///         for chunk in 0..1_000 {
    ///             if let Some(reason) = cx.stop_reason() {
    ///                 return Err(TaskError::retry(format!("stopped: {reason:?}")));
    ///             }
    ///             copy_chunk(chunk);
    ///         }
    ///         Ok(())
    ///     });
    ///     copied.await?
    /// }
    /// # let _ = copy;
    /// ```
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.stop.reason()
    }
}

#[cfg(feature = "tokio-util")]
impl<App> TaskContext<App> {
    /// Returns a token that is cancelled when the run should stop, for code that expects one. This needs the feature
    /// `tokio-util`. Cancelling the token does not cancel the task.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn download() -> Result<(), TaskError> { Ok(()) }
    /// async fn run(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     match cx.cancellation_token().run_until_cancelled(download()).await {
    ///         Some(downloaded) => downloaded,
    ///         None => Err(TaskError::retry("stopped")),
    ///     }
    /// }
    /// # let _ = run;
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        self.stop.token.child_token()
    }
}

impl<App> Clone for TaskContext<App> {
    fn clone(&self) -> Self {
        Self {
            app: StdArc::clone(&self.app),
            client: self.client.clone(),
            group: self.group.clone(),
            stop: self.stop.clone(),
            progress: StdArc::clone(&self.progress),
            steps: StdArc::clone(&self.steps),
            ..*self
        }
    }
}

impl<App> fmt::Debug for TaskContext<App> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("id", &self.id)
            .field("group", &self.group())
            .field("attempt", &self.attempt())
            .field("crashes", &self.crashes)
            .field("fencing_token", &self.epoch)
            .field("stop_reason", &self.stop_reason())
            .finish_non_exhaustive()
    }
}

impl Stop {
    /// Asks the run to stop. Only the first reason counts.
    pub(crate) fn set(&self, reason: StopReason) {
        self.reason.set(reason).ok();
        self.token.cancel();
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }
}
