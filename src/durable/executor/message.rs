//! [`Message`]: what a worker receives from its engine, its runs and its executor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::attempt::TimeLimit;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, PushedClaim, SessionId, Verdict};

/// A message to a worker.
pub(crate) enum Message {
    /// There may be a task to claim for this session or, without one, for any.
    Wake(Option<SessionId>),
    /// The store has claimed tasks for an idle session, perhaps of another worker.
    Pushed(Arc<PushedClaim>),
    /// Cancel those of these tasks that this worker runs.
    Cancel(Vec<TaskId>),
    /// A run that has a timeout has begun.
    Started {
        epoch: Epoch,
        id: TaskId,
        limit: Box<TimeLimit>,
    },
    /// A run has ended. Without a verdict, its runtime has dropped it.
    Ended {
        epoch: Epoch,
        id: TaskId,
        verdict: Option<Verdict>,
        /// The duration of the run.
        took: Duration,
    },
    /// A run awaits durable handles, and has given its permit back.
    Suspended { epoch: Epoch, id: TaskId },
    /// A suspended run asks for a permit.
    Resume {
        epoch: Epoch,
        id: TaskId,
        grant: oneshot::Sender<()>,
    },
    /// The runtime has run the probe.
    RuntimeAlive,
    /// Claim no more tasks, and end when the runs have ended.
    Close,
    /// Claim no more tasks, ask the runs to stop, and end after this grace period.
    Shutdown(Duration),
}
