//! [`Bulk`]: changes all tasks that match, a part at a time.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Serialize;

use super::list::list;
use crate::durable::engine::Engine;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Change, ChangeAnswer, MoveWaiting, StepReplay};
use crate::durable::{Cursor, DurableError, Refusal, Status, TaskChange, TaskFilter, TaskId};

/// Changes all tasks that match, a part at a time: see [`Admin::change_all`](crate::durable::Admin::change_all).
///
/// Nothing happens until [`next`](Self::next) is called. Each call changes one part. To stop, drop this value. To continue later, or in
/// another process, start the same change [after](Self::after) the last [cursor](Self::cursor). It is safe to change a part twice, except
/// by another value that [replays tasks from a step](TaskChange::ReplayFrom): if a task has stored that step again meanwhile, the step is
/// removed once more.
///
/// A task that is [made due](TaskChange::RunNow) may fail, and be delayed again until after the tasks of the next part. So this value
/// remembers the ids of such tasks, and leaves them out. A change that is continued by another value does not know them: if tasks fail
/// meanwhile, it may make some of them due once more.
///
/// Tasks that move or are replayed then wait in the order of the parts, which is usually not that in which they waited before. With Redis,
/// waiting tasks without a [group](crate::durable::SpawnOptions::group) that move keep the order of the list in which they waited.
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
    /// The tasks that were made due.
    made_due: HashSet<TaskId>,
    /// The nonce of all replays from a step. It gives a replay one effect on each task, even if a part is repeated.
    nonce: u64,
}

/// A part of a change: see [`Bulk::next`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BulkPart {
    /// The number of tasks that were changed. If the connection is lost, the request is repeated. Tasks that were changed by a request
    /// whose answer was lost do not count, unless they were [replayed from a step](TaskChange::ReplayFrom).
    pub changed: u64,
    /// The number of tasks that matched but were not changed, because their status has changed since they were listed. Delayed tasks that
    /// are already in the queue to which they were to move count, too.
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
            made_due: HashSet::new(),
            nonce: StepReplay::random_nonce(),
        }
    }

    /// Continues at a position that [`cursor`](Self::cursor) has returned for the same filter.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Resize(u32);
    /// # impl DurableTask for Resize { const NAME: &'static str = "resize"; type Output = (); }
    /// use throng::durable::{Status, TaskChange, TaskFilter};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # client.spawn_all((0..1_000).map(Resize)).await?;
    /// let resizes = TaskFilter::new(Status::Waiting).name("resize");
    /// let mut cancelled = client.admin().change_all(resizes.clone(), TaskChange::Cancel);
    /// cancelled.next().await.expect("there are tasks")?;
    /// let stopped = cancelled.cursor().expect("another part follows").to_string();
    ///
    /// // Later, or in another process:
    /// let after = stopped.parse()?;
    /// let mut rest = client.admin().change_all(resizes, TaskChange::Cancel).after(after);
    /// while let Some(part) = rest.next().await {
    ///     part?;
    /// }
    /// assert_eq!(client.counts().await?.waiting, 0);
    /// # Ok(()) }
    /// ```
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Returns the position of the next part, or `None` before the first part and after the last one.
    ///
    /// # Examples
    ///
    /// See [`after`](Self::after).
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
    ///
    /// # Examples
    ///
    /// See [`Bulk`].
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
        let change = self.change.checked(self.nonce).map_err(invalid)?;
        if let (Change::MoveTo(queue), Status::Waiting) = (&change, self.filter.status()) {
            return self.part_of_moves(queue.clone()).await;
        }
        let page = list(engine, &self.filter, self.after.as_ref(), TASKS_PER_PART).await?;
        let ids = page.tasks.iter().map(|task| task.id);
        let ids: Vec<_> = ids.filter(|id| !self.made_due.contains(id)).collect();
        let mut part = BulkPart {
            examined: page.examined,
            ..BulkPart::default()
        };
        let answers = apply(engine, ids.clone(), &change).await?;
        if matches!(change, Change::RunNow | Change::ReplayFrom(_)) {
            self.made_due.extend(ids);
        }
        answers.into_iter().for_each(|answer| part.count(answer));
        self.after = page.next;
        self.is_over = self.after.is_none();
        Ok(part)
    }

    /// Moves waiting tasks. A store may not find these by their ids without a search, so it chooses their order.
    async fn part_of_moves(&mut self, queue: QueueName) -> Result<BulkPart, DurableError> {
        let engine = self.engine;
        let invalid = |reason| DurableError::invalid(&engine.store_name, reason);
        let after = self.after.as_ref().map(Cursor::position_in_moves);
        let request = MoveWaiting {
            filter: self.filter.checked().map_err(invalid)?,
            until: self.filter.until_millis(),
            queue,
            after: after.transpose().map_err(invalid)?,
            limit: TASKS_PER_PART,
        };
        let moved = engine.ask(None, |store| store.move_waiting(request.clone()));
        let moved = moved.await?.ok_or_else(|| {
            invalid(String::from(
                "the cursor is not valid in this store: start without a cursor",
            ))
        })?;
        let mut part = BulkPart {
            changed: moved.changed,
            examined: moved.examined,
            ..BulkPart::default()
        };
        moved
            .answers
            .into_iter()
            .for_each(|answer| part.count(answer));
        self.after = moved.next.map(Cursor::of_moves);
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
