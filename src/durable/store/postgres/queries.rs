//! The queries of clients: the status of tasks, errors and counts.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::connection::Connection;
use super::error::Fault;
use super::outbox::outbox_ids;
use super::queues::{self, QueueRow};
use super::shared::Shared;
use super::state::State;
use super::text;
use super::unserved;
use super::view::{View, task_id, uuids};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::store::TaskState;
use crate::durable::store::key_answer::cancelled_state;
use crate::durable::store::reason_numbers::reason;
use crate::durable::{Counts, TaskId};

/// Has this process notified of the ends of tasks that have not ended.
const WATCH: &str = "INSERT INTO throng.watch (id, endpoint)
    SELECT id, $2::bigint FROM throng.task WHERE id = ANY ($1) AND state < 2
    UNION ALL SELECT encode(id, 'hex')::uuid, $2::bigint FROM throng.outbox WHERE id = ANY ($3::bytea[])
    ON CONFLICT DO NOTHING";

const STATUS: &str =
    "SELECT id, now, at, output, error, reason FROM throng.task_now WHERE id = ANY ($1)";

/// Records that this process awaits tasks. After this, their status is to be read: they may have ended before.
pub(super) async fn watch(
    db: &Connection,
    shared: &Shared,
    ids: &Vec<TaskId>,
) -> Result<(), Fault> {
    if !shared.is_observer && !ids.is_empty() {
        let in_outbox = outbox_ids(ids);
        db.execute(WATCH, &[&uuids(ids), &shared.endpoint, &in_outbox])
            .await?;
    }
    Ok(())
}

/// Returns the status of tasks, in the order of the ids.
pub(super) async fn status(view: &View, ids: &Vec<TaskId>) -> Result<Vec<TaskState>, Fault> {
    let rows = view.rows(STATUS, &[&uuids(ids)]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        found.insert(task_id(row.try_get("id")?), read_status(view, row)?);
    }
    let is_absent = |id: &TaskId| matches!(found.get(id), None | Some(TaskState::Absent));
    let absent: Vec<_> = ids.iter().copied().filter(is_absent).collect();
    for id in view.in_outbox(&absent).await? {
        found.insert(id, TaskState::Waiting);
    }
    let status = |id| found.get(id).cloned().unwrap_or(TaskState::Absent);
    Ok(ids.iter().map(status).collect())
}

fn read_status(view: &View, row: &Row) -> Result<TaskState, Fault> {
    let state = State::of(row.try_get("now")?)?;
    if state.is_expired(row.try_get("at")?, view.expiry()) {
        return Ok(TaskState::Absent);
    }
    Ok(match state {
        State::Waiting => TaskState::Waiting,
        State::Delayed => TaskState::Delayed,
        State::Running => TaskState::Running,
        State::Cancelled => cancelled_state(row.try_get::<_, Option<&[u8]>>("output")?),
        State::Done => TaskState::Done(row.try_get("output")?),
        State::Dead => TaskState::Dead {
            reason: reason(row.try_get::<_, i16>("reason")?.into()),
            error: text::loaded(row.try_get("error")?),
        },
    })
}

/// Returns the numbers of tasks.
pub(super) async fn counts(view: &View, (): &()) -> Result<Counts, Fault> {
    let counts = view.totals().await?;
    let unserved = unserved::count(view, counts.waiting).await?;
    Ok(Counts { unserved, ..counts })
}

/// Returns the names of the paused types, in order.
pub(super) async fn paused_types(view: &View, (): &()) -> Result<Vec<String>, Fault> {
    Ok(view.paused.clone())
}

/// Returns the state of a queue.
pub(super) async fn queue(view: &View, queue: &QueueName) -> Result<QueueInfo, Fault> {
    let row = QueueRow::load(view, queue).await?;
    Ok(QueueInfo {
        settings: row.settings,
        is_paused: row.is_paused,
        waiting: view.count_waiting_in(queue).await?,
        running: queues::running(view, queue).await?,
    })
}
