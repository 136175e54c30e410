//! Reads a [`TaskInfo`] from the columns of a task.

use std::time::Duration;

use tokio_postgres::Row;

use super::error::Fault;
use super::state::State;
use super::text;
use super::time::Now;
use super::view::{View, task_id};
use crate::durable::admin::page::MAX_LISTED_ERROR_BYTES;
use crate::durable::store::reason_numbers::reason;
use crate::durable::store::shortened;
use crate::durable::{Status, TaskInfo};

/// Returns a task in a state, given its columns `id`, `name`, `queue`, `group_name`, `failures` and `crashes`, and those that the state
/// needs: `ready_at` if it waits, `at` if it is delayed or has ended, `retention` and `took` if it has ended, and `reason` and `error` of a
/// dead letter.
pub(super) fn info(view: &View, state: State, row: &Row) -> Result<TaskInfo, Fault> {
    let info = plain(state, row)?;
    match state {
        State::Waiting => {
            let ready_for = Some(view.now.since(row.try_get("ready_at")?));
            Ok(TaskInfo { ready_for, ..info })
        }
        State::Delayed => {
            let due_in = Some(Now::left(view.now.wall, row.try_get("at")?));
            Ok(TaskInfo { due_in, ..info })
        }
        State::Running => Ok(info),
        State::Done | State::Cancelled => ended(view, info, row),
        State::Dead => dead(view, info, row),
    }
}

/// Adds the fields of a task that has succeeded or was cancelled, and removes those that are not kept.
fn ended(view: &View, info: TaskInfo, row: &Row) -> Result<TaskInfo, Fault> {
    let (at, expiry) = (row.try_get("at")?, view.expiry());
    Ok(TaskInfo {
        queue: None,
        group: None,
        failures: None,
        crashes: None,
        kept_for: Some(Now::left(expiry.store_time, at)),
        age: Some(expiry.age_of_end(at, row.try_get("retention")?)),
        took: run_time(row.try_get("took")?),
        ..info
    })
}

fn dead(view: &View, info: TaskInfo, row: &Row) -> Result<TaskInfo, Fault> {
    let (at, expiry) = (row.try_get("at")?, view.expiry());
    let error = text::loaded(row.try_get("error")?);
    Ok(TaskInfo {
        kept_for: Some(expiry.left_of_dead(at)),
        age: Some(expiry.age_of_dead(at)),
        reason: Some(reason(row.try_get::<_, i16>("reason")?.into())),
        error: Some(shortened(error, MAX_LISTED_ERROR_BYTES)),
        took: run_time(row.try_get("took")?),
        ..info
    })
}

/// Returns a task with the fields that all states have.
fn plain(state: State, row: &Row) -> Result<TaskInfo, Fault> {
    let name = |column| -> Result<_, Fault> {
        Ok(row.try_get::<_, Option<String>>(column)?.map(text::loaded))
    };
    let count = |column| -> Result<_, Fault> { Ok(Some(row.try_get::<_, i32>(column)? as u32)) };
    Ok(TaskInfo {
        id: task_id(row.try_get("id")?),
        status: status(state),
        name: name("name")?,
        queue: name("queue")?,
        group: name("group_name")?,
        failures: count("failures")?,
        crashes: count("crashes")?,
        ready_for: None,
        due_in: None,
        fencing_token: None,
        kept_for: None,
        running_for: None,
        took: None,
        age: None,
        reason: None,
        error: None,
    })
}

/// Returns the duration of a run, as it is stored.
pub(super) fn run_time(took: Option<i64>) -> Option<Duration> {
    took.and_then(|took| u64::try_from(took).ok())
        .map(Duration::from_millis)
}

fn status(state: State) -> Status {
    match state {
        State::Waiting => Status::Waiting,
        State::Delayed => Status::Delayed,
        State::Running => Status::Running,
        State::Done => Status::Done,
        State::Dead => Status::Dead,
        State::Cancelled => Status::Cancelled,
    }
}
