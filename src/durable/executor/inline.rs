//! [`InlineExecutor`]: runs tasks on the caller, for tests.

use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::pin::pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::app_runner::{RunOutcome, StartedRun, TaskRunner};
use super::attempt::TimeLimit;
use super::open_sessions::OpenSessions;
use super::progress_reports::may_run_again;
use super::scope::{Rule, RunScope};
use super::worker::Settings;
use crate::durable::context::Stop;
use crate::durable::progress::RunProgress;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{
    Claim, ClaimPushes, MAX_BATCH_BYTES, ProgressReport, SessionId, Turn, Verdict, Verdicts,
};
use crate::durable::{DurableClient, DurableError, StopReason};
use crate::unwind::contain;

/// Runs tasks on the caller, one at a time, when the caller calls [`run_due`](Self::run_due): for tests.
///
/// This executor does not fire [schedules](DurableClient::schedule). A test can store their tasks with
/// [`Schedules::fire_now`](crate::durable::Schedules::fire_now).
///
/// A run that exceeds its [timeout](crate::durable::DurableTask::TIMEOUT) is asked to stop, and is dropped after a further
/// [lease](super::builder::Builder::lease). Both times are measured by Tokio's clock, which a test can pause. To run a task with a
/// timeout, the executor needs a Tokio runtime with [time](tokio::runtime::Builder::enable_time).
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableTask, Run, SpawnOptions, TaskContext, TaskError};
/// # #[derive(Serialize, Deserialize)] struct Remind;
/// # impl DurableTask for Remind { const NAME: &'static str = "remind"; type Output = u32; }
/// # struct App;
/// # impl Run<App> for Remind {
/// #     async fn run(self, cx: TaskContext<App>) -> Result<u32, TaskError> { Ok(cx.attempt()) }
/// # }
/// use std::time::Duration;
/// use throng::durable::{Clock, DurableClient, DurableExecutor, MemoryStore};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Clock::manual();
/// let client = DurableClient::open(MemoryStore::with_clock(&clock));
/// let mut executor = DurableExecutor::builder(client.clone())
///     .register::<Remind>()
///     .start_inline(App)
///     .await?;
///
/// let tomorrow = SpawnOptions::new().delay(Duration::from_secs(24 * 3600));
/// let handle = client.spawn_with(Remind, tomorrow).await?;
/// assert_eq!(executor.run_due().await?, 0);
///
/// clock.advance(Duration::from_secs(24 * 3600));
/// assert_eq!(executor.run_due().await?, 1);
/// assert_eq!(handle.await?, 1);
/// # Ok(()) }
/// ```
pub struct InlineExecutor {
    client: DurableClient,
    runner: StdArc<dyn TaskRunner>,
    /// When they are dropped, the tasks that the executor holds are given back.
    sessions: OpenSessions,
    /// The queues of the sessions.
    queues: Vec<QueueName>,
    /// The time for which a run may continue after its timeout.
    grace: Duration,
    number: u64,
    /// The verdicts that are not stored yet.
    verdicts: Vec<Verdicts>,
}

/// Longer than a test debugs a task.
const LEASE: Duration = Duration::from_secs(24 * 3600);

impl InlineExecutor {
    pub(super) async fn start(
        client: DurableClient,
        runner: impl TaskRunner + 'static,
        settings: &Settings,
    ) -> Result<Self, DurableError> {
        let sessions = OpenSessions::open(&client, &runner, &settings.queues).await?;
        Ok(Self {
            client,
            runner: StdArc::new(runner),
            sessions,
            queues: settings.queues.iter().map(|it| it.queue.clone()).collect(),
            grace: settings.lease,
            number: 0,
            verdicts: Vec::new(),
        })
    }

    /// Runs the tasks that are due, including those that become due meanwhile, until there are none. Returns the number of
    /// runs. The queues that the executor [serves](super::builder::Builder::serve) take turns, in their order: each is served
    /// until it has no more due tasks.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, this executor holds the task that was running for a day, or until the executor is dropped.
    ///
    /// # Examples
    ///
    /// See [`InlineExecutor`].
    pub async fn run_due(&mut self) -> Result<usize, DurableError> {
        let sessions: Vec<_> =
            iter::zip(self.sessions.ids().to_vec(), self.queues.clone()).collect();
        // The number of runs, and of the queues in a row that have no due tasks.
        let (mut runs, mut empty) = (0, 0);
        for (session, queue) in sessions.iter().cycle() {
            let before = runs;
            while let Some(claim) = self.claim(*session).await? {
                runs += claim.tasks.len();
                self.run_all(queue, claim).await;
            }
            empty = if runs > before { 1 } else { empty + 1 };
            if empty == sessions.len() {
                break;
            }
        }
        Ok(runs)
    }

    /// Stores the verdicts, and claims a task.
    async fn claim(&mut self, session: SessionId) -> Result<Option<Claim>, DurableError> {
        let request = self.next_turn(session);
        let answer = self
            .client
            .ask(None, |store| store.turn(request.clone()))
            .await?;
        let stored = std::mem::take(&mut self.verdicts);
        let ended = stored.iter().flat_map(|it| &it.tasks).map(|task| task.0);
        self.client.engine().waiters.check(ended);
        if let Some(claim) = &answer.claim {
            self.client.engine().received(claim.epoch);
        }
        Ok(answer.claim)
    }

    async fn run_all(&mut self, queue: &QueueName, claim: Claim) {
        for task in claim.tasks {
            let (id, stop) = (task.id, Stop::default());
            let (sender, reports) = mpsc::unbounded_channel();
            let progress = RunProgress::new(id, claim.epoch, sender);
            let run_progress = StdArc::clone(&progress);
            let started = self
                .runner
                .run(queue, task, claim.epoch, stop.clone(), run_progress);
            let StartedRun { mut run, limit } = started;
            // Awaited tasks would have to run on this caller, too.
            let scope = RunScope::new(id, Rule::Refuse, StdArc::default());
            let polled = poll_fn(|cx| scope.enter(|| run.as_mut().poll(cx)));
            let polled = self.storing_progress(polled, reports);
            let verdict = self.verdict(polled, limit, &stop).await;
            // The drop of a run that has not ended may panic.
            contain(|| drop(run));
            let last = progress.end().filter(|_| may_run_again(&verdict));
            self.store_progress(last).await;
            self.verdicts.push(Verdicts {
                epoch: claim.epoch,
                tasks: vec![(id, verdict)],
            });
        }
    }

    /// Waits for a run. After its timeout, the run is asked to stop; after the grace period, it is dropped.
    async fn verdict(
        &self,
        run: impl Future<Output = RunOutcome>,
        limit: Option<Box<TimeLimit>>,
        stop: &Stop,
    ) -> Verdict {
        let mut run = pin!(run);
        let Some(limit) = limit else {
            return run.await.verdict;
        };
        if let Ok(outcome) = timeout(limit.timeout, &mut run).await {
            return outcome.verdict;
        }
        stop.set(StopReason::TimedOut);
        let ended = timeout(self.grace, run).await;
        ended.map_or_else(|_| limit.exceeded(), |outcome| outcome.verdict)
    }

    /// Waits for a run, and stores the progress that it reports.
    async fn storing_progress(
        &self,
        run: impl Future<Output = RunOutcome>,
        mut reports: mpsc::UnboundedReceiver<StdArc<RunProgress>>,
    ) -> RunOutcome {
        let mut run = pin!(run);
        loop {
            tokio::select! {
                outcome = &mut run => return outcome,
                Some(reported) = reports.recv() => self.store_progress(reported.take()).await,
            }
        }
    }

    /// Stores a report. A failure is ignored: the next run then reads an earlier report.
    async fn store_progress(&self, report: Option<ProgressReport>) {
        let Some(report) = report else {
            return;
        };
        let stored = self.client.ask(Some(report.id), |store| {
            store.report_progress(vec![report.clone()])
        });
        stored.await.ok();
    }

    /// Returns a turn that claims one task.
    fn next_turn(&mut self, session: SessionId) -> StdArc<Turn> {
        self.number += 1;
        StdArc::new(Turn {
            session,
            number: self.number,
            verdicts: self.verdicts.clone(),
            // The verdicts confirm the last claim.
            received: None,
            floor: self.client.engine().floor(),
            want: 1,
            want_bytes: MAX_BATCH_BYTES,
            quarantined: true,
            lease: LEASE,
            go_idle: false,
            pushes: ClaimPushes::default(),
        })
    }
}

impl fmt::Debug for InlineExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineExecutor")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
