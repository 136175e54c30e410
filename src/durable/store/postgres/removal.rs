//! Removes ended tasks.

use super::deltas::field_of;
use super::error::Fault;
use super::state::State;
use super::transaction::Transaction;
use super::view::uuids;
use crate::durable::TaskId;

/// Removes all rows of tasks that have ended. Returns the number of tasks in each state.
const REMOVE: &str = "WITH removed AS (
        DELETE FROM throng.task WHERE id = ANY ($1) RETURNING state
    ), errors AS (
        DELETE FROM throng.error WHERE id = ANY ($1)
    ), steps AS (
        DELETE FROM throng.step WHERE id = ANY ($1)
    ), workflows AS (
        DELETE FROM throng.workflow WHERE id = ANY ($1)
    )
    SELECT state, count(*) AS tasks FROM removed GROUP BY state";

/// Removes ended tasks.
pub(super) async fn remove_ended(tx: &mut Transaction, ids: &[TaskId]) -> Result<(), Fault> {
    if ids.is_empty() {
        return Ok(());
    }
    for row in tx.rows(REMOVE, &[&uuids(ids)]).await? {
        let (state, tasks) = (row.try_get("state")?, row.try_get::<_, i64>("tasks")?);
        tx.deltas.add(field_of(State::of(state)?), -tasks);
    }
    Ok(())
}
