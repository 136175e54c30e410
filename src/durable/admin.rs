//! [`Admin`]: lists and changes the tasks of a store for the people who operate it.

use std::fmt;

use super::engine::Engine;
use super::{Bulk, Changed, Cursor, DurableError, TaskChange, TaskFilter, TaskId, TaskPage};

pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod cursor;
pub(crate) mod filter;
mod list;
pub(crate) mod page;
pub(crate) mod refusal;

/// Lists and changes the tasks of a store for the people who operate it: see [`DurableClient::admin`](super::DurableClient::admin).
///
/// The program need not know the types of the tasks. Each request reads one page, so its cost does not grow with the number of tasks in the
/// store. There are two exceptions: [`MemoryStore`](super::MemoryStore) examines all of its tasks for each page, and Redis reads lists of
/// waiting tasks if some of these tasks [move](TaskChange::MoveTo) to another queue.
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

    /// Changes a task. A change that does not apply, for example because it comes too late, is not an error: see [`Changed`].
    ///
    /// # Errors
    ///
    /// - The name of a queue is [invalid](DurableError::is_invalid).
    /// - The store does not answer. It is safe to call this again. If the change had taken effect although its answer was lost, this then
    ///   returns [`Changed::NotIn`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may be changed or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore, TaskId};
    /// use throng::durable::{Changed, TaskChange};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let id = TaskId::new();
    /// let changed = client.admin().change(id, TaskChange::RunNow).await?;
    /// assert_eq!(changed, Changed::NotThere); // there is no task with this id
    /// # Ok(()) }
    /// ```
    pub async fn change(&self, id: TaskId, change: TaskChange) -> Result<Changed, DurableError> {
        change::change_one(self.engine, id, &change).await
    }

    /// Changes all tasks that match, a part at a time: see [`Bulk`]. To change only what an operator has seen, restrict the filter to the
    /// time at which the page was [read](TaskPage::read_at): see [`TaskFilter::until`].
    pub fn change_all(&self, filter: TaskFilter, change: TaskChange) -> Bulk<'a> {
        Bulk::new(self.engine, filter, change)
    }
}

impl fmt::Debug for Admin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("store", &self.engine.store_name)
            .finish()
    }
}
