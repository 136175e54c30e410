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
/// The program need not know the types of the tasks. Each request reads one page, so its cost does not grow with the number of tasks in the
/// store.
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
    /// A task that has the status while all pages are read is on at least one of them, and may be on several. A waiting task may be missing
    /// if workers that know other types start or stop meanwhile. A task whose status changes meanwhile may be missing.
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
            || String::from("the cursor is not valid in this store: start with the first page");
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
