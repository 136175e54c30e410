//! The lines of waiting tasks: one for each kind, or for each group of a kind. Places rise over all lines, so they order the tasks of
//! different kinds, too.

use tokio_postgres::Row;

use super::error::Fault;
use super::state::State;
use super::transaction::Transaction;
use super::view::uuids;
use crate::durable::TaskId;

/// Puts tasks before all that wait, in the order of the array.
const PUSH_FRONT: &str = "WITH placed AS MATERIALIZED (
        SELECT id, lost, crashes, nextval('throng.front') AS place FROM (
            SELECT * FROM unnest($1::uuid[], $2::integer[], $3::integer[]) WITH ORDINALITY
                AS own (id, lost, crashes, number) ORDER BY number DESC
        ) AS own
    ), moved AS (
        UPDATE throng.task SET state = 0, at = NULL, place = placed.place,
            lost = task.lost + placed.lost, crashes = task.crashes + placed.crashes
        FROM placed WHERE task.id = placed.id
        RETURNING task.id, kind, queue, name, group_name, priority, task.place
    ), lined AS (
        INSERT INTO throng.ready (kind, group_name, place, id)
        SELECT kind, coalesce(group_name, ''), place, id FROM moved
    )
    SELECT id, kind, queue, name, group_name, priority FROM moved ORDER BY place";

/// Puts tasks behind all that wait, in the order of the array.
const PUSH_BACK: &str = "WITH placed AS MATERIALIZED (
        SELECT id, nextval('throng.back') AS place
        FROM (SELECT id FROM unnest($1::uuid[]) WITH ORDINALITY AS own (id, number) ORDER BY number)
            AS own
    ), moved AS (
        UPDATE throng.task SET state = 0, at = NULL, place = placed.place,
            ready_at = coalesce($2, ready_at)
        FROM placed WHERE task.id = placed.id
        RETURNING task.id, kind, queue, name, group_name, priority, task.place
    ), lined AS (
        INSERT INTO throng.ready (kind, group_name, place, id)
        SELECT kind, coalesce(group_name, ''), place, id FROM moved
    )
    SELECT id, kind, queue, name, group_name, priority FROM moved ORDER BY place";

/// Selects delayed tasks that are due, the earliest first.
const DUE: &str = "SELECT id FROM throng.task WHERE state = 1 AND at <= $1
    ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED";

/// The number of delayed tasks that a turn makes due, at most.
const MAX_DUE: i64 = 256;

/// A running task that waits again, and what is added to its counts of lost claims and crashes.
pub(super) struct GivenBack {
    pub(super) id: TaskId,
    pub(super) lost: i32,
    pub(super) crashes: i32,
}

impl Transaction {
    /// Puts running tasks before those that wait, in this order.
    pub(super) async fn push_front(&mut self, tasks: &[GivenBack]) -> Result<(), Fault> {
        if tasks.is_empty() {
            return Ok(());
        }
        let ids = uuids(tasks.iter().map(|task| &task.id));
        let lost: Vec<_> = tasks.iter().map(|task| task.lost).collect();
        let crashes: Vec<_> = tasks.iter().map(|task| task.crashes).collect();
        let rows = self.rows(PUSH_FRONT, &[&ids, &lost, &crashes]).await?;
        self.pushed(&rows, State::Running)
    }

    /// Appends tasks to their lines, in this order. With `ready_at`, this is the time at which they became ready.
    pub(super) async fn push_back(
        &mut self,
        ids: &[TaskId],
        from: State,
        ready_at: Option<i64>,
    ) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let rows = self.rows(PUSH_BACK, &[&uuids(ids), &ready_at]).await?;
        self.pushed(&rows, from)
    }

    /// Moves delayed tasks that are due into their lines, the earliest first. Returns `true` if there were any.
    pub(super) async fn make_due(&mut self) -> Result<bool, Fault> {
        let due = self.ids(DUE, &[&self.now.wall, &MAX_DUE]).await?;
        self.push_back(&due, State::Delayed, None).await?;
        Ok(!due.is_empty())
    }

    /// Records tasks that wait from now on.
    fn pushed(&mut self, rows: &[Row], from: State) -> Result<(), Fault> {
        self.moved(from, State::Waiting, rows.len());
        for row in rows {
            self.add_ready_row(row)?;
        }
        Ok(())
    }
}
