//! The interface between the engine and a store: the requests, and the guarantees that the engine relies on.
//!
//! Each request takes effect as a whole or not at all. If it fails, the failure says whether it may have taken effect
//! ([`Failure::effect`]). The two requests that change tasks on behalf of one engine, [`enqueue`](Backend::enqueue) and
//! [`turn`](Backend::turn), are numbered within a *session*, so a request whose answer was lost can be sent again and
//! still takes effect once.
//!
//! The store issues the sessions, and detects that the process of a session is dead. The numbers of a session rise. The
//! last number is answered again as it was the first time; a smaller one is refused.
//!
//! A turn that has no verdicts and finds nothing to do writes nothing, not even its number. Neither does an enqueue
//! without tasks.
//!
//! Times are durations, never instants: only the store has a clock. A *claim* is what one turn has taken: some tasks,
//! under one *epoch* and one *lease*. No two claims of a store have the same epoch, and the epochs of a task rise, so an
//! epoch is a fencing token: a verdict counts only if the task is still held under its epoch. A task that is one crash
//! short of becoming a dead letter is *quarantined*: a worker holds one such task at a time.
//!
//! ```text
//!                 enqueue                       claim                  verdict
//!      absent ---------------> waiting -------------------> running ------------> done, dead, cancelled
//!                 |             ^   ^                         |  |                   |
//!                 | delay       |   +--- release, reap -------+  | retry, snooze     | retention is over
//!                 v             |                                v                   v
//!              delayed ---------+ <------------------------- delayed               absent
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::kind::TypeSet;
use super::failure::Failure;
use super::spawn_queue::WriteBatch;
use super::{AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, Status, TaskId};

pub(crate) use super::DeadReason;
pub(crate) use super::task::{MAX_BATCH_BYTES, MAX_BATCH_TASKS, MAX_PAYLOAD_BYTES, NewTask};

#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite")),
    allow(dead_code, reason = "each store uses a part of it")
)]
pub(crate) mod kind;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
pub(crate) mod routes;
#[cfg(feature = "sqlite-unbundled")]
pub(crate) mod sqlite;
#[cfg(test)]
mod suite;
#[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
pub(crate) mod totals;

/// The place where tasks are stored, which a [`DurableClient`](super::DurableClient) is opened with.
///
/// Each store of this crate converts into it.
pub struct Store(pub(crate) Arc<dyn Backend>);

impl Store {
    pub(crate) fn new(backend: impl Backend) -> Self {
        Self(Arc::new(backend))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.name()).finish()
    }
}

/// A future of the answer to a request.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A store, as the engine of one process sees it.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Returns the name of the store for messages.
    fn name(&self) -> &str;

    /// Returns the runtime that drives the store, if it has one on a thread of its own for as long as the store exists.
    /// The engine then uses that thread, too, so neither has to wake the other.
    fn runtime(&self) -> Option<&Handle> {
        None
    }

    /// Returns the events that concern this process. This is called once.
    fn events(&self) -> mpsc::UnboundedReceiver<Event>;

    /// Opens a session of this process. Its turns claim only tasks of these types. Without a set, they claim nothing.
    fn open_session(&self, set: Option<TypeSet>) -> Answer<'_, SessionId>;

    /// Closes a session. Tasks that it still holds are treated as after a crash.
    fn close_session(&self, session: SessionId) -> Answer<'_, ()>;

    /// Stores tasks. A task with the id of an existing task changes nothing.
    ///
    /// The store [closes the batch](WriteBatch::close) as late as it can: everything that is spawned until then is in it.
    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, ()>;

    /// Accepts verdicts, takes back the tasks of expired claims, makes delayed tasks due, and claims tasks, in this order.
    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer>;

    /// Renews the leases of claims, and confirms that their tasks have arrived.
    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer>;

    /// Returns the states of tasks, in the order of the ids. The only thing that this may write is that the client is to
    /// be notified of their ends.
    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>>;

    /// Returns the errors of those attempts of a task after which it was tried again, the oldest first: at most
    /// [`MAX_ERRORS`]. A task that has succeeded or was cancelled has none.
    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>>;

    /// Cancels tasks: waiting and delayed ones at once, running ones when their worker reports that they have stopped.
    /// Returns the number of tasks that had not ended.
    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64>;

    /// Returns dead letters, the newest first.
    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>>;

    /// Returns the payload of a dead letter, or `None` if no dead letter has this id.
    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>>;

    /// Makes dead letters wait for a worker again, under their ids and with nothing counted against them. Returns their
    /// number.
    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64>;

    /// Deletes dead letters. Returns their number.
    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64>;

    /// Removes at most `budget` things that need not be kept any longer. Returns `true` if there are more.
    fn maintain(&self, budget: usize) -> Answer<'_, bool>;

    /// Closes the store, and leaves behind only what the next process needs. Afterwards, this is the only request that may
    /// be made.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the numbers of tasks by their states, and the totals.
    fn counts(&self) -> Answer<'_, Counts>;

    /// Returns whether the store can be reached.
    fn health(&self) -> Health {
        Health::Well
    }

    /// Returns the number of unreadable rows that were found recently, and the error of the last one.
    fn damage(&self) -> Option<(u64, String)> {
        None
    }

    /// Returns how durable a write is when the store has answered it.
    fn probe(&self) -> Answer<'_, Durability>;
}

/// The id of a session. The store issues each one once.
pub(crate) type SessionId = u64;

/// The epoch of a claim: above zero, and above the epochs of all earlier claims of its tasks.
pub(crate) type Epoch = u64;

/// A store that can be restored from a copy records a *ceiling*: a number that the epochs of the next minutes do not
/// exceed. The store keeps the ceiling this far above the last epoch and above the time: each claim, each pass of
/// maintenance and each worker that opens a session raises a lower ceiling, to one and a half times this distance. So
/// maintenance may be five minutes late, and a copy that is five minutes old still has a ceiling above all epochs that
/// it lacks.
#[cfg_attr(
    not(any(feature = "redis", feature = "sqlite-unbundled")),
    allow(dead_code, reason = "no copy of the store in memory can be restored")
)]
pub(crate) const CEILING_AHEAD: Duration = Duration::from_secs(600);

/// The maximum number of errors of attempts that a store keeps of a task: the last ones.
pub(crate) const MAX_ERRORS: usize = 8;
/// The maximum size in bytes of the last error of a task, and of the error of an attempt after which the task is tried
/// again. A task has several of the latter.
pub(crate) const MAX_ERROR_BYTES: usize = 2048;
pub(crate) const MAX_ATTEMPT_ERROR_BYTES: usize = 1024;

/// The time for which a dead letter is kept.
pub(crate) const DEAD_LETTER_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum number of dead letters that are kept: the newest ones.
pub(crate) const MAX_DEAD_LETTERS: u64 = 10_000;
/// The maximum by which one pass of maintenance advances store time. The time for which ends are kept is measured in store
/// time, since the clock can be set: see `PROTOCOL.md`.
#[cfg(any(test, feature = "redis", feature = "sqlite-unbundled"))]
pub(crate) const MAX_STORE_TIME_STEP: Duration = Duration::from_secs(60);

/// A request to store tasks.
#[derive(Clone, Debug)]
pub(crate) struct Enqueue {
    pub(crate) session: SessionId,
    pub(crate) number: u64,
    pub(crate) batch: Arc<WriteBatch>,
}

/// A request of a worker: it reports how tasks ended, and claims others.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) session: SessionId,
    pub(crate) number: u64,
    /// The verdicts, grouped by claim: at most [`MAX_BATCH_TASKS`] in total.
    pub(crate) verdicts: Vec<Verdicts>,
    /// The claim in the answer to the last turn of this session. This turn confirms that it has arrived.
    pub(crate) received: Option<Epoch>,
    /// The highest epoch that this client has received, or zero. A new claim gets a higher one, even in a store
    /// that was restored from an older copy.
    pub(crate) floor: Epoch,
    /// The number of tasks to claim: at most [`MAX_BATCH_TASKS`].
    pub(crate) want: usize,
    /// The maximum size of their payloads in bytes. A claim may have one larger payload.
    pub(crate) want_bytes: usize,
    /// `true` if the claim may have one [quarantined](is_quarantined) task. Otherwise, the turn passes over those.
    pub(crate) quarantined: bool,
    /// The lease of the claim. When it is over, the store extends it once, by a third, and takes the tasks back at the
    /// end of the extension.
    pub(crate) lease: Duration,
    /// If nothing could be claimed: have [`Event::Wake`] sent to some of the sessions that asked for it as soon as there
    /// is a task. This holds until the next turn. A store may also do so if it has claimed less than was wanted, and then
    /// [says so](TurnAnswer::is_idle).
    pub(crate) go_idle: bool,
}

/// The verdicts on tasks of one claim.
#[derive(Clone, Debug)]
pub(crate) struct Verdicts {
    pub(crate) epoch: Epoch,
    pub(crate) tasks: Vec<(TaskId, Verdict)>,
}

/// How a run of a task ended. If the task was to be cancelled, any verdict but `Done` makes it cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The task has succeeded, with this output.
    Done(Vec<u8>),
    /// The attempt has failed, and another one follows after a while.
    Retry { after: Duration, error: String },
    /// The task runs again after a while. No attempt is counted.
    Snooze { after: Duration },
    /// The task has failed for good.
    Dead { reason: DeadReason, error: String },
    /// The task is given back, and goes ahead of the waiting tasks. (Tasks of one claim that are given back together are
    /// in the order of their ids.)
    Release,
}

/// The answer to a [`Turn`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnAnswer {
    /// The tasks whose verdicts came too late: they were no longer held under that epoch. The answer to a repeated turn
    /// does not contain them again.
    pub(crate) refused: Vec<TaskId>,
    /// The claimed tasks.
    pub(crate) claim: Option<Claim>,
    /// `true` if more tasks wait that this session may claim.
    pub(crate) more: bool,
    /// The time after which to send another turn, unless an event wakes the worker earlier.
    pub(crate) next: Option<Duration>,
    /// Although tasks were claimed, this worker is woken when there are more.
    pub(crate) is_idle: bool,
}

/// Tasks that were claimed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) epoch: Epoch,
    /// The tasks in the order in which they waited, or, if the turn was repeated, in the order of their ids.
    pub(crate) tasks: Vec<Claimed>,
}

/// A claimed task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    /// The payload, or a description of the damage if the store has lost a part of the task or cannot read it.
    pub(crate) payload: Result<Vec<u8>, String>,
    /// The number of runs that have failed.
    pub(crate) failures: u32,
    /// The number of workers that have died while they ran the task.
    pub(crate) crashes: u32,
    /// The number of claims that were lost although nothing shows that their workers live, so the task may have run. If it
    /// is not zero, the worker renews the claim before it runs the task: if the task then kills the worker at once, that
    /// counts as a crash.
    pub(crate) lost: u32,
    /// `true` if the task is [quarantined](is_quarantined).
    pub(crate) quarantined: bool,
}

/// The payload of a dead letter, and the name of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadPayload {
    /// Empty if it cannot be read.
    pub(crate) name: Arc<str>,
    /// The payload, or a description of the damage if the store has lost it or cannot read it.
    pub(crate) payload: Result<Vec<u8>, String>,
}

/// Returns the deaths of workers that count against a task. All its lost claims count as one: later claims are confirmed
/// before the task runs, so if it killed its worker then, that was a crash.
fn deaths(crashes: u32, lost: u32) -> u32 {
    crashes.saturating_add(lost.min(1))
}

/// Returns `true` if a task with these crashes and losses becomes a dead letter. A task that was only lost never does.
#[cfg_attr(
    not(any(test, feature = "sqlite-unbundled", feature = "test-util")),
    allow(dead_code, reason = "with Redis, a script decides")
)]
pub(crate) fn is_dead_letter(crashes: u32, lost: u32, max_crashes: u32) -> bool {
    crashes > 0 && deaths(crashes, lost) >= max_crashes
}

/// Returns `true` if the next crash makes the task a dead letter, and a worker has died with it before. A worker runs one
/// such task at a time. Tasks that ran beside the one that kills its workers have crashed as often, so this separates
/// them, and only the task to blame goes on to crash.
pub(crate) fn is_quarantined(crashes: u32, lost: u32, max_crashes: u32) -> bool {
    let deaths = deaths(crashes, lost);
    deaths > 0 && deaths.saturating_add(1) >= max_crashes
}

/// The answer to a renewal of leases.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RenewAnswer {
    /// Claims that hold no tasks any more.
    pub(crate) lost: Vec<Epoch>,
    /// Running tasks of the other claims that are to be cancelled.
    pub(crate) cancelled: Vec<TaskId>,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
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
    Dead { reason: DeadReason, error: String },
    /// It was cancelled.
    Cancelled,
}

impl TaskState {
    /// Returns the state without the output or the error.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Absent => Status::Absent,
            Self::Waiting => Status::Waiting,
            Self::Delayed => Status::Delayed,
            Self::Running => Status::Running,
            Self::Done(_) => Status::Done,
            Self::Dead { .. } => Status::Dead,
            Self::Cancelled => Status::Cancelled,
        }
    }
}

/// An event in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Events arrive from now on. Earlier ones may have been missed.
    Ready,
    /// There may be a task to claim.
    Wake,
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
}
