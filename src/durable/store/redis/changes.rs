//! The changes that an operator makes to single tasks.

use super::batches::in_batches;
use super::inner::Inner;
use super::move_tasks::move_tasks;
use crate::durable::TaskId;
use crate::durable::failure::Failure;
use crate::durable::store::{Change, ChangeAnswer};

/// Changes tasks. Returns an answer for each, in the order of the ids.
pub(super) async fn change(
    inner: &Inner,
    ids: &[TaskId],
    change: &Change,
) -> Result<Vec<ChangeAnswer>, Failure> {
    let scripts = &inner.scripts;
    match change {
        Change::Cancel => in_batches(inner, &scripts.cancel, None, ids).await,
        Change::RunNow => in_batches(inner, &scripts.run_now, None, ids).await,
        Change::MoveTo(queue) => move_tasks(inner, ids, queue).await,
        Change::Replay => in_batches(inner, &scripts.replay, Some("replay"), ids).await,
        Change::Delete => in_batches(inner, &scripts.replay, Some("delete"), ids).await,
    }
}
