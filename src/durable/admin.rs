//! [`Admin`]: reads the tasks of a store for the people who operate it.

use std::fmt;

use super::engine::Engine;
use super::store::ListTasks;
use super::{Cursor, DurableError, TaskFilter, TaskPage};

pub(crate) mod cursor;
pub(crate) mod filter;
pub(crate) mod page;

/// Reads the tasks of a store for the people who operate it: see [`DurableClient::admin`](super::DurableClient::admin).
///
/// It does not need the code of the tasks. No request reads more than a page, whatever the number of tasks in the store is. Only a
/// [`MemoryStore`](super::MemoryStore) looks at all of its tasks for each page.
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

/// The maximum number of tasks of a page.
pub(crate) const MAX_PAGE_TASKS: usize = 200;

impl<'a> Admin<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Returns a page of the tasks that match: the first one or, with `after`, the one after [that page](TaskPage::next). It has at most
    /// `limit` tasks, from 1 to 200.
    ///
    /// The store examines at most ten times as many tasks as a page may have, and at most 1,000. So if few tasks match, a page may have fewer tasks than
    /// `limit`, or none, although more follow. The list ends with the page that has no [`next`](TaskPage::next).
    ///
    /// The order is:
    ///
    /// - delayed tasks: that which is due first comes first;
    /// - dead letters: the newest one comes first;
    /// - other tasks: the order depends on the store.
    ///
    /// A task that has this status from the first page until the last one is on one of the pages, and may be on several of them. There
    /// are two exceptions. A delayed task may be missing if a spawn [replaces](crate::durable::Key::replace) it meanwhile, since it is then
    /// due at another time. In SQLite, a waiting task may be missing if it moves to another list meanwhile: because workers of other types
    /// start or stop, its type is [paused](crate::durable::TaskTypes::pause) or resumed, or a spawn replaces it by one of another version.
    /// Other tasks may be on a page or not.
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
        let invalid = |reason| DurableError::invalid(&self.engine.store_name, reason);
        let request = request(filter, after, limit).map_err(invalid)?;
        let page = self.engine.ask(None, |store| store.list(request.clone()));
        let foreign =
            || String::from("the cursor is not one of this store: start with the first page");
        page.await?.ok_or_else(|| invalid(foreign()))
    }
}

fn request(filter: &TaskFilter, after: Option<&Cursor>, limit: usize) -> Result<ListTasks, String> {
    if !(1..=MAX_PAGE_TASKS).contains(&limit) {
        return Err(format!(
            "the limit of a page is {limit}: set it to 1 to {MAX_PAGE_TASKS}"
        ));
    }
    let filter = filter.checked()?;
    let after = after.map(|cursor| cursor.position_in(filter.status));
    Ok(ListTasks {
        filter,
        after: after.transpose()?,
        limit,
    })
}

impl fmt::Debug for Admin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("store", &self.engine.store_name)
            .finish()
    }
}
