//! The interface between the engine and a store: the requests, and what the engine may rely on.
//!
//! Requests come in batches, and each takes effect as a whole or not at all. A request that fails
//! says whether it can have taken effect ([`Failure::effect`]); the two that change tasks on behalf
//! of one engine, [`enqueue`](Backend::enqueue) and [`turn`](Backend::turn), are numbered within a
//! *session*, so that one whose answer was lost is sent again, and takes effect once.
//!
//! A session is issued by the store, which knows when its process is dead. Numbers rise. A number
//! that is the session's last is answered as the first time; a smaller one is refused.
//!
//! A turn without verdicts that finds nothing to do writes nothing, not even its number. Nor does an
//! enqueue without tasks.
//!
//! Times are durations, never instants: what the time is, only the store knows. A *claim* is what one
//! turn took: some tasks, under one epoch and one lease. No two claims of a store have the
//! same epoch, and those of a task rise, so an epoch is a fencing token: a verdict counts only if the
//! task is still held under its epoch.
//!
//! ```text
//!                 enqueue                       claim                  verdict
//!      absent ---------------> waiting -------------------> running ------------> done, dead, cancelled
//!                 |             ^   ^                         |  |                   |
//!                 | delay       |   +--- release, reap -------+  | retry, snooze     | retention is over
//!                 v             |                                v                   v
//!              delayed ---------+ <------------------------- delayed               absent
//! ```

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::kind::{Kind, TypeSet};
use super::error::Failure;
use super::{AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, TaskId};

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
#[cfg(feature = "sqlite-unbundled")]
pub(crate) mod totals;

/// Where tasks are kept: what a [`DurableClient`](super::DurableClient) is opened with.
///
/// It is made from one of the stores of this crate.
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

/// The answer to a request, some time.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A store, as the engine of one process sees it.
pub(crate) trait Backend: Send + Sync + 'static {
    /// What messages call it.
    fn name(&self) -> &str;

    /// What drives the store, if that is a runtime on a thread of its own, for as long as the store is
    /// there: the engine then works on that thread, too, and nobody waits for one to wake the other.
    fn runtime(&self) -> Option<&Handle> {
        None
    }

    /// What happens in the store that concerns this process. Asked for once.
    fn events(&self) -> mpsc::UnboundedReceiver<Event>;

    /// Begins a session of this process. Its turns claim only tasks of these types. Without a set, they claim
    /// none.
    fn open_session(&self, set: Option<TypeSet>) -> Answer<'_, SessionId>;

    /// Ends a session. What it has claimed and not given back is treated as after a crash.
    fn close_session(&self, session: SessionId) -> Answer<'_, ()>;

    /// Stores tasks. One whose id is that of a task that is not absent changes nothing.
    ///
    /// The store looks at the [batch](Batch) as late as it can: what is spawned until then is in it.
    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, ()>;

    /// Takes verdicts, reaps, makes due what is due, and claims, in this order.
    fn turn(&self, request: Arc<Turn>) -> Answer<'_, Turned>;

    /// Renews the leases of claims, and confirms that their tasks have arrived.
    fn beat(&self, claims: Vec<Epoch>) -> Answer<'_, Beaten>;

    /// Returns the states of tasks: one answer for each id, in their order. It writes only which clients are
    /// to be told of their ends.
    fn look(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<Seen>>;

    /// Returns the errors of the attempts of a task that were to run again, the oldest first: at most
    /// [`MAX_ERRORS`]. There are none of a task that has succeeded or was cancelled.
    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>>;

    /// Cancels tasks: those that wait or are delayed at once, those that run when their worker says.
    /// How many were found alive.
    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64>;

    /// The dead letters, the newest first.
    fn dead(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>>;

    /// Gives dead letters a new life, with nothing counted against them; they keep their ids. How
    /// many.
    fn replay(&self, filter: DeadFilter) -> Answer<'_, u64>;

    /// Removes dead letters. How many.
    fn bury(&self, filter: DeadFilter) -> Answer<'_, u64>;

    /// Removes what is kept no longer, at most `budget` things. Whether there is more.
    fn maintain(&self, budget: usize) -> Answer<'_, bool>;

    /// Closes the store, and leaves behind only what the next process needs. After this, no request but this
    /// one is made.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// What there is, and what there has been.
    fn counts(&self) -> Answer<'_, Counts>;

    /// Whether it can be reached.
    fn health(&self) -> Health {
        Health::Well
    }

    /// Returns the number of unreadable rows that were found lately, and the error of the last one.
    fn damage(&self) -> Option<(u64, String)> {
        None
    }

    /// How durable a write is that the store has answered.
    fn probe(&self) -> Answer<'_, Durability>;
}

/// A session: issued by the store, never twice.
pub(crate) type SessionId = u64;

/// The epoch of a claim: above zero, and above those of all earlier claims of its tasks.
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

/// The limits of one request; the engine keeps them, and the stores rely on it.
pub(crate) const MAX_BATCH: usize = 256;
/// The bytes that one request may bring, and one answer: above it, a batch has one task.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 20;

/// How many errors of its attempts are kept of a task: the last ones.
pub(crate) const MAX_ERRORS: usize = 8;

/// How long a dead letter is kept.
pub(crate) const DEAD_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// How far one pass of maintenance advances store time, at most. How long ends are kept is measured in store time, since
/// the clock can be set: see `PROTOCOL.md`.
#[cfg(any(test, feature = "redis", feature = "sqlite-unbundled"))]
pub(crate) const MAX_AGED: Duration = Duration::from_secs(60);
/// How many dead letters are kept: the newest.
pub(crate) const MAX_DEAD: u64 = 10_000;

/// Tasks to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Enqueue {
    pub(crate) session: SessionId,
    pub(crate) number: u64,
    pub(crate) tasks: Arc<Batch>,
}

/// The tasks of one request: at most [`MAX_BATCH`], perhaps none.
///
/// Which they are is decided when somebody looks for the first time. From then on they are the same,
/// so that a request can be sent again.
pub(crate) struct Batch {
    tasks: LazyLock<Vec<NewTask>, Box<dyn FnOnce() -> Vec<NewTask> + Send>>,
    #[cfg_attr(
        not(feature = "sqlite-unbundled"),
        allow(dead_code, reason = "other stores tell by their answer")
    )]
    stored: Box<dyn Fn() + Send + Sync>,
}

impl Batch {
    /// What `draw` returns when it is looked at. It runs under whatever lock the store has then.
    pub(crate) fn drawn_by(draw: impl FnOnce() -> Vec<NewTask> + Send + 'static) -> Self {
        Self {
            tasks: LazyLock::new(Box::new(draw)),
            stored: Box::new(|| ()),
        }
    }

    /// Has `stored` called when a store says so.
    pub(crate) fn telling(self, stored: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            stored: Box::new(stored),
            ..self
        }
    }

    /// They are stored. A store may say so before it answers, from the thread that has written them:
    /// so those who wait need not wait for yet another thread. It holds no lock then.
    #[cfg_attr(
        not(feature = "sqlite-unbundled"),
        allow(dead_code, reason = "other stores tell by their answer")
    )]
    pub(crate) fn are_stored(&self) {
        (self.stored)();
    }
}

impl Deref for Batch {
    type Target = [NewTask];

    fn deref(&self) -> &[NewTask] {
        &self.tasks
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl From<Vec<NewTask>> for Batch {
    fn from(tasks: Vec<NewTask>) -> Self {
        Self::drawn_by(|| tasks)
    }
}

/// A task to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) name: Cow<'static, str>,
    /// The version of the envelope around the payload.
    pub(crate) envelope: u8,
    pub(crate) payload: Vec<u8>,
    /// Zero: it waits for a worker at once.
    pub(crate) delay: Duration,
    /// How long its end is kept; zero: not at all. (Dead letters are kept for [`DEAD_RETENTION`].)
    pub(crate) retention: Duration,
    /// How many deaths of workers make it a dead letter: see [`is_buried`].
    pub(crate) max_crashes: u32,
}

impl NewTask {
    pub(crate) fn kind(&self) -> Kind {
        Kind::in_envelope(&self.name, self.envelope)
    }
}

/// What a worker's session says and wants.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) session: SessionId,
    pub(crate) number: u64,
    /// Grouped by claim. Together at most [`MAX_BATCH`].
    pub(crate) verdicts: Vec<Verdicts>,
    /// The claim with which the last turn of this session was answered: it has arrived.
    pub(crate) seen: Option<Epoch>,
    /// The highest epoch that this client has received, or zero. A new claim gets a higher one, even in a store
    /// that was restored from an older copy.
    pub(crate) floor: Epoch,
    /// How many tasks to claim, of the types of the session's set: at most [`MAX_BATCH`], and at most
    /// so many bytes of payloads (but at least one task).
    pub(crate) want: usize,
    pub(crate) want_bytes: usize,
    /// Whether one task may be among them that is [risky](is_risky). Else those are passed over.
    pub(crate) risky: bool,
    /// The lease of the claim. One that is over is renewed once, by a third, and its tasks are taken
    /// back at the end of that.
    pub(crate) lease: Duration,
    /// If nothing could be claimed, have [`Event::Wake`] sent when there is something, to some of
    /// those that asked for it. Forgotten at the next turn. A store may do so also if less was claimed
    /// than wanted, and then [says so](Turned::parked).
    pub(crate) park: bool,
}

/// What has become of tasks of one claim.
#[derive(Clone, Debug)]
pub(crate) struct Verdicts {
    pub(crate) epoch: Epoch,
    pub(crate) tasks: Vec<(TaskId, Verdict)>,
}

/// What has become of one run of a task. If the task was to be cancelled, all but `Done` say that it
/// is cancelled now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has succeeded, with this output.
    Done(Vec<u8>),
    /// It has failed, which counts, and is to run again after a while.
    Retry { after: Duration, error: String },
    /// It is to run again after a while; nothing is counted.
    Snooze { after: Duration },
    /// It has failed for good.
    Dead { reason: DeadReason, error: String },
    /// It was given back; it comes before those that wait. (Those of one claim that do so together
    /// are in the order of their ids.)
    Release,
}

/// Why a task is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// It said that another attempt is of no use.
    Fatal,
    /// It has failed as often as its [`Retry`](crate::Retry) allows.
    Attempts,
    /// As many workers have died with it as `max_crashes` allows.
    Crashes,
    /// It cannot be read by the program that claimed it.
    Unreadable,
    /// Its output is larger than a store takes.
    OutputTooLarge,
    /// A part of what the store has of the task is lost, or cannot be read. A task whose type no worker has
    /// registered does not become a dead letter: it waits.
    Damaged,
}

impl DeadReason {
    /// Whether it is the failure of a run.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Fatal | Self::Attempts | Self::OutputTooLarge)
    }
}

/// The answer to a [`Turn`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Turned {
    /// The tasks whose verdicts came too late: they were not held under that epoch any more. A turn
    /// that is repeated does not say so again.
    pub(crate) refused: Vec<TaskId>,
    /// What was claimed.
    pub(crate) claim: Option<Claim>,
    /// Whether more tasks wait that this session may claim.
    pub(crate) more: bool,
    /// When to look again at the latest, if nobody wakes this worker earlier.
    pub(crate) next: Option<Duration>,
    /// Although something was claimed, this worker is woken when there is more.
    pub(crate) parked: bool,
}

/// Tasks that were claimed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) epoch: Epoch,
    /// In the order in which they waited; if the turn is repeated, in that of their ids.
    pub(crate) tasks: Vec<Claimed>,
}

/// A claimed task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    /// If the store has lost it, or cannot read what it has of the task: what is wrong.
    pub(crate) payload: Result<Vec<u8>, String>,
    /// How many of its runs have failed.
    pub(crate) failures: u32,
    /// How many workers have died while they ran it.
    pub(crate) crashes: u32,
    /// How many of its claims were lost although nothing shows that their workers live: nobody knows
    /// whether it ran. If there are any, the claim is confirmed, by a beat, before it starts: if it kills
    /// its worker at once, that is then a crash.
    pub(crate) lost: u32,
    /// Whether it is [risky](is_risky).
    pub(crate) risky: bool,
}

/// The deaths of workers that count against a task. Of the claims that were lost, one counts: later ones
/// were confirmed before the task began, so if it killed its worker then, that was a crash.
fn deaths(crashes: u32, lost: u32) -> u32 {
    crashes.saturating_add(lost.min(1))
}

/// Returns whether a task that has crashed, or was lost, is a dead letter from now on. One that was only
/// lost never is.
#[cfg_attr(
    not(any(test, feature = "sqlite-unbundled", feature = "test-util")),
    allow(dead_code, reason = "with Redis, a script decides")
)]
pub(crate) fn is_buried(crashes: u32, lost: u32, max_crashes: u32) -> bool {
    crashes > 0 && deaths(crashes, lost) >= max_crashes
}

/// Returns whether the next crash of a task that has cost a worker already will make it a dead letter. A
/// worker runs one such task at a time. Tasks that ran together with one that kills its workers have
/// crashed as often: so they part, and only that one goes on to crash.
pub(crate) fn is_risky(crashes: u32, lost: u32, max_crashes: u32) -> bool {
    let deaths = deaths(crashes, lost);
    deaths > 0 && deaths.saturating_add(1) >= max_crashes
}

/// The answer to a beat.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Beaten {
    /// Claims of which nothing is held any more.
    pub(crate) lost: Vec<Epoch>,
    /// Running tasks of the others that are to be cancelled.
    pub(crate) cancelled: Vec<TaskId>,
}

/// What has become of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// There is no such task: it was never stored, or its end is not kept any longer.
    Absent,
    /// It is to run as soon as a worker is free.
    Waiting,
    /// It is to run later.
    Delayed,
    /// A worker has it.
    Running,
    /// It has succeeded, with this output.
    Done(Vec<u8>),
    /// It has failed for good.
    Dead { reason: DeadReason, error: String },
    /// It was cancelled.
    Cancelled,
}

/// What happens in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// From here on, events come: what happened before may have been missed.
    Ready,
    /// There is something to claim.
    Wake,
    /// Tasks that this process looked at while they were alive may have ended: other than by a verdict of
    /// its own. It may be told of others, too, such as those that it has only stored.
    Ended(Vec<TaskId>),
    /// The same, and how they have ended: what a look would say.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis says so")
    )]
    Seen(Vec<(TaskId, Seen)>),
    /// Tasks that this process runs are to be cancelled.
    Cancel(Vec<TaskId>),
}
