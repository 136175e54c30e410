//! [`WaitingKind`]: the kinds of which tasks wait, each with its first task.

use std::time::Duration;

use super::error::Fault;
use super::text;
use super::view::View;
use crate::durable::queue::name::QueueName;

/// Selects the kinds of which tasks wait, and the first task of each: one without a group, if there is one. It finds each kind in the index
/// behind the one before, so it reads no other entry.
const SELECT: &str = "WITH RECURSIVE own (kind) AS (
        SELECT min(kind) FROM throng.ready
        UNION ALL
        SELECT (SELECT min(ready.kind) FROM throng.ready WHERE ready.kind > own.kind)
        FROM own WHERE own.kind IS NOT NULL
    )
    SELECT first.* FROM own CROSS JOIN LATERAL (
        SELECT ready.kind, name, queue, task.group_name, ready_at
        FROM throng.ready JOIN throng.task ON task.id = ready.id
        WHERE ready.kind = own.kind ORDER BY ready.group_name, ready.place LIMIT 1
    ) AS first";

const COUNT: &str = "SELECT count(*) FROM throng.ready WHERE kind = ANY ($1)";

/// A kind of which tasks wait. All of them have the same name, and are in the same queue.
pub(super) struct WaitingKind {
    pub(super) kind: i64,
    pub(super) name: String,
    pub(super) queue: QueueName,
    /// The time for which the first task has been ready.
    pub(super) ready_for: Duration,
    /// `true` if only tasks of groups wait.
    pub(super) is_grouped: bool,
}

impl View {
    /// Returns the kinds of which tasks wait, in their order.
    pub(super) async fn waiting_kinds(&self) -> Result<Vec<WaitingKind>, Fault> {
        let rows = self.rows(SELECT, &[]).await?;
        let kinds = rows.iter().map(|row| {
            let (queue, group): (Option<String>, Option<String>) =
                (row.try_get("queue")?, row.try_get("group_name")?);
            Ok(WaitingKind {
                kind: row.try_get("kind")?,
                name: text::loaded(row.try_get("name")?),
                queue: QueueName::from(queue.map(text::loaded)),
                ready_for: self.now.since(row.try_get("ready_at")?),
                is_grouped: group.is_some(),
            })
        });
        kinds.collect()
    }

    /// Counts the waiting tasks of some kinds.
    pub(super) async fn count_waiting(&self, kinds: &[i64]) -> Result<u64, Fault> {
        let count: Option<i64> = match kinds.is_empty() {
            true => None,
            false => self.value(COUNT, &[&kinds]).await?,
        };
        Ok(count.unwrap_or_default() as u64)
    }

    /// Counts the waiting tasks of a queue.
    pub(super) async fn count_waiting_in(&self, queue: &QueueName) -> Result<u64, Fault> {
        let kinds = self.waiting_kinds().await?.into_iter();
        let kinds = kinds.filter(|it| it.queue == *queue);
        let kinds: Vec<_> = kinds.map(|it| it.kind).collect();
        self.count_waiting(&kinds).await
    }
}
