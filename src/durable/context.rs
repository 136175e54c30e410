//! [`TaskContext`]: what a task knows of its run.

use std::fmt;
use std::sync::{Arc as StdArc, OnceLock};

use tokio_util::sync::CancellationToken;

use super::store::{Claimed, Epoch};
use super::{DurableClient, TaskId};

/// What a task knows of its run.
pub struct TaskContext<App> {
    app: StdArc<App>,
    client: DurableClient,
    id: TaskId,
    failures: u32,
    crashes: u32,
    epoch: Epoch,
    stop: Stop,
}

/// Why a run is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// Somebody has [cancelled](DurableClient::cancel) the task. If it ends with an error, it is
    /// cancelled; if it succeeds all the same, it has succeeded.
    Cancelled,
    /// The store may have given the task to another worker. If it has, what this run does from here on
    /// is too late, and what it returns is ignored; if it has not, a success counts.
    LeaseLost,
    /// The executor is [shut down](super::DurableExecutor::shutdown). If the run ends with an error,
    /// the task is given back, and nothing is counted.
    Shutdown,
}

/// Tells one run to stop.
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
    ) -> Self {
        Self {
            app,
            client,
            id: claimed.id,
            failures: claimed.failures,
            crashes: claimed.crashes,
            epoch,
            stop,
        }
    }

    /// What the executor was [started](super::Builder::start) with.
    pub fn app(&self) -> &StdArc<App> {
        &self.app
    }

    /// The client of the executor, to spawn further tasks.
    pub fn client(&self) -> &DurableClient {
        &self.client
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Which attempt this is, from 1: how many have failed, and one.
    pub fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// How many workers are known to have died while they ran the task.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// A number that is higher than that of every earlier run of this task.
    ///
    /// Whoever keeps what the task writes can remember the highest number that it has seen, and
    /// refuse those that are lower: so a run that has lost its lease cannot overwrite what its
    /// successor wrote.
    ///
    /// The number also rises after an older copy of the store is restored, or a replica of a Redis server that lacks
    /// the last claims is promoted. If the clock is right then, it rises in any case, since the number is at least the
    /// time in microseconds since 1970. If the clock is behind, it rises if the copy was taken while a worker had the
    /// store open, and at most five minutes before the last claim that the copy lacks. After an older copy, it rises
    /// for as long as the clients that have received the last claims are running.
    pub fn fencing_token(&self) -> u64 {
        self.epoch
    }

    /// A text that is the same in all runs of this task, and in no others: for services that do a
    /// thing once for each key.
    pub fn idempotency_key(&self) -> String {
        self.id.to_string()
    }

    /// Cancelled when the run should stop: see [`stop_reason`](Self::stop_reason).
    pub fn cancellation(&self) -> &CancellationToken {
        &self.stop.token
    }

    /// Waits until the run should stop.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn stopped(&self) -> StopReason {
        self.stop.token.cancelled().await;
        self.stop_reason().unwrap_or(StopReason::LeaseLost)
    }

    /// Why the run should stop, if it should.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.stop.reason()
    }
}

impl<App> fmt::Debug for TaskContext<App> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("id", &self.id)
            .field("attempt", &self.attempt())
            .field("crashes", &self.crashes)
            .field("fencing_token", &self.epoch)
            .field("stop_reason", &self.stop_reason())
            .finish_non_exhaustive()
    }
}

impl Stop {
    /// Tells the run to stop. The first reason stands.
    pub(crate) fn set(&self, reason: StopReason) {
        self.reason.set(reason).ok();
        self.token.cancel();
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }
}
