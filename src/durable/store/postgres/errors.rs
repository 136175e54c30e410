//! The errors of attempts after which tasks were tried again.

use std::collections::HashMap;
use std::time::Duration;

use super::error::Fault;
use super::state::State;
use super::text;
use super::view::{View, task_id, uuid, uuids};
use crate::durable::{AttemptError, TaskId};

const FIND: &str = "SELECT state, at FROM throng.task WHERE id = $1";

const READ: &str = "SELECT id, attempt, error, at, took FROM throng.error
    WHERE id = ANY ($1) ORDER BY id, attempt";

/// Returns the errors of a task, the oldest first.
pub(super) async fn read(view: &View, id: TaskId) -> Result<Vec<AttemptError>, Fault> {
    let Some(task) = view.row(FIND, &[&uuid(id)]).await? else {
        return Ok(Vec::new());
    };
    // The state of a task that runs is that of one that waits. Neither has expired.
    let state = State::of(task.try_get("state")?)?;
    match state.is_expired(task.try_get("at")?, view.expiry()) {
        true => Ok(Vec::new()),
        false => Ok(errors_of(view, &[id])
            .await?
            .remove(&id)
            .unwrap_or_default()),
    }
}

/// Returns the errors of tasks, the oldest first. Tasks without errors are missing.
pub(super) async fn errors_of(
    view: &View,
    ids: &[TaskId],
) -> Result<HashMap<TaskId, Vec<AttemptError>>, Fault> {
    let mut errors: HashMap<_, Vec<_>> = HashMap::new();
    for row in view.rows(READ, &[&uuids(ids)]).await? {
        let id = task_id(row.try_get("id")?);
        errors.entry(id).or_default().push(AttemptError {
            attempt: row.try_get::<_, i32>("attempt")? as u32,
            error: text::loaded(row.try_get("error")?),
            age: view.now.since(row.try_get("at")?),
            took: run_time(row.try_get("took")?),
        });
    }
    Ok(errors)
}

/// Returns the duration of a run, as it is stored.
pub(super) fn run_time(took: Option<i64>) -> Option<Duration> {
    took.and_then(|took| u64::try_from(took).ok())
        .map(Duration::from_millis)
}
