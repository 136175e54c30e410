//! Reads one task in detail.

use tokio_postgres::Row;

use super::error::Fault;
use super::errors;
use super::state::State;
use super::task_info;
use super::text;
use super::time::Now;
use super::view::{View, task_id, uuid};
use crate::durable::TaskId;
use crate::durable::admin::detail::{KeyState, Runner};
use crate::durable::admin::excerpt::Excerpt;
use crate::durable::queue::Priority;
use crate::durable::store::{Beginning, FoundTask, MAX_READ_BYTES, SessionId};

/// Selects a task, with the beginnings of its payload and its output.
const TASK: &str =
    "SELECT id, name, queue, group_name, failures, crashes, now, at, ready_at, reason,
        error, priority, key, cancel, retention, took, parent,
        substr(payload, 1, $2) AS payload, length(payload) AS payload_len,
        substr(output, 1, $2) AS output, length(output) AS output_len
    FROM throng.task_now WHERE id = $1";

/// Selects the claim that holds a task, and the process of its session.
const CLAIM: &str = "SELECT epoch, claim.session, until, suspect, claimed_at, process
    FROM throng.claim LEFT JOIN throng.session ON session.id = claim.session
    WHERE $1 = ANY (held)";

const PROGRESS: &str = "SELECT bytes FROM throng.progress WHERE id = $1";

const WAITS_FOR: &str = "SELECT coalesce(waits_for, '') FROM throng.workflow
    WHERE id = $1 AND until IS NOT NULL";

/// Returns a task with its details, or `None` if there is no such task.
pub(super) async fn find(view: &View, id: TaskId) -> Result<Option<FoundTask>, Fault> {
    let most = MAX_READ_BYTES as i32;
    let Some(row) = view.row(TASK, &[&uuid(id), &most]).await? else {
        return Ok(None);
    };
    let state = State::of(row.try_get("now")?)?;
    if state.is_expired(row.try_get("at")?, view.expiry()) {
        return Ok(None);
    }
    let info = task_info::info(view, state, &row)?;
    let mut found = FoundTask::new(info, view.now.wall.max(0) as u64);
    match state {
        State::Done => found.output = beginning(&row, "output", "output_len")?,
        State::Cancelled => {}
        _ => add_unfinished(view, &row, &mut found).await?,
    }
    match state {
        State::Dead => found.detail.error = Some(text::loaded(row.try_get("error")?)),
        State::Running => add_run(view, &row, &mut found).await?,
        State::Delayed => found.waits_for = waits_for(view, id).await?,
        _ => {}
    }
    Ok(Some(found))
}

/// Adds the fields that are kept until a task has succeeded or was cancelled.
async fn add_unfinished(view: &View, row: &Row, found: &mut FoundTask) -> Result<(), Fault> {
    found.payload = beginning(row, "payload", "payload_len")?;
    let id = found.detail.task.id;
    let detail = &mut found.detail;
    let priority: i16 = row.try_get("priority")?;
    let priority = usize::try_from(priority).ok();
    detail.priority = priority.and_then(|it| Priority::ALL.get(it).copied());
    detail.key = key_state(view, id, row).await?;
    detail.errors = errors::read(view, id).await?;
    detail.parent = row.try_get::<_, Option<_>>("parent")?.map(task_id);
    let progress: Option<Vec<u8>> = view.value(PROGRESS, &[&uuid(id)]).await?;
    detail.progress = progress.map(|bytes| Excerpt::new(&bytes, bytes.len()));
    Ok(())
}

/// Returns the payload or the output.
fn beginning(row: &Row, bytes: &str, len: &str) -> Result<Option<Beginning>, Fault> {
    let bytes: Option<Vec<u8>> = row.try_get(bytes)?;
    let len: Option<i32> = row.try_get(len)?;
    let found = bytes.zip(len).map(|(bytes, len)| Beginning {
        bytes,
        len: len as usize,
    });
    Ok(found)
}

async fn key_state(view: &View, id: TaskId, row: &Row) -> Result<Option<KeyState>, Fault> {
    let Some(key): Option<Vec<u8>> = row.try_get("key")? else {
        return Ok(None);
    };
    let holder = view.holder(&key).await?;
    Ok(match holder == Some(id) {
        true => Some(KeyState::Held),
        false => Some(KeyState::Released),
    })
}

/// Returns the description of the steps until which the task is suspended, if it is.
async fn waits_for(view: &View, id: TaskId) -> Result<Option<String>, Fault> {
    let text: Option<String> = view.value(WAITS_FOR, &[&uuid(id)]).await?;
    Ok(text.map(text::loaded))
}

/// Adds the fields of a running task.
async fn add_run(view: &View, row: &Row, found: &mut FoundTask) -> Result<(), Fault> {
    let detail = &mut found.detail;
    detail.is_cancel_requested = row.try_get("cancel")?;
    let Some(claim) = view.row(CLAIM, &[&uuid(detail.task.id)]).await? else {
        return Ok(());
    };
    let process: Option<i64> = claim.try_get("process")?;
    detail.task.fencing_token = Some(claim.try_get::<_, i64>("epoch")? as u64);
    detail.task.running_for = Some(view.now.since(claim.try_get("claimed_at")?));
    detail.lease_left = Some(Now::left(view.now.boot, claim.try_get("until")?));
    detail.runner = Some(Runner {
        session: claim.try_get::<_, i64>("session")? as SessionId,
        process: process.map(|id| format!("process {id}")),
        is_suspect: claim.try_get::<_, i16>("suspect")? != 0,
    });
    Ok(())
}
