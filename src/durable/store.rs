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
//! A session belongs to one *queue*, and claims only tasks of that queue. The number of running tasks of a queue
//! changes in the script or transaction in which a task starts or stops running, so no claim exceeds a limit. Each step that
//! lets a task of a queue start wakes an idle session of the queue: it stores a task, ends a run, raises a limit, or ends a pause.
//! If only the rate prevents a start, the answer to a turn says how long to wait. The tasks of a queue may have *groups*, which are served
//! in turn; each group can have a limit of its own, and can be held for a time.
//!
//! ```text
//!                 enqueue                       claim                  verdict
//!      absent ---------------> waiting -------------------> running ------------> done, dead, cancelled
//!                 |             ^   ^                         |  |                   |
//!                 | delay       |   +--- release, reap -------+  | retry, snooze     | retention is over
//!                 v             |                                v                   v
//!              delayed ---------+ <------------------------- delayed               absent
//! ```
#![cfg_attr(feature = "unstable-store", doc = "")]
#![cfg_attr(feature = "unstable-store", doc = include_str!("../../docs/STORES.md"))]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::queue::QueueInfo;
use super::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};

pub use self::changes::{Change, ChangeAnswer, MoveWaiting, MovedPart};
pub use self::child_end::ChildEnd;
pub use self::diagnosis::{Diagnoses, Diagnosis, UnclaimedType};
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub use self::diagnosis::{MAX_DIAGNOSED, MAX_EXAMINED_SCHEDULES, MAX_EXAMINED_WORKERS};
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "unstable-store"
))]
pub use self::found::MAX_HEAD_LISTS;
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "unstable-store"
))]
pub use self::found::MAX_READ_BYTES;
pub use self::found::{Beginning, FoundTask};
pub use self::kind::TypeSet;
#[cfg(feature = "unstable-store")]
pub use self::kind::{Kind, SetId};
#[cfg(feature = "unstable-store")]
pub use self::layouts::Layouts;
#[cfg(any(test, feature = "redis", feature = "unstable-store"))]
pub use self::limits::MAX_REST;
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "unstable-store"
))]
pub use self::limits::MAX_STORE_TIME_STEP;
pub(crate) use self::limits::rest;
pub use self::limits::shortened;
#[cfg_attr(
    not(any(feature = "redis", feature = "sqlite-unbundled")),
    allow(unused_imports, reason = "other stores count epochs without a ceiling")
)]
pub use self::limits::{
    CEILING_AHEAD, DEAD_LETTER_RETENTION, MAX_ATTEMPT_ERROR_BYTES, MAX_DEAD_LETTERS,
    MAX_ERROR_BYTES, MAX_ERRORS,
};
#[cfg(feature = "unstable-store")]
pub use self::observer::Observer;
pub use self::outbox::{DrainedOutbox, OutboxLook};
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
pub(crate) use self::outbox_entries::{OutboxEntry, SortedEntries, ended_task};
pub use self::progress::{MAX_PROGRESS_BYTES, Progress, ProgressReport, ProgressState};
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub use self::quarantine::is_dead_letter;
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub use self::quarantine::is_quarantined;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
pub(crate) use self::relayed_outbox::{RelayedAnswer, RelayedOutbox, TakenRow, TakenRows};
pub use self::requests::{
    CheckedFilter, Claim, ClaimPushes, Claimed, DeadPayload, Enqueue, Epoch, Event, ListTasks,
    NewSession, PushedClaim, QueueChange, RenewAnswer, Rewind, SessionId, StepWait, TaskState,
    Turn, TurnAnswer, Verdict, Verdicts,
};
#[cfg_attr(
    not(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(unused_imports, reason = "only stores use some of them")
)]
pub use self::schedules::{
    DueSchedule, HAND_OUT_INTERVAL, HandOut, MAX_HAND_OUTS, ScheduleAnswer, ScheduleChange,
    ScheduleRow, StoredSchedule, repeated,
};
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub use self::stats::{MAX_STAT_ROWS, REPORTER_RETENTION};
#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite-unbundled")),
    allow(unused_imports, reason = "only stores use some of them")
)]
pub use self::stats::{
    MAX_STAT_TYPES, ReadStats, Resolution, RunType, StatBucket, StatReport, StatsPage, StatsStart,
};
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub use self::step_replay::RecordedReplay;
pub use self::step_replay::StepReplay;
pub use self::steps::StepKind;
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub use self::steps::has_room;
pub use self::steps::{
    MAX_BYTES_WITH_OUTPUTS, MAX_CHILDREN, MAX_STEP_BYTES, MAX_STEPS, MAX_TOTAL_STEP_BYTES, NewStep,
    SignalAnswer, StepAnswer, StepName, StoredStep,
};
#[cfg(feature = "unstable-store-suite")]
pub use self::suite::Harness;
pub use self::worker_card::WorkerCard;
pub(crate) use super::DeadReason;
pub use super::failure::{Cause, Effect, Failure};
pub use super::key::{Enqueued, KeyConflict, KeyHash};
pub use super::queue::name::QueueName;
pub use super::schedule::name::ScheduleName;
pub use super::task::{MAX_BATCH_BYTES, MAX_BATCH_TASKS, MAX_PAYLOAD_BYTES, NewTask};
#[cfg(feature = "unstable-store")]
pub use super::{
    admin::overview::{MAX_OVERVIEW_ROWS, OverviewDraft, QueueDraft, TypeDraft},
    admin::page::MAX_LISTED_ERROR_BYTES,
    clock::{Clock, millis, time_of},
    envelope::run_time_of,
    key::{Conflict, NewKey},
    queue::group::GroupName,
    queue::priority::PriorityTurns,
    schedule::when::{COMPUTES, COMPUTES_CRON, COMPUTES_EVERY},
    spawn_queue::WriteBatch,
};
#[cfg(feature = "unstable-store-suite")]
#[doc(inline)]
pub use crate::__store_suite as suite;

#[cfg_attr(
    not(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "only stores use a part of it")
)]
mod changes;
mod child_end;
mod diagnosis;
mod found;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
mod kept;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
mod key_answer;
#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite")),
    allow(dead_code, reason = "each store uses a part of it")
)]
pub(crate) mod kind;
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub(crate) mod layouts;
mod limits;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod memory;
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub(crate) mod observer;
#[cfg_attr(
    not(any(feature = "postgres", feature = "sqlite-unbundled")),
    allow(dead_code, reason = "other stores have no outbox")
)]
mod outbox;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
mod outbox_entries;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod progress;
mod quarantine;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled",))]
mod reason_numbers;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "postgres", feature = "sqlite-unbundled"))]
mod relayed_outbox;
mod requests;
#[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
pub(crate) mod routes;
mod schedules;
#[cfg(feature = "sqlite-unbundled")]
pub(crate) mod sqlite;
#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite-unbundled", feature = "test-util")),
    allow(dead_code, reason = "each store uses a part of it")
)]
mod stats;
#[cfg_attr(
    not(any(
        test,
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "each store uses a part of it")
)]
mod step_replay;
#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite-unbundled", feature = "test-util")),
    allow(dead_code, reason = "each store uses a part of it")
)]
mod steps;
#[cfg(any(test, feature = "unstable-store-suite"))]
#[doc(hidden)]
pub mod suite;
#[cfg(all(test, any(feature = "postgres-tls", feature = "redis-tls")))]
mod test_authority;
#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite-unbundled"))]
pub(crate) mod totals;
mod worker_card;

/// The place where tasks are stored, which a [`DurableClient`](super::DurableClient) is opened with.
///
/// Each store of this crate converts into it.
pub struct Store(pub(crate) Arc<dyn Backend>);

impl Store {
    for_stores! {
        /// Returns the store that this backend implements, as a client is opened with it.
        fn new(backend: impl Backend) -> Self {
            Self(Arc::new(backend))
        }
    }

    /// Returns the backend, for example to put another one in front of it.
    #[cfg(feature = "unstable-store")]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.0
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.name()).finish()
    }
}

/// A future of the answer to a request.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A store, as the engine of one process sees it.
pub trait Backend: Send + Sync + 'static {
    /// Returns the name of the store for messages.
    fn name(&self) -> &str;

    /// Returns the runtime that drives the store, if it has one on a thread of its own for as long as the store exists.
    /// The engine then uses that thread, too, so neither has to wake the other.
    fn runtime(&self) -> Option<&Handle> {
        None
    }

    /// Returns the events that concern this process. This is called once.
    fn events(&self) -> mpsc::UnboundedReceiver<Event>;

    /// Opens a session of this process. Its turns claim only tasks of its types.
    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId>;

    /// Opens a session that is not listed among the workers. Without a set, its turns claim nothing.
    fn open_session(&self, set: Option<TypeSet>) -> Answer<'_, SessionId> {
        self.open_session_with(NewSession { set, card: None })
    }

    /// Closes a session. Tasks that it still holds are treated as after a crash.
    fn close_session(&self, session: SessionId) -> Answer<'_, ()>;

    /// Stores tasks. A task with the id of an existing task changes nothing. A task whose [key](NewTask::key) another task holds is
    /// not stored, but may replace the payload of that task; the answer says which. A request that is repeated gets the answer of the
    /// first time, even if the task that held the key has ended since.
    ///
    /// The store [closes the batch](super::spawn_queue::WriteBatch::close) as late as it can: everything that is spawned
    /// until then is in it.
    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued>;

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

    /// Stores the progress of running tasks: at most [`MAX_BATCH_TASKS`] reports. Returns the tasks that are not held under the epochs
    /// of their reports. An earlier report of a run never replaces a later one, so a request can be repeated.
    ///
    /// The progress of a task is kept until the task ends.
    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>>;

    /// Returns the progress of at most [`MAX_BATCH_TASKS`] tasks, in the order of the ids. Writes nothing.
    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>>;

    /// Stores steps of running tasks: at most [`MAX_BATCH_TASKS`] steps, of at most [`MAX_BATCH_BYTES`]. Returns an answer for each, in
    /// their order. A step never changes: if the task has a step with the name, the answer is its value. So a request can be repeated.
    ///
    /// The steps of a task are kept until the task has succeeded or is cancelled, or until its dead letter is removed. A replay keeps them.
    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>>;

    /// Returns the steps of a task, in the order in which they were stored. Writes nothing.
    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>>;

    /// Stores a step of a task that has not ended, whether or not it runs. If the task is [suspended](Verdict::Suspend) until it has as
    /// many steps as it has now, it is due. A request can be repeated.
    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer>;

    /// Returns a page of the tasks with a status: see [`Admin::tasks`](crate::durable::Admin::tasks). Returns `None` if the position is not
    /// valid in this store. Writes nothing.
    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>>;

    /// Returns a page of the sessions that have a card, in the order of their ids. Returns `None` if the position is not valid in this
    /// store. Writes nothing.
    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>>;

    /// Returns the worker of a session, or `None` if there is no such session or if it has no card. Writes nothing.
    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>>;

    /// Returns a task: see [`Admin::task`](crate::durable::Admin::task). Writes nothing.
    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>>;

    /// Returns at most `limit` of the tasks at the heads of the lists of a queue: see [`Admin::head`](crate::durable::Admin::head). Writes
    /// nothing.
    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead>;

    /// Cancels tasks: waiting and delayed ones at once, running ones when their worker reports that they have stopped.
    /// Returns the number of tasks that had not ended.
    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64>;

    /// Changes tasks. Returns an answer for each, in the order of the ids. A store may change them in several steps, so if the request
    /// fails, some may have been changed. It is safe to repeat the request.
    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>>;

    /// Moves the next waiting tasks that match to another queue. Returns `None` if the position is not valid in this store. It is safe to
    /// repeat the request. The parts together move each task that matches and waits throughout, and is not refused.
    ///
    /// This moves the tasks of the next page of their list, for stores that find a task by its id without a search.
    fn move_waiting(&self, request: MoveWaiting) -> Answer<'_, Option<MovedPart>> {
        Box::pin(async move {
            let page = self.list(request.page(request.after.clone())).await?;
            let Some(page) = page else { return Ok(None) };
            let (ids, change) = (request.selected(&page), request.change());
            let answers = match ids.is_empty() {
                true => Vec::new(),
                false => self.change(ids, change).await?,
            };
            Ok(Some(request.part(page, answers)))
        })
    }

    /// Returns `true` if a task with this id, in this queue, is best for this [parent](NewTask::parent) among the tasks with other ids: the
    /// fewest requests tell the parent of its end.
    fn suits_parent(&self, _id: TaskId, _queue: &QueueName, _parent: TaskId) -> bool {
        true
    }

    /// Returns dead letters, the newest first.
    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>>;

    /// Returns the payload of a dead letter, or `None` if no dead letter has this id.
    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>>;

    /// Makes dead letters wait for a worker again, under their ids and with nothing counted against them. Returns their
    /// number.
    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64>;

    /// Deletes dead letters. Returns their number.
    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64>;

    /// Pauses or resumes the type with this name. Tasks of a paused type are not claimed.
    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()>;

    /// Returns the names of the paused types, in order.
    fn paused_types(&self) -> Answer<'_, Vec<String>>;

    /// Returns `true` if a task with this id can be in this queue and have this key. In a store with several partitions, the queue or,
    /// for the default queue, the key determines the partition of the task.
    fn can_have(&self, _id: TaskId, _queue: &QueueName, _key: Option<KeyHash>) -> bool {
        true
    }

    /// Returns `false` if the part of the store that a task with this id would be in does not answer at present, so another id is better
    /// for a new task.
    fn is_reachable(&self, _id: TaskId) -> bool {
        true
    }

    /// Returns `true` if the answer to each turn says when the next schedule of the whole store is due. A worker that looks for tasks then
    /// need not ask for due schedules separately.
    fn tells_all_ticks(&self) -> bool {
        true
    }

    /// Changes a named queue. Returns `false` if that has no effect because the store has settings of a later revision.
    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool>;

    /// Returns the state of a named queue.
    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo>;

    /// Hands out due schedules, of those that need one of these [bits](crate::durable::schedule::when::COMPUTES). If the answer is
    /// lost, they are handed out again after the usual interval.
    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut>;

    /// Returns the schedule with this name, if there is one, and the store's time.
    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer>;

    /// Returns at most `limit` schedules in the order of their names: the first ones or, with `after`, those after that name.
    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>>;

    /// Changes a schedule, and stores tasks in the same step. Returns the conflicts of tasks whose keys are held. Returns `None`,
    /// and changes nothing, if the row does not have the version that the change replaces, or if a new schedule is due already. A
    /// repeated request changes nothing, and the answer is the same as if all tasks had been stored.
    fn change_schedule(&self, change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>>;

    /// Returns the statement with which users add a row to the outbox in the database of the store. The row's id and body are its
    /// parameters. Returns the reason if the store has no outbox.
    fn outbox_insert(&self) -> Result<Arc<str>, Cause> {
        Err(Cause::Unfit(String::from(
            "it has no outbox, so your transaction cannot include the task: use an `OutboxRelay` with the SQLite or PostgreSQL database of \
             your transaction, a store in that database, or spawn the task after the commit",
        )))
    }

    /// Looks for rows in the outbox. Writes nothing. A row that was committed before may be overlooked only if an earlier answer has
    /// reported it or a later one does.
    fn look_into_outbox(&self) -> Answer<'_, OutboxLook> {
        Box::pin(async { Err(Failure::new(Effect::None, Cause::Unavailable)) })
    }

    /// Moves at most [`MAX_BATCH_TASKS`] tasks from the outbox into the store, each exactly once. If another task holds the key of
    /// one, stores it as a task that has ended with this [conflict](TaskState::Conflict).
    fn drain_outbox(&self) -> Answer<'_, DrainedOutbox> {
        Box::pin(async { Err(Failure::new(Effect::None, Cause::Unavailable)) })
    }

    /// Removes at most `budget` things that need not be kept any longer. Returns `true` if there are more.
    fn maintain(&self, budget: usize) -> Answer<'_, bool>;

    /// Does the same as [`maintain`](Self::maintain). A store that records its passes skips this one if the last complete pass of any
    /// client was less than `interval` ago. A pass is complete if it leaves nothing to do.
    fn maintain_every(&self, interval: Duration, budget: usize) -> Answer<'_, bool> {
        let _ = interval;
        self.maintain(budget)
    }

    /// Returns how long, and how many, ended tasks are kept. Writes nothing.
    fn retention(&self) -> Answer<'_, Retention>;

    /// Changes how long, and how many, ended tasks are kept: see [`Admin::set_retention`](crate::durable::Admin::set_retention). A
    /// repeated request changes nothing.
    fn set_retention(&self, retention: Retention) -> Answer<'_, ()>;

    /// Closes the store, and leaves behind only what the next process needs. Afterwards, this is the only request that may
    /// be made.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the numbers of tasks by their states, and the totals.
    fn counts(&self) -> Answer<'_, Counts>;

    /// Adds the runs of a process to the statistics. A report has no effect unless its number is higher than that of the previous report of
    /// the process, so a request can be repeated.
    fn record_stats(&self, report: Arc<StatReport>) -> Answer<'_, ()>;

    /// Returns a page of the statistics: see [`Admin::stats`](crate::durable::Admin::stats). Writes nothing.
    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage>;

    /// Returns a summary of the store: see [`Admin::overview`](crate::durable::Admin::overview). Writes nothing.
    fn overview(&self) -> Answer<'_, Overview>;

    /// Examines what an overview does not show: see [`Admin::report`](crate::durable::Admin::report). Writes nothing.
    fn diagnose(&self) -> Answer<'_, Diagnoses>;

    /// Returns whether the store can be reached.
    fn health(&self) -> Health {
        Health::Well
    }

    /// Returns the number of unreadable rows that were found recently, and the error of the last one.
    fn damage(&self) -> Option<(u64, String)> {
        None
    }

    /// Returns the layout of the store: see [`Admin::layout`](crate::durable::Admin::layout). Writes nothing.
    fn layout(&self) -> Answer<'_, StoreLayout>;

    /// Raises the layout of the store to the newest one that this process knows: see [`Layouts`].
    fn upgrade(&self) -> Answer<'_, ()>;

    /// Returns how durable a write is when the store has answered it.
    fn probe(&self) -> Answer<'_, Durability>;
}
