//! Reads tasks as a worker receives them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Fault;
use super::text;
use super::view::{View, task_id, uuids};
use crate::durable::TaskId;
use crate::durable::queue::group::GroupName;
use crate::durable::store::{Claimed, StepWait, is_quarantined};

const READ: &str =
    "SELECT task.id, name, payload, failures, crashes, lost, max_crashes, group_name,
        failing_since, ready_at, steps, until
    FROM throng.task LEFT JOIN throng.workflow ON workflow.id = task.id
    WHERE task.id = ANY ($1)";

/// Reads tasks that are claimed already, in the order of the ids.
pub(super) async fn read_tasks(view: &View, ids: &[TaskId]) -> Result<Vec<Claimed>, Fault> {
    let rows = view.rows(READ, &[&uuids(ids)]).await?;
    let (mut found, mut names) = (HashMap::with_capacity(rows.len()), BTreeMap::new());
    for row in &rows {
        let task = read_task(view, row, &mut names)?;
        found.insert(task.id, task);
    }
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

/// Reads a task. Tasks with equal names share them.
pub(super) fn read_task(
    view: &View,
    row: &Row,
    names: &mut BTreeMap<String, Arc<str>>,
) -> Result<Claimed, Fault> {
    let name: String = row.try_get("name")?;
    let shared = names.entry(name);
    let name = Arc::clone(shared.or_insert_with_key(|name| text::loaded(name.clone()).into()));
    let id: Uuid = row.try_get("id")?;
    let payload: Option<Vec<u8>> = row.try_get("payload")?;
    let group: Option<String> = row.try_get("group_name")?;
    let group = group.and_then(|name| GroupName::new(&text::loaded(name)).ok());
    let count = |column| -> Result<u32, Fault> { Ok(row.try_get::<_, i32>(column)? as u32) };
    let (failures, crashes, lost) = (count("failures")?, count("crashes")?, count("lost")?);
    let max_crashes: i64 = row.try_get("max_crashes")?;
    let max_crashes = u32::try_from(max_crashes).unwrap_or(u32::MAX);
    let failing_since: Option<i64> = row.try_get("failing_since")?;
    let steps: Option<i32> = row.try_get("steps")?;
    let steps = steps.unwrap_or_default() as u32;
    let until: Option<i32> = row.try_get("until")?;
    let mut claimed = Claimed {
        id: task_id(id),
        name,
        group,
        payload: payload.ok_or_else(|| String::from("its payload is missing")),
        failures,
        failing_for: failing_since.map(|at| view.now.since(at)),
        waited: None,
        crashes,
        lost,
        quarantined: is_quarantined(crashes, lost, max_crashes),
        steps,
        wait: StepWait::of(steps, until.map(|until| until as u32)),
    };
    claimed.set_waited(Some(view.now.since(row.try_get("ready_at")?)));
    Ok(claimed)
}
