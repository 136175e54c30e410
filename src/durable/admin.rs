//! [`Admin`]: lists and changes the tasks of a store for the people who operate it.

use std::fmt;

use self::bulk::Change;
use super::engine::Engine;
use super::{Bulk, Cursor, DurableError, TaskDetail, TaskFilter, TaskId, TaskInfo, TaskPage};

pub(crate) mod bulk;
pub(crate) mod cursor;
pub(crate) mod detail;
pub(crate) mod filter;
mod find;
pub(crate) mod json;
mod list;
pub(crate) mod page;

/// Lists and changes the tasks of a store for the people who operate it: see [`DurableClient::admin`](super::DurableClient::admin).
///
/// The program need not know the types of the tasks. Each request reads one page, so its cost does not grow with the number of tasks in the
/// store. Only [`MemoryStore`](super::MemoryStore) examines all of its tasks for each page.
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore};
/// use throng::durable::{Status, TaskFilter};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let waiting = TaskFilter::new(Status::Waiting).name("mail.send");
/// let mut after = None;
/// loop {
///     let page = client.admin().tasks(&waiting, after.as_ref(), 50).await?;
///     for task in page.tasks {
///         println!("{} has failed {:?} times", task.id, task.failures);
///     }
///     after = page.next;
///     if after.is_none() {
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Admin<'a> {
    engine: &'a Engine,
}

impl<'a> Admin<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Returns a page of the tasks that match the filter: the first page or, if `after` is the [`next`](TaskPage::next) of a page, the
    /// page after it. A page has at most `limit` tasks, where `limit` is from 1 to 200.
    ///
    /// For a page, the store examines at most ten times `limit` tasks, and at most 1,000. So if few tasks match, a page may have fewer
    /// tasks than `limit`, or none, although more follow. The last page is the one without a [`next`](TaskPage::next).
    ///
    /// The order is:
    ///
    /// - delayed tasks: the task that is due first comes first;
    /// - dead letters: the newest one comes first;
    /// - other tasks: the order depends on the store.
    ///
    /// A task that has the status while all pages are read is on at least one of them, and may be on several. There are two exceptions:
    ///
    /// - A delayed task may be missing if a spawn [replaces](super::Key::replace) it meanwhile, since the task is then due at another time.
    /// - In SQLite, a waiting task may be missing if it moves to another list meanwhile. This happens when workers that know other types start
    ///   or stop, when its type is [paused](super::TaskTypes::pause) or resumed, and when a spawn replaces it by a task of another version.
    ///
    /// A task whose status changes meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// - The filter, the cursor or the limit is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn tasks(
        &self,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<TaskPage, DurableError> {
        list::list(self.engine, filter, after, limit).await
    }

    /// Returns what the store knows about a task, or `None` if there is no such task: it was never stored, or its end is no longer kept.
    ///
    /// This is one request, whose cost depends only on the size of the task. With SQLite, it also reads the claims if the task is running.
    /// If a part of the task is lost or cannot be read, the answer has the rest and describes the [damage](TaskDetail::damage).
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskDetail>, DurableError> {
        find::task(self.engine, id).await
    }

    /// Returns the waiting tasks of a [queue](super::Queue) that have been [ready](TaskInfo::ready_for) for the longest time, or of the
    /// default queue if `queue` is `None`. The `limit` is from 1 to 50.
    ///
    /// Tasks wait in lists: one for the types that the same workers know, per priority, and one for each
    /// [group](super::SpawnOptions::group). This takes tasks from the heads of these lists, in the order in which they became ready. So it
    /// shows what waits longest, and it does not promise in which order the tasks start:
    ///
    /// - Tasks of a higher [priority](super::Priority) may start first, and groups take turns.
    /// - Tasks may have to wait for other reasons, such as limits, a pause, a group that is held, or that no worker knows their type.
    /// - A task that waits behind others in its list may have been ready for longer, such as one that a worker gave back.
    ///
    /// The cost grows with the number of lists of the queue, and of its groups that wait. At most 1,000 lists and the first `limit`
    /// groups of each are examined.
    ///
    /// # Errors
    ///
    /// - The name of the queue or the limit is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// for task in client.admin().head(Some("mail"), 10).await? {
    ///     println!("{} has been ready for {:?}", task.id, task.ready_for);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn head(
        &self,
        queue: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TaskInfo>, DurableError> {
        find::head(self.engine, queue, limit).await
    }

    /// Cancels the waiting, delayed or running tasks that match, a part at a time: see [`Bulk`]. A running task is cancelled when its run
    /// [stops](super::StopReason).
    pub fn cancel(&self, filter: TaskFilter) -> Bulk<'a> {
        Bulk::new(self.engine, filter, Change::Cancel)
    }

    /// Makes the dead letters that match wait for a worker again, a part at a time: see [`Bulk`] and
    /// [`DeadLetters::replay`](super::DeadLetters::replay).
    pub fn replay(&self, filter: TaskFilter) -> Bulk<'a> {
        Bulk::new(self.engine, filter, Change::Replay)
    }

    /// Deletes the dead letters that match, a part at a time: see [`Bulk`].
    pub fn delete(&self, filter: TaskFilter) -> Bulk<'a> {
        Bulk::new(self.engine, filter, Change::Delete)
    }
}

impl fmt::Debug for Admin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("store", &self.engine.store_name)
            .finish()
    }
}
