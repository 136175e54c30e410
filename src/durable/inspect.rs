//! Types that a client reads from a store: the status of tasks, dead letters, counts, health and durability.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::TaskId;
use super::admin::json;

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// There is no such task. Either it was never stored, or its end is no longer kept.
    Absent,
    /// The task runs as soon as a worker is free.
    Waiting,
    /// The task runs later: it was spawned with a delay, is between two attempts, or [waits](super::TaskContext::sleep).
    Delayed,
    /// A worker has claimed the task.
    Running,
    /// The task has succeeded, and its output is kept.
    Done,
    /// The task has failed for good, and is a dead letter.
    Dead,
    /// The task was cancelled.
    Cancelled,
}

impl Status {
    /// Returns `true` if the task has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::Status;
    ///
    /// assert!(Status::Done.is_final() && !Status::Delayed.is_final());
    /// assert!(Status::Dead.is_final()); // although a dead letter can be replayed
    /// ```
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }
}

/// The numbers of tasks in a store, and the totals since the store was created.
///
/// The totals count each claim of a task. They add up: each claim is either still `running`, or has ended in exactly one of
/// `done`, `retried`, `snoozed`, `died`, `released`, `crashed`, `lost` and `cancelled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct Counts {
    /// Tasks that wait for a worker.
    pub waiting: u64,
    /// Of these, the tasks whose type no live worker has registered. They wait without a time limit, and start as soon as such a worker
    /// starts. [`Admin::workers`](super::Admin::workers) lists the workers and their types. A worker that is killed counts as live until
    /// the store detects its death: with Redis, for about three minutes. This is an estimate while more than 4,096 waiting tasks are being
    /// moved to other lists, because workers with other types have started or stopped; with PostgreSQL, while thousands of tasks of
    /// several types wait.
    pub unserved: u64,
    /// Tasks that run later.
    pub delayed: u64,
    /// Tasks that a worker has claimed.
    pub running: u64,
    /// Tasks that have succeeded or were cancelled, and whose ends are kept.
    pub kept: u64,
    /// Dead letters.
    pub dead: u64,
    /// All tasks that were ever stored.
    pub stored: u64,
    /// The number of claims.
    pub claimed: u64,
    /// Claimed tasks that have succeeded.
    pub done: u64,
    /// Claimed tasks that have failed and are tried again.
    pub retried: u64,
    /// Claimed tasks that asked to run again later, or whose runs have ended to [wait](super::TaskContext::sleep).
    pub snoozed: u64,
    /// Claimed tasks whose run has made them dead letters.
    pub died: u64,
    /// Claimed tasks that a worker gave back because it shut down.
    pub released: u64,
    /// Claimed tasks that were running when their worker died.
    pub crashed: u64,
    /// Claimed tasks that were taken back from a live worker, or from a worker that died before the store learned that
    /// the claim had arrived. They may have begun to run.
    pub lost: u64,
    /// Claimed tasks that were cancelled while they ran.
    pub cancelled: u64,
}

/// Selects dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    pub(crate) name: Option<String>,
    pub(crate) ids: Option<Vec<TaskId>>,
}

impl DeadFilter {
    /// Selects all dead letters.
    ///
    /// # Examples
    ///
    /// See [`DeadLetters`](super::DeadLetters).
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects the dead letters of tasks with this [name](super::DurableTask::NAME).
    ///
    /// # Examples
    ///
    /// See [`DeadLetters`](super::DeadLetters).
    pub fn name(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ids: None,
        }
    }

    /// Selects the dead letters with these ids.
    ///
    /// # Examples
    ///
    /// See [`DeadLetters::replay`](super::DeadLetters::replay).
    pub fn ids(ids: impl IntoIterator<Item = TaskId>) -> Self {
        Self {
            name: None,
            ids: Some(ids.into_iter().collect()),
        }
    }

    for_stores! {
        /// Returns `true` if a dead letter with this id and this name matches.
        #[cfg(any(test, feature = "test-util", feature = "unstable-store"))]
        fn matches(&self, id: TaskId, name: &str) -> bool {
            let is_name = self.name.as_ref().is_none_or(|it| it == name);
            is_name && self.ids.as_ref().is_none_or(|ids| ids.contains(&id))
        }
    }

    /// Returns the ids of the dead letters that may match, or `None` if any may.
    #[cfg(feature = "unstable-store")]
    pub fn selected_ids(&self) -> Option<&[TaskId]> {
        self.ids.as_deref()
    }
}

/// A task that has failed for good. Its payload is read [by its id](super::DeadLetters::payload).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct DeadLetter {
    /// The id of the task.
    pub id: TaskId,
    /// The [name](super::DurableTask::NAME) of the task.
    pub name: String,
    /// The reason for which the task is dead.
    pub reason: DeadReason,
    /// The last error.
    pub error: String,
    /// The errors of the attempts after which the task was tried again: at most the last 8, the oldest first.
    pub errors: Vec<AttemptError>,
    /// The number of runs that have failed.
    pub failures: u32,
    /// The number of workers that have died while they ran the task.
    pub crashes: u32,
    /// The time for which the task has been dead. Time during which no executor ran on the store does not count.
    #[serde(serialize_with = "json::millis")]
    pub age: Duration,
}

/// The reason for which a task has failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadReason {
    /// A run has reported that another attempt would not help.
    Fatal,
    /// The task has failed, and its [`Retry`](crate::Retry) allows no further attempt.
    Attempts,
    /// The task has crashed as many workers as `max_crashes` allows.
    Crashes,
    /// The program that claimed the task cannot decode it.
    Unreadable,
    /// The output is larger than a store accepts.
    OutputTooLarge,
    /// The store has lost a part of the task, or cannot read it. A task whose type no worker has registered does not
    /// become a dead letter: it waits.
    Damaged,
}

impl DeadReason {
    for_stores! {
        /// Returns `true` if a run has failed, and not the worker or the store.
        fn is_failure(self) -> bool {
            matches!(self, Self::Fatal | Self::Attempts | Self::OutputTooLarge)
        }
    }
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fatal => "it reported that another attempt would not help",
            Self::Attempts => "its attempts, or the total time for them, are used up",
            Self::Crashes => "it has crashed as many workers as `max_crashes` allows",
            Self::Unreadable => "its worker cannot read it",
            Self::OutputTooLarge => "its output is too large",
            Self::Damaged => "its store has lost a part of it, or cannot read it",
        })
    }
}

/// The error of an attempt after which the task was tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct AttemptError {
    /// The [number of the attempt](super::TaskContext::attempt).
    pub attempt: u32,
    /// The first 1 KiB of the error message.
    pub error: String,
    /// The time since the attempt has failed.
    #[serde(serialize_with = "json::millis")]
    pub age: Duration,
    /// The duration of the run, in whole milliseconds, or `None` if the store has lost it.
    #[serde(serialize_with = "json::optional_millis")]
    pub took: Option<Duration>,
}

/// The state of a store, as last seen by this process.
///
/// A connection that is lost silently is detected when an answer is overdue: after some seconds, or within a
/// minute if there are no requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// Requests succeed, and the store reports at once when there is work.
    Well,
    /// Requests succeed, but the store does not report when there is work: workers poll for it twice a
    /// second.
    Mute,
    /// The store does not answer; the text says what is known about the cause. Requests are repeated.
    Unreachable(String),
    /// The store answers, but the last request of some kind has failed. This state ends when a request of that
    /// kind succeeds, or when none has failed for a minute.
    Failing {
        /// The time at which the first of these requests failed, by the clock of this process.
        since: SystemTime,
        /// The error of the last of them.
        error: String,
        /// The number of these failures.
        failures: u32,
    },
    /// Requests succeed, but some stored rows are missing or cannot be read.
    Damaged {
        /// The number of such rows that were found recently.
        found: u64,
        /// A description of the last of them.
        last: String,
    },
}

/// The acknowledged writes that a store has lost, as far as a client has found out since it was opened.
/// [`DurableClient::losses`](super::DurableClient::losses) returns them.
///
/// A store in Redis loses writes if a replica is promoted that was behind its primary, if a server is restarted that had not written them
/// to its disk, or if it is emptied. After each connect, a client compares its last request that the server knows with its last one that
/// was acknowledged. It stores lost tasks again if it still has them in memory: those of the last fifteen seconds, up to 4 MiB of payloads
/// for each of its two sessions. Tasks of processes that have exited are not known, and are not counted. Other stores report no losses.
///
/// The ends of runs are not repeated: a task whose end is lost runs again. Nor are cancellations, signals, and changes of schedules and
/// queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The number of times that the store was found to have lost writes.
    pub rewinds: u64,
    /// The number of tasks of this client that the store had lost, and that were stored again. Tasks that had ended count, too.
    pub healed: u64,
    /// The number of tasks of this client that the store has lost, and that were not stored again. Tasks that had ended count, too.
    pub lost: u64,
}

/// The failures that an acknowledged write survives. Each level survives one more kind of failure than the one before.
///
/// | level | what may fail without any loss | stores |
/// | --- | --- | --- |
/// | `Unknown` | not known | Redis with settings that may not be read, or with `appendfsync no`; PostgreSQL with `synchronous_commit off` and a `wal_writer_delay` above 666 ms |
/// | `Memory` | the clients of a server | `MemoryStore`; Redis without `appendonly` |
/// | `Buffered` | the same; a server that is killed loses up to two seconds of writes | Redis with `appendfsync everysec`; PostgreSQL with `synchronous_commit off` |
/// | `Process` | every process; a power failure loses the writes that the system still buffers | Redis with `appendfsync always` and `no-appendfsync-on-rewrite yes`; PostgreSQL with `fsync off` or `full_page_writes off` |
/// | `Synced` | the machine's power | `SqliteStore`; PostgreSQL with its default settings; Redis with `appendfsync always`, or a store that waits for its disk |
///
/// With `everysec`, Redis answers before it writes while its disk is busy. So a server that is killed, or
/// runs out of memory, loses acknowledged tasks even if the machine keeps running. The process that has stored them
/// stores them again if it still runs: see [`Losses`]. Handles of tasks that stay lost
/// fail with an error that [`is_rewound`](super::DurableError::is_rewound).
///
/// A level describes one server. Redis replicates after it has answered, and so does PostgreSQL without synchronous standbys, so at any
/// level, a replica that replaces its primary may lack the last writes.
///
/// # Examples
///
/// ```
/// use throng::durable::Durability;
///
/// assert!(Durability::Memory < Durability::Buffered);
/// assert!(Durability::Buffered < Durability::Process);
/// assert!(Durability::Process < Durability::Synced);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// The durability is not known.
    Unknown,
    /// Writes are in the memory of one process, and are lost when it exits.
    Memory,
    /// Writes go to a file, some of them after they were acknowledged. If the store's process or machine
    /// fails, up to two seconds of acknowledged writes are lost.
    Buffered,
    /// Writes are handed to the system before they are acknowledged, so they survive every process. A power
    /// failure loses the writes that the system has not yet written to the disk.
    Process,
    /// Writes are on the disk before they are acknowledged, so they survive a power failure.
    Synced,
}
