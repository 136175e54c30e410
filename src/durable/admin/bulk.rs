//! [`Bulk`]: changes all tasks that match, a part at a time.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::list::list;
use crate::durable::engine::Engine;
use crate::durable::store::{Change, ChangeAnswer};
use crate::durable::{Cursor, DurableError, Refusal, TaskChange, TaskFilter, TaskId};

/// Changes all tasks that match, a part at a time: see [`Admin::change_all`](crate::durable::Admin::change_all).
///
/// Nothing happens until [`next`](Self::next) is called. Each call changes one part. To stop, drop this value. To continue later, or in
/// another process, start the same change [after](Self::after) the last [cursor](Self::cursor). It is safe to change a part twice.
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore};
/// use throng::durable::{Status, TaskChange, TaskFilter};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let mails = TaskFilter::new(Status::Waiting).name("mail.send");
/// let mut cancelled = client.admin().change_all(mails, TaskChange::Cancel);
/// while let Some(part) = cancelled.next().await {
///     println!("{} more tasks are cancelled", part?.changed);
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing happens until `next` is called"]
pub struct Bulk<'a> {
    engine: &'a Engine,
    filter: TaskFilter,
    change: TaskChange,
    after: Option<Cursor>,
    is_over: bool,
}

/// A part of a change: see [`Bulk::next`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BulkPart {
    /// The number of tasks that were changed.
    pub changed: u64,
    /// The number of tasks that matched but were not changed, because their status has changed since they were listed, or because they are
    /// already in the queue to which they were to move.
    pub unchanged: u64,
    /// The reasons why the other tasks that matched could not be changed, with the number of tasks for each reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// The number of tasks that the store has examined for this part.
    pub examined: usize,
}

/// The maximum number of tasks that a part changes.
const TASKS_PER_PART: usize = 128;

impl<'a> Bulk<'a> {
    pub(super) fn new(engine: &'a Engine, filter: TaskFilter, change: TaskChange) -> Self {
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

    /// Changes the next part of at most 128 tasks. Returns `None` after the last part. A part may be empty although others follow.
    ///
    /// # Errors
    ///
    /// - The filter, the cursor or the change is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. Call this again to repeat the part.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some tasks of the part may have been changed. The next call repeats the part.
    pub async fn next(&mut self) -> Option<Result<BulkPart, DurableError>> {
        match self.is_over {
            true => None,
            false => Some(self.part().await),
        }
    }

    async fn part(&mut self) -> Result<BulkPart, DurableError> {
        let engine = self.engine;
        let invalid = |reason| DurableError::invalid(&engine.store_name, reason);
        self.change.check(&self.filter).map_err(invalid)?;
        let change = self.change.checked().map_err(invalid)?;
        let page = list(engine, &self.filter, self.after.as_ref(), TASKS_PER_PART).await?;
        let ids: Vec<_> = page.tasks.iter().map(|task| task.id).collect();
        let mut part = BulkPart {
            examined: page.examined,
            ..BulkPart::default()
        };
        let answers = apply(engine, ids, &change).await?;
        answers.into_iter().for_each(|answer| part.count(answer));
        self.after = page.next;
        self.is_over = self.after.is_none();
        Ok(part)
    }
}

impl BulkPart {
    fn count(&mut self, answer: ChangeAnswer) {
        *match answer {
            ChangeAnswer::Changed => &mut self.changed,
            ChangeAnswer::Same | ChangeAnswer::OtherStatus => &mut self.unchanged,
            ChangeAnswer::Refused(refusal) => self.refused.entry(refusal).or_default(),
        } += 1;
    }
}

/// Changes tasks. Returns an answer for each, in the order of the ids.
async fn apply(
    engine: &Engine,
    ids: Vec<TaskId>,
    change: &Change,
) -> Result<Vec<ChangeAnswer>, DurableError> {
    match ids.is_empty() {
        true => Ok(Vec::new()),
        false => {
            let changed = engine.ask(None, |store| store.change(ids.clone(), change.clone()));
            changed.await
        }
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
