//! Reads the tasks at the head of a queue.

use super::error::Fault;
use super::state::State;
use super::task_info;
use super::view::View;
use crate::durable::QueueHead;
use crate::durable::queue::name::QueueName;
use crate::durable::store::MAX_HEAD_LISTS;

/// Selects the groups whose lines are read, of the kinds `$1`: none, the first `$2` of each kind that may be served, and some that may not.
const GROUPS: &str = "SELECT ''
    UNION
    SELECT line.name FROM unnest($1::bigint[]) AS own (kind) CROSS JOIN LATERAL (
        (SELECT name FROM throng.group_line
            WHERE group_line.kind = own.kind AND turn IS NOT NULL ORDER BY turn, name LIMIT $2)
        UNION ALL
        (SELECT name FROM throng.group_line
            WHERE group_line.kind = own.kind AND turn IS NULL ORDER BY name LIMIT $2)
        LIMIT $2
    ) AS line";

/// Selects the tasks that became ready first, `$3` at most, among as many at the heads of the lines of the kinds `$1` and the groups `$2`.
/// A line whose first task is not among them has none of them.
const HEAD: &str = "SELECT entry.* FROM (
        SELECT first.kind, first.group_name FROM unnest($1::bigint[]) AS kinds (kind)
        CROSS JOIN unnest($2::text[]) AS groups (name)
        CROSS JOIN LATERAL (
            SELECT ready.kind, ready.group_name, ready_at, task.id
            FROM throng.ready JOIN throng.task ON task.id = ready.id
            WHERE ready.kind = kinds.kind AND ready.group_name = groups.name
            ORDER BY ready.place LIMIT 1
        ) AS first
        ORDER BY ready_at, id LIMIT $3
    ) AS line CROSS JOIN LATERAL (
        SELECT task.id, name, queue, task.group_name, failures, crashes, ready_at
        FROM throng.ready JOIN throng.task ON task.id = ready.id
        WHERE ready.kind = line.kind AND ready.group_name = line.group_name
        ORDER BY ready.place LIMIT $3
    ) AS entry
    ORDER BY ready_at, id LIMIT $3";

/// Returns the tasks of a queue that became ready first, among those at the heads of its lines.
pub(super) async fn head(view: &View, queue: &QueueName, limit: usize) -> Result<QueueHead, Fault> {
    let kinds = view.waiting_kinds().await?.into_iter();
    let kinds = kinds.filter(|it| it.queue == *queue).take(MAX_HEAD_LISTS);
    let kinds: Vec<_> = kinds.map(|it| it.kind).collect();
    let most_groups = (MAX_HEAD_LISTS / kinds.len().max(1)).max(1) as i64;
    let groups: Vec<String> = view.values(GROUPS, &[&kinds, &most_groups]).await?;
    let rows = view.rows(HEAD, &[&kinds, &groups, &(limit as i64)]).await?;
    let tasks = rows
        .iter()
        .map(|row| task_info::info(view, State::Waiting, row));
    let now = view.now.wall.max(0) as u64;
    Ok(QueueHead::at(now, tasks.collect::<Result<_, _>>()?))
}
