//! What can be seen of a store: its tasks, its dead letters, its counts, and how durable it is.

use std::time::{Duration, SystemTime};

use super::TaskId;
use super::store::DeadReason;

/// What has become of a task so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// There is no such task: it was never stored, or its end is not kept any longer.
    Absent,
    /// It runs as soon as a worker is free.
    Waiting,
    /// It runs later: it was spawned with a delay, or is between two attempts.
    Delayed,
    /// A worker has it.
    Running,
    /// It has succeeded, and its output is kept.
    Done,
    /// It has failed for good, and is a dead letter.
    Dead,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// Whether the task has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }
}

/// How many tasks there are in a store, and what has been done there since it was made.
///
/// What has been done is the store's ledger: every claim of a task ends in exactly one of
/// `done`, `retried`, `snoozed`, `died`, `released`, `crashed`, `lost`, `cancelled`, or is
/// still `running`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tasks that wait for a worker.
    pub waiting: u64,
    /// Of these, the tasks whose type no live worker has registered. They wait without a time limit, and start
    /// as soon as such a worker starts. A worker that is killed counts as live until the store detects its death:
    /// with Redis, for about three minutes. While more than 4,096 waiting tasks are being sorted since workers
    /// have begun to differ, this is an estimate.
    pub unserved: u64,
    /// Tasks that run later.
    pub delayed: u64,
    /// Tasks that a worker has.
    pub running: u64,
    /// Tasks that have ended well, or were cancelled, and are kept.
    pub kept: u64,
    /// Dead letters.
    pub dead: u64,
    /// Tasks that were ever stored.
    pub stored: u64,
    /// How often a worker has claimed a task.
    pub claimed: u64,
    /// How often one has succeeded.
    pub done: u64,
    /// How often one has failed, and was to run again.
    pub retried: u64,
    /// How often one has asked to run later.
    pub snoozed: u64,
    /// How often a run has made one a dead letter.
    pub died: u64,
    /// How often one was given back by a worker that was shut down.
    pub released: u64,
    /// How often one was running when its worker died.
    pub crashed: u64,
    /// How often one was taken back from a live worker, or from a worker that died before the store knew that
    /// the claim had arrived. The task may have begun to run.
    pub lost: u64,
    /// How often one was cancelled while it ran.
    pub cancelled: u64,
}

/// Some of the dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    pub(crate) name: Option<String>,
    pub(crate) ids: Option<Vec<TaskId>>,
}

impl DeadFilter {
    /// All of them.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those of tasks with this [name](super::DurableTask::NAME).
    pub fn name(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ids: None,
        }
    }

    /// Those with these ids.
    pub fn ids(ids: impl IntoIterator<Item = TaskId>) -> Self {
        Self {
            name: None,
            ids: Some(ids.into_iter().collect()),
        }
    }
}

/// A task that has failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its id.
    pub id: TaskId,
    /// Its [name](super::DurableTask::NAME).
    pub name: String,
    /// Why it is dead.
    pub reason: DeadReason,
    /// The last error.
    pub error: String,
    /// The errors of earlier attempts, after which the task was tried again: at most the last 8, the oldest first.
    pub errors: Vec<AttemptError>,
    /// How many of its runs have failed.
    pub failures: u32,
    /// How many workers have died while they ran it.
    pub crashes: u32,
    /// How long it has been dead. Time during which no executor ran on the store does not count.
    pub age: Duration,
}

/// The error of an attempt after which the task was tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptError {
    /// The [number of the attempt](super::TaskContext::attempt).
    pub attempt: u32,
    /// The first 1 KiB of the message with which it failed.
    pub error: String,
    /// How long ago that was.
    pub age: Duration,
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
    /// It does not answer, and this is what is known about that. It is asked again and again.
    Unreachable(String),
    /// The store answers, but the last request of some sort has failed. This state ends when a request of that
    /// sort succeeds, or when none has failed for a minute.
    Failing {
        /// The time at which the first of these requests failed, by the clock of this process.
        since: SystemTime,
        /// What the store says of the last.
        error: String,
        /// The number of these failures.
        failures: u32,
    },
    /// Requests succeed, but some stored rows are missing or cannot be read.
    Damaged {
        /// The number of such rows that were found lately.
        found: u64,
        /// What the store says of the last.
        last: String,
    },
}

/// The failures that an acknowledged write survives. The levels rise: each survives one more kind of failure.
///
/// | level | what may fail without any loss | stores |
/// | --- | --- | --- |
/// | `Unknown` | the store does not tell | Redis whose settings may not be read, or with `appendfsync no` |
/// | `Memory` | the clients of a server | `MemoryStore`; Redis without `appendonly` |
/// | `Buffered` | the same; a server that is killed loses up to two seconds of writes | Redis with `appendfsync everysec` |
/// | `Process` | every process; a power failure loses the writes that the system still buffers | Redis with `appendfsync always` and `no-appendfsync-on-rewrite yes` |
/// | `Synced` | the machine's power | `SqliteStore`; Redis with `appendfsync always`, or a store that waits for its disk |
///
/// With `everysec`, Redis answers before it writes while its disk is busy. So a server that is killed, or
/// runs out of memory, loses acknowledged tasks even if the machine keeps running. Handles of lost tasks
/// fail with an error that [`is_expired`](super::DurableError::is_expired).
///
/// A level describes one server. Redis replicates after it has answered, so at any level, a replica that
/// replaces its primary may lack the last writes.
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
    /// The store does not say.
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
