//! The requests that a store answers, and the answers.

use std::sync::Arc;
use std::time::Duration;

#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
use crate::durable::TaskInfo;
use crate::durable::clock::millis;
use crate::durable::key::Conflict;
use crate::durable::queue::QueueSettings;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::spawn_queue::WriteBatch;
use crate::durable::store::WorkerCard;
use crate::durable::store::kind::TypeSet;
use crate::durable::{DeadReason, Status, TaskId};

/// The id of a session. The store issues each one once.
pub type SessionId = u64;

/// The epoch of a claim: above zero, and above the epochs of all earlier claims of its tasks.
pub type Epoch = u64;

/// A session that is to be opened.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The types of the tasks that it claims. Without a set, it claims nothing.
    pub set: Option<TypeSet>,
    /// The description of its worker. A session with a card is listed among the workers.
    pub card: Option<WorkerCard>,
}

/// A request to store tasks.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// The session that numbers the request.
    pub session: SessionId,
    /// The number of the request in its session.
    pub number: u64,
    /// The tasks.
    pub batch: Arc<WriteBatch>,
}

/// A request of a worker: it reports how tasks ended, and claims others.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The session that numbers the request, and claims the tasks.
    pub session: SessionId,
    /// The number of the request in its session.
    pub number: u64,
    /// The verdicts, grouped by claim: at most [`MAX_BATCH_TASKS`](super::MAX_BATCH_TASKS) in total.
    pub verdicts: Vec<Verdicts>,
    /// The claim in the answer to the last turn of this session. This turn confirms that it has arrived.
    pub received: Option<Epoch>,
    /// The highest epoch that this client has received, or zero. A new claim gets a higher one, even in a store
    /// that was restored from an older copy.
    pub floor: Epoch,
    /// The number of tasks to claim: at most [`MAX_BATCH_TASKS`](super::MAX_BATCH_TASKS).
    ///
    /// They are of the queue of the session, if its limits allow that, those of a higher priority first: see
    /// [`PriorityTurns`](crate::durable::queue::priority::PriorityTurns). Within a priority, the groups of the queue take turns, and tasks
    /// without a group follow.
    pub want: usize,
    /// The maximum size of their payloads in bytes. A claim may have one larger payload.
    pub want_bytes: usize,
    /// `true` if the claim may have one [quarantined](super::is_quarantined) task. Otherwise, the turn passes over those.
    pub quarantined: bool,
    /// The lease of the claim. When it is over, the store extends it once, by a third, and takes the tasks back at the
    /// end of the extension.
    pub lease: Duration,
    /// If nothing could be claimed: have [`Event::Wake`] sent to some of the sessions that asked for it as soon as there
    /// is a task. This holds until the next turn. A store may also do so if it has claimed less than was wanted, and then
    /// [says so](TurnAnswer::is_idle).
    pub go_idle: bool,
    /// The part that concerns claims which the store pushes. A store that pushes none ignores it.
    pub pushes: ClaimPushes,
}

/// The part of a turn that concerns claims that the store [pushes](Event::Pushed) to its session. Pushed claims arrive in the order of
/// their epochs.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only Redis pushes claims")
)]
pub struct ClaimPushes {
    /// While the session is idle, the store may claim tasks for it as soon as they are stored: as many as this turn wants and does not
    /// claim.
    pub are_accepted: bool,
    /// The last pushed claim that has arrived.
    pub received: Option<Epoch>,
    /// Messages may have been lost, so the turn returns the first pushed claim that has not arrived, instead of a new one.
    pub may_be_lost: bool,
}

/// The verdicts on tasks of one claim.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// The claim.
    pub epoch: Epoch,
    /// The tasks, and the ends of their runs.
    pub tasks: Vec<(TaskId, Verdict)>,
}

/// The end of a run of a task. If the task was to be cancelled, any verdict but `Done` makes it cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The task has succeeded, with this output.
    Done(Vec<u8>),
    /// The attempt has failed, and another one follows after a while. `took` is the duration of the run, if it is known.
    Retry {
        /// The time until the task is due.
        after: Duration,
        /// The error of the attempt, of at most `MAX_ATTEMPT_ERROR_BYTES`.
        error: String,
        /// The duration of the run.
        took: Option<Duration>,
    },
    /// The task runs again after a while. No attempt is counted.
    Snooze {
        /// The time until the task is due.
        after: Duration,
    },
    /// The task is delayed for a while, or until it has `until` steps: if it has them, it is due at once. Its failures are forgotten.
    /// `waits_for` describes its waits for operators: see `workflow/awaited.rs`. It is stored only with `until`.
    Suspend {
        /// The time until the task is due.
        after: Duration,
        /// The number of steps that makes the task due.
        until: Option<u32>,
        /// The description of the waits.
        waits_for: String,
    },
    /// The task has failed for good. `took` is the duration of the run, if the task has run.
    Dead {
        /// The reason.
        reason: DeadReason,
        /// The last error, of at most `MAX_ERROR_BYTES`.
        error: String,
        /// The duration of the run.
        took: Option<Duration>,
    },
    /// The task is given back, and goes ahead of the waiting tasks. (Tasks of one claim that are given back together are
    /// in the order of their ids.)
    Release,
    /// The group of the task is held: no task of the group starts before this time is over. This replaces an earlier hold. Apart from
    /// that, this is the verdict `then`, which is not `Done`. If the task has no group, nothing is held.
    HoldGroup {
        /// The time for which the group is held.
        wait: Duration,
        /// The verdict on the task alone.
        then: Box<Self>,
    },
}

impl Verdict {
    /// Returns the verdict on the task alone, and the time for which its group is held.
    pub fn split(&self) -> (&Self, Option<Duration>) {
        match self {
            Self::HoldGroup { wait, then } => (then.split().0, Some(*wait)),
            other => (other, None),
        }
    }

    /// Returns the duration of the run, if the run has failed and the duration is known.
    #[cfg(any(feature = "redis", feature = "unstable-store"))]
    pub fn took(&self) -> Option<Duration> {
        match self {
            Self::Retry { took, .. } | Self::Dead { took, .. } => *took,
            Self::HoldGroup { then, .. } => then.took(),
            Self::Done(_) | Self::Snooze { .. } | Self::Suspend { .. } | Self::Release => None,
        }
    }

    /// Adds the duration of the run, in whole milliseconds, if the run has failed.
    pub fn after(mut self, time: Duration) -> Self {
        match &mut self {
            Self::Retry { took, .. } | Self::Dead { took, .. } => {
                *took = Some(Duration::from_millis(millis(time)));
            }
            Self::HoldGroup { then, .. } => {
                let verdict = std::mem::replace(&mut **then, Self::Release);
                **then = verdict.after(time);
            }
            Self::Done(_) | Self::Snooze { .. } | Self::Suspend { .. } | Self::Release => {}
        }
        self
    }
}

/// The answer to a [`Turn`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TurnAnswer {
    /// The tasks whose verdicts came too late: they were no longer held under that epoch. The answer to a repeated turn
    /// does not contain them again.
    pub refused: Vec<TaskId>,
    /// The claimed tasks.
    pub claim: Option<Claim>,
    /// `true` if more tasks wait that this session may claim.
    pub more: bool,
    /// The time after which to send another turn, unless an event wakes the worker earlier.
    pub next: Option<Duration>,
    /// Although tasks were claimed, this worker is woken when there are more.
    pub is_idle: bool,
    /// A part of the store relies on this session to look for its tasks, although the session is not idle as a whole. If the worker has no
    /// permit for them, it sends a turn that claims nothing, so that another session is woken.
    pub passes_on: bool,
    /// The claim was pushed before.
    pub is_pushed: bool,
    /// The number of idle sessions that claim the same tasks, including this one. Sessions of processes that have died count for about a
    /// minute. The number is zero if the store does not count idle sessions, or if this session has claimed tasks, has reported verdicts,
    /// or is not idle.
    pub idle_sessions: usize,
    /// The time until the next schedule is due, of those whose ticks this build computes. In a store with several partitions,
    /// schedules in others than that of the claim may be left out.
    pub next_tick: Option<Duration>,
    /// The claims of the request whose verdicts are not stored, because the part of the store that has them does not answer. The worker
    /// reports these verdicts again with a later turn.
    pub unreached: Vec<Epoch>,
}

/// Tasks that were claimed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch, which is higher than that of each earlier claim.
    pub epoch: Epoch,
    /// The tasks in the order in which they waited, or, if the turn was repeated, in the order of their ids.
    pub tasks: Vec<Claimed>,
}

/// A claimed task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The id of the task.
    pub id: TaskId,
    /// The name of its type.
    pub name: Arc<str>,
    /// The group of the task, if it has one.
    pub group: Option<GroupName>,
    /// The payload, or a description of the damage if the store has lost a part of the task or cannot read it.
    pub payload: Result<Vec<u8>, String>,
    /// The number of runs that have failed.
    pub failures: u32,
    /// The time since the first failure, or `None` if no run has failed. It is zero if the store has lost the time of the first failure.
    pub failing_for: Option<Duration>,
    /// The time from when the task became ready until this answer, or `None` if the store does not know it.
    pub waited: Option<Duration>,
    /// The number of workers that have died while they ran the task.
    pub crashes: u32,
    /// The number of claims that were lost although nothing shows that their workers live, so the task may have run. If it
    /// is not zero, the worker renews the claim before it runs the task: if the task then kills the worker at once, that
    /// counts as a crash.
    pub lost: u32,
    /// `true` if the task is [quarantined](super::is_quarantined).
    pub quarantined: bool,
    /// The number of steps that the task has.
    pub steps: u32,
    /// The end of the last wait of the task for steps.
    pub wait: StepWait,
}

/// The end of the wait of a task for a number of steps, if it was suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepWait {
    /// It has waited for no steps, or the last of them has made it due.
    #[default]
    Over,
    /// The time has made it due, and it does not have as many steps.
    TimedOut,
    /// The time has made it due, although it has as many steps: its wake-up was lost.
    Missed,
}

impl StepWait {
    /// Returns how the wait of a task with this number of steps has ended, given the number that the store still waits for, if there is
    /// one.
    #[cfg(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util",
        feature = "unstable-store"
    ))]
    pub fn of(steps: u32, until: Option<u32>) -> Self {
        match until {
            None => Self::Over,
            Some(until) if until > steps => Self::TimedOut,
            Some(_) => Self::Missed,
        }
    }
}

impl Claimed {
    /// Sets how long the task has waited, given the time since it became ready. If a worker has died while it had the task, the time that
    /// the task has waited is not known: a store does not record when the task was taken back.
    #[cfg(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util",
        feature = "unstable-store"
    ))]
    pub fn set_waited(&mut self, since_ready: Option<Duration>) {
        self.waited = since_ready.filter(|_| self.crashes == 0 && self.lost == 0);
    }
}

/// A request for a page of the tasks with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListTasks {
    /// The tasks of the list.
    pub filter: CheckedFilter,
    /// The position in the cursor of the previous page. It may come from an untrusted source.
    pub after: Option<Vec<u8>>,
    /// The maximum number of tasks of the page.
    pub limit: usize,
}

impl ListTasks {
    /// Returns the maximum number of tasks that the store examines for the page: ten times the limit, and at most as many as Redis examines
    /// in 3 ms.
    pub fn max_examined(&self) -> usize {
        (10 * self.limit).min(500)
    }
}

/// Selects tasks of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFilter {
    /// This is not `Absent`.
    pub status: Status,
    /// The name of the type, or `None` to select the tasks of all types.
    pub name: Option<String>,
    /// The queue, or `None` to select the tasks of all queues. It is `None` for tasks that have succeeded or were cancelled.
    pub queue: Option<QueueName>,
    /// `true` to select only tasks that have failed. It is `false` unless the tasks are delayed.
    pub has_failed: bool,
    /// The session that runs the tasks, or `None` to select those of all sessions. It is `None` unless the tasks are running.
    pub session: Option<SessionId>,
}

#[cfg(any(test, feature = "unstable-store-suite"))]
impl CheckedFilter {
    /// Returns a filter that selects all tasks with this status.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            name: None,
            queue: None,
            has_failed: false,
            session: None,
        }
    }
}

#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl CheckedFilter {
    /// Returns `true` if a task matches. The caller compares its session.
    pub fn matches(&self, task: &TaskInfo) -> bool {
        let is_name = self.name.is_none() || self.name == task.name;
        let queue = self.queue.as_ref().map(QueueName::as_str);
        let is_queue = queue.is_none_or(|queue| queue == task.queue.as_deref().unwrap_or_default());
        is_name && is_queue && (!self.has_failed || task.failures > Some(0))
    }
}

/// A change of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChange {
    /// It has these limits, unless the store has limits of a later revision.
    Settings(QueueSettings),
    /// It is paused if this is `true`, and else resumed.
    Paused(bool),
}

/// The payload of a dead letter, and the name of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadPayload {
    /// Empty if it cannot be read.
    pub name: Arc<str>,
    /// The payload, or a description of the damage if the store has lost it or cannot read it.
    pub payload: Result<Vec<u8>, String>,
}

/// The answer to a renewal of leases.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RenewAnswer {
    /// Claims that hold no tasks any more.
    pub lost: Vec<Epoch>,
    /// Running tasks of the other claims that are to be cancelled.
    pub cancelled: Vec<TaskId>,
    /// Claims that are not renewed, because the part of the store that has them does not answer.
    pub unreached: Vec<Epoch>,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// There is no such task: it was never stored, or its end is no longer kept.
    Absent,
    /// It runs as soon as a worker is free.
    Waiting,
    /// It runs later.
    Delayed,
    /// A worker has claimed it.
    Running,
    /// It has succeeded, with this output.
    Done(Vec<u8>),
    /// It has failed for good.
    Dead {
        /// The reason.
        reason: DeadReason,
        /// The last error.
        error: String,
    },
    /// It was cancelled.
    Cancelled,
    /// It came from an outbox, and has ended without a run, because another task held its key.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite-unbundled")),
        allow(dead_code, reason = "other stores have no outbox")
    )]
    Conflict {
        /// The task that holds the key.
        holder: TaskId,
        /// The resolution of the conflict.
        resolution: Conflict,
    },
}

impl TaskState {
    /// Returns the state without the output or the error.
    pub fn status(&self) -> Status {
        match self {
            Self::Absent => Status::Absent,
            Self::Waiting => Status::Waiting,
            Self::Delayed => Status::Delayed,
            Self::Running => Status::Running,
            Self::Done(_) => Status::Done,
            Self::Dead { .. } => Status::Dead,
            Self::Cancelled | Self::Conflict { .. } => Status::Cancelled,
        }
    }

    /// Returns the task that held the key of this one, if handles of this one await that task instead.
    pub fn joined(&self) -> Option<(TaskId, Conflict)> {
        match *self {
            Self::Conflict { holder, resolution } if resolution != Conflict::Reject => {
                Some((holder, resolution))
            }
            _ => None,
        }
    }
}

/// An event in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Events arrive from now on. Earlier ones may have been missed.
    Ready,
    /// There may be a task to claim for this session or, without one, for any session of this process.
    Wake(Option<SessionId>),
    /// Tasks whose status this process has requested may have ended, other than by a verdict of its own. The list may
    /// contain other tasks, such as those that this process has only stored.
    MaybeEnded(Vec<TaskId>),
    /// Such tasks have ended, in these states.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis sends it")
    )]
    Ended(Vec<(TaskId, TaskState)>),
    /// Tasks that this process runs are to be cancelled.
    Cancel(Vec<TaskId>),
    /// The store has claimed tasks for an idle session.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis sends it")
    )]
    Pushed(Arc<PushedClaim>),
    /// The store has lost writes that it had acknowledged. This event precedes the answer to each request that the store has received
    /// since the loss.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis sends it")
    )]
    Rewound(Rewind),
}

/// A loss of acknowledged writes, as far as a process has found out. Tasks count even if they had ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewind {
    /// The number of lost tasks that the process has stored again.
    pub healed: u64,
    /// The number of other lost tasks of the process.
    pub lost: u64,
    /// The store is another one than before: it was emptied, or there is another server at its address.
    pub is_replaced: bool,
}

/// A claim for an idle session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedClaim {
    /// The session.
    pub session: SessionId,
    /// The claim.
    pub claim: Claim,
    /// The time from which the lease counts, since the machine was started.
    pub claimed_at: Duration,
    /// The session is still idle.
    pub is_idle: bool,
}

#[cfg(any(test, feature = "unstable-store-suite"))]
impl Event {
    /// Returns `true` if the event wakes a worker.
    pub fn is_wake(&self) -> bool {
        matches!(self, Self::Wake(_))
    }
}
