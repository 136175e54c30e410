//! [`Bulk`]: changes all tasks that match, a part at a time.

use std::fmt;

use serde::Serialize;

use super::list::list;
use crate::durable::engine::Engine;
use crate::durable::{Cursor, DeadFilter, DurableError, TaskFilter, TaskId};

/// Changes all tasks that match, a part at a time: see [`Admin::cancel`](crate::durable::Admin::cancel),
/// [`replay`](crate::durable::Admin::replay) and [`delete`](crate::durable::Admin::delete).
///
/// Nothing happens until [`next`](Self::next) is called, and each call changes one part. To stop, drop this value. To continue later, or in
/// another process, start the same change [after](Self::after) the last [cursor](Self::cursor). Tasks that were changed already are not
/// changed again.
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore};
/// use throng::durable::{Status, TaskFilter};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let mails = TaskFilter::new(Status::Waiting).name("mail.send");
/// let mut cancelled = client.admin().cancel(mails);
/// while let Some(part) = cancelled.next().await {
///     println!("{} more tasks are cancelled", part?.changed);
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing happens until `next` is called"]
pub struct Bulk<'a> {
    engine: &'a Engine,
    filter: TaskFilter,
    change: Change,
    after: Option<Cursor>,
    is_over: bool,
}

/// A part of a change: see [`Bulk::next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BulkPart {
    /// The number of tasks that were changed.
    pub changed: u64,
    /// The number of tasks that matched, but were not changed: they have meanwhile got another status, or another task holds the
    /// [key](crate::durable::Key) of a dead letter.
    pub unchanged: u64,
    /// The number of tasks that the store has examined.
    pub examined: usize,
}

/// The change of each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Cancel,
    Replay,
    Delete,
}

/// The maximum number of tasks that a part changes.
const TASKS_PER_PART: usize = 128;

impl<'a> Bulk<'a> {
    pub(super) fn new(engine: &'a Engine, filter: TaskFilter, change: Change) -> Self {
        Self {
            engine,
            filter,
            change,
            after: None,
            is_over: false,
        }
    }

    /// Continues at a position that [`cursor`](Self::cursor) has returned for the same filter.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Returns the position of the next part, or `None` before the first part and after the last one.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.after.as_ref()
    }

    /// Changes the next part, which has at most 128 tasks. Returns `None` after the last part. A part may be empty although others follow.
    ///
    /// # Errors
    ///
    /// - The filter or the cursor is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. Call this again to repeat the part.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some tasks of the part may be changed. The next call repeats the part.
    pub async fn next(&mut self) -> Option<Result<BulkPart, DurableError>> {
        match self.is_over {
            true => None,
            false => Some(self.part().await),
        }
    }

    async fn part(&mut self) -> Result<BulkPart, DurableError> {
        let engine = self.engine;
        let checked = self.change.check(&self.filter);
        checked.map_err(|reason| DurableError::invalid(&engine.store_name, reason))?;
        let page = list(engine, &self.filter, self.after.as_ref(), TASKS_PER_PART).await?;
        let ids: Vec<_> = page.tasks.iter().map(|task| task.id).collect();
        let matched = ids.len() as u64;
        let changed = self.change.apply(engine, ids).await?;
        self.after = page.next;
        self.is_over = self.after.is_none();
        Ok(BulkPart {
            changed,
            unchanged: matched.saturating_sub(changed),
            examined: page.examined,
        })
    }
}

impl Change {
    /// Returns an error if the change does not apply to tasks with the status of the filter.
    fn check(self, filter: &TaskFilter) -> Result<(), String> {
        let (applies, statuses) = match (self, filter.status()) {
            (Self::Cancel, status) => (
                status.can_be_cancelled(),
                "waiting, delayed or running tasks can be cancelled",
            ),
            (Self::Replay, status) => (status.can_be_replayed(), "dead letters can be replayed"),
            (Self::Delete, status) => (status.can_be_deleted(), "dead letters can be deleted"),
        };
        match applies {
            true => Ok(()),
            false => Err(format!(
                "only {statuses}: choose another status than {:?}",
                filter.status()
            )),
        }
    }

    /// Changes tasks. Returns the number of those that were changed.
    async fn apply(self, engine: &Engine, ids: Vec<TaskId>) -> Result<u64, DurableError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let changed = engine.ask(None, |store| match self {
            Self::Cancel => store.cancel(ids.clone()),
            Self::Replay => store.replay_dead_letters(DeadFilter::ids(ids.clone())),
            Self::Delete => store.delete_dead_letters(DeadFilter::ids(ids.clone())),
        });
        changed.await
    }
}

impl fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk")
            .field("store", &self.engine.store_name)
            .field("change", &self.change)
            .field("filter", &self.filter)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}
