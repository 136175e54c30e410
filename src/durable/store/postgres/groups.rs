//! The groups of tasks within named queues, which take turns.
//!
//! The tasks of a group wait in lines of their own, one for each kind. Such a line has a row in `group_line` while tasks wait in it, with
//! the turn of the group, if the group lets a task start: if it is not held and has a permit. The number of running tasks of a group is the
//! number of its rows in `group_run`. The groups that are held have rows in `group_hold`.
//!
//! A request that affects groups notes which, and *settles* them once: before a claim, and at its end. So a group of which a task may start
//! before and after a request keeps its turn, whatever happens in between.

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Fault;
use super::group_changes::{Arrival, StoredGroup};
use super::text;
use super::time::Now;
use super::transaction::Transaction;
use super::view::{View, uuid, uuids};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;

/// Stores the lines in which tasks wait, without turns.
const INSERT_LINES: &str = "INSERT INTO throng.group_line (kind, name, queue, priority)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[])
    ON CONFLICT (kind, name) DO NOTHING";

/// Removes the lines of groups that are empty. Gives turns to the other lines if tasks of their groups may start; otherwise, takes them
/// away. A new line of a group gets the turn that the group has. Returns the groups that have a permit.
const SETTLE: &str = "WITH own AS MATERIALIZED (
        SELECT queue, name, (
            SELECT count(*) FROM throng.group_run AS run
            WHERE run.queue = own.queue AND run.name = own.name
        ) < coalesce((
            SELECT group_max FROM throng.queue AS row WHERE row.name = own.queue
        ), 1::bigint << 40) AS has_permit
        FROM unnest($1::text[], $2::text[]) AS own (queue, name)
    ), line AS MATERIALIZED (
        SELECT line.*, has_permit AND NOT EXISTS (
            SELECT 1 FROM throng.group_hold AS hold
            WHERE hold.queue = own.queue AND hold.name = own.name OFFSET 0
        ) AS may_start, EXISTS (
            SELECT 1 FROM throng.ready
            WHERE ready.kind = line.kind AND ready.group_name = line.name OFFSET 0
        ) AS has_tasks
        FROM own JOIN throng.group_line AS line ON line.queue = own.queue AND line.name = own.name
    ), next AS MATERIALIZED (
        SELECT nextval('throng.turn') AS turn
    ), removed AS (
        DELETE FROM throng.group_line AS stored USING line
        WHERE stored.kind = line.kind AND stored.name = line.name AND NOT has_tasks
    ), changed AS (
        UPDATE throng.group_line AS stored SET turn = CASE WHEN may_start THEN coalesce((
            SELECT min(other.turn) FROM line AS other WHERE other.queue = line.queue
                AND other.name = line.name AND other.priority = line.priority
        ), (SELECT next.turn FROM next)) END
        FROM line WHERE stored.kind = line.kind AND stored.name = line.name
            AND has_tasks AND (line.turn IS NULL) = may_start
    )
    SELECT queue, name FROM own WHERE has_permit";

/// Gives groups that were served the last turns, in the order of the array.
const SERVED: &str = "WITH placed AS MATERIALIZED (
        SELECT name, nextval('throng.turn') AS turn FROM (
            SELECT name FROM unnest($3::text[]) WITH ORDINALITY AS own (name, number)
            ORDER BY number
        ) AS own
    )
    UPDATE throng.group_line AS line SET turn = placed.turn FROM placed
    WHERE line.queue = $1 AND line.priority = $2 AND line.name = placed.name";

const START: &str = "INSERT INTO throng.group_run (id, queue, name)
    SELECT own.id, $1, own.name FROM unnest($2::uuid[], $3::text[]) AS own (id, name)
    ON CONFLICT (id) DO UPDATE SET queue = excluded.queue, name = excluded.name";

const STOP: &str = "DELETE FROM throng.group_run WHERE id = ANY ($1) RETURNING queue, name";

const RUNNING: &str = "SELECT DISTINCT name FROM throng.group_run WHERE queue = $1";

/// Holds the group of a task. The group loses its turns, even if the hold is over in the same request.
const HOLD: &str = "WITH own AS MATERIALIZED (
        SELECT queue, group_name AS name FROM throng.task
        WHERE id = $1 AND queue IS NOT NULL AND group_name IS NOT NULL
    ), held AS (
        INSERT INTO throng.group_hold (queue, name, until)
        SELECT queue, name, $2::bigint FROM own
        ON CONFLICT (queue, name) DO UPDATE SET until = excluded.until
    ), stopped AS (
        UPDATE throng.group_line AS line SET turn = NULL FROM own
        WHERE line.queue = own.queue AND line.name = own.name
    )
    SELECT queue, name FROM own";

const END_HOLDS: &str = "DELETE FROM throng.group_hold AS hold USING (
        SELECT name FROM throng.group_hold WHERE queue = $1 AND until <= $2
        ORDER BY until LIMIT $3
    ) AS over
    WHERE hold.queue = $1 AND hold.name = over.name RETURNING hold.name";

const FIRST_HOLD: &str =
    "SELECT until FROM throng.group_hold WHERE queue = $1 ORDER BY until LIMIT 1";

/// Selects `true` if a group with a turn has a task of the kinds `$1`, whether or not it is quarantined if `$2`.
pub(super) const IS_ANY_READY: &str = "SELECT EXISTS (
        SELECT 1 FROM unnest($1::bigint[]) AS own (kind) CROSS JOIN LATERAL (
            SELECT 1 FROM throng.group_line AS line
            WHERE line.kind = own.kind AND turn IS NOT NULL AND ($2 OR EXISTS (
                SELECT 1 FROM throng.ready JOIN throng.task ON task.id = ready.id
                WHERE ready.kind = line.kind AND ready.group_name = line.name
                    AND NOT (crashes + lost > 0 AND crashes + least(lost, 1) + 1 >= max_crashes) OFFSET 0
            )) ORDER BY turn, name LIMIT 1
        ) AS found
    )";

/// The number of holds that a turn ends, at most.
const MAX_ENDED: i64 = 256;

impl Transaction {
    // ===== Tasks that wait =====

    /// Records that a task of a group waits, given its columns `kind`, `queue`, `name` and `priority`. Sessions are woken for it when the
    /// group is settled.
    pub(super) fn waits_in_group(&mut self, row: &Row, group: String) -> Result<(), Fault> {
        let queue: Option<String> = row.try_get("queue")?;
        let group = StoredGroup {
            queue: queue.unwrap_or_default(),
            name: group,
        };
        self.groups.touch(group.clone());
        self.groups.arrivals.push(Arrival {
            group,
            kind: row.try_get("kind")?,
            priority: row.try_get("priority")?,
            name: text::loaded(row.try_get("name")?),
        });
        Ok(())
    }

    /// Records that a task of a group no longer waits, without having started.
    pub(super) fn left_group(&mut self, queue: &QueueName, group: &str) {
        let name = text::stored(group).into_owned();
        self.groups.touch(StoredGroup::new(queue, name));
    }

    /// Settles the turns of the groups that the current request has affected so far, and wakes sessions for their new tasks.
    pub(super) async fn settle_groups(&mut self) -> Result<(), Fault> {
        if self.groups.touched.is_empty() {
            return Ok(());
        }
        self.require_exclusive()?;
        let changes = mem::take(&mut self.groups);
        if !changes.arrivals.is_empty() {
            let (kinds, names, queues, priorities) = changes.lines();
            self.execute(INSERT_LINES, &[&kinds, &names, &queues, &priorities])
                .await?;
        }
        let touched = changes.touched.iter();
        let (queues, names): (Vec<_>, Vec<_>) = touched.map(|it| (&*it.queue, &*it.name)).unzip();
        let rows = self.rows(SETTLE, &[&queues, &names]).await?;
        let with_permits = rows.iter().map(StoredGroup::read);
        let with_permits = with_permits.collect::<Result<BTreeSet<_>, _>>()?;
        // A session that is woken for a group that is held learns when the hold ends.
        for it in changes.arrivals {
            if with_permits.contains(&it.group) {
                self.add_ready(it.kind, &it.group.queue(), &it.name, 1);
            }
        }
        Ok(())
    }

    // ===== Tasks that start or stop =====

    /// Records that tasks of groups start, each with its group, and the groups that were served, in this order.
    pub(super) async fn started_in_groups(
        &mut self,
        queue: &QueueName,
        priority: Priority,
        started: &[(TaskId, &str)],
        served: &[String],
    ) -> Result<(), Fault> {
        if started.is_empty() {
            return Ok(());
        }
        let name = text::stored(queue.as_str());
        self.execute(SERVED, &[&name, &(priority as i16), &last_of_each(served)])
            .await?;
        let ids: Vec<Uuid> = started.iter().map(|(id, _)| uuid(*id)).collect();
        let groups: Vec<_> = started.iter().map(|(_, group)| *group).collect();
        self.execute(START, &[&name, &ids, &groups]).await?;
        for group in served {
            self.groups.touch(StoredGroup::new(queue, group.clone()));
        }
        Ok(())
    }

    /// Records that tasks of a queue stop running.
    pub(super) async fn groups_stopped(&mut self, ids: &[TaskId]) -> Result<(), Fault> {
        for row in &self.rows(STOP, &[&uuids(ids)]).await? {
            self.groups.touch(StoredGroup::read(row)?);
        }
        Ok(())
    }

    // ===== Holds and limits =====

    /// Holds the group of a task. This replaces an earlier hold of the group.
    pub(super) async fn hold_group(&mut self, id: TaskId, wait: Duration) -> Result<(), Fault> {
        let until = self.now.wall.saturating_add(millis(wait) as i64);
        if let Some(row) = self.row(HOLD, &[&uuid(id), &until]).await? {
            let group = StoredGroup::read(&row)?;
            // An idle session may have to check earlier now.
            self.notices.changed.insert(group.queue());
            self.groups.touch(group);
        }
        Ok(())
    }

    /// Ends the holds of a queue whose time is over: a limited number in each turn. The next turn follows at once if others are left.
    pub(super) async fn end_holds(&mut self, queue: &QueueName) -> Result<(), Fault> {
        let name = text::stored(queue.as_str());
        let now = self.now.wall;
        let ended: Vec<String> = self.values(END_HOLDS, &[&name, &now, &MAX_ENDED]).await?;
        for group in ended {
            self.groups.touch(StoredGroup::new(queue, group));
        }
        Ok(())
    }

    /// Applies a new limit to the groups of which tasks run. No others can be affected.
    pub(super) async fn running_groups_changed(&mut self, queue: &QueueName) -> Result<(), Fault> {
        let name = text::stored(queue.as_str());
        let running: Vec<String> = self.values(RUNNING, &[&name]).await?;
        for group in running {
            self.groups.touch(StoredGroup::new(queue, group));
        }
        Ok(())
    }
}

/// Returns the names in the order in which each of them comes for the last time.
fn last_of_each(names: &[String]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let names = names.iter().rev().map(|name| &**name);
    let mut last: Vec<_> = names.filter(|name| seen.insert(*name)).collect();
    last.reverse();
    last
}

/// Returns the time until the first hold of a queue is over. The default queue has no groups.
pub(super) async fn hold_wait(view: &View, queue: &QueueName) -> Result<Option<Duration>, Fault> {
    if queue.is_default() {
        return Ok(None);
    }
    let name = text::stored(queue.as_str());
    let until: Option<i64> = view.value(FIRST_HOLD, &[&name]).await?;
    Ok(until.map(|until| Now::left(view.now.wall, until)))
}

/// Returns `true` if a task of a group waits and may start.
pub(super) async fn is_any_ready(
    view: &View,
    kinds: &[i64],
    quarantined: bool,
) -> Result<bool, Fault> {
    let found: Option<bool> = view.value(IS_ANY_READY, &[&kinds, &quarantined]).await?;
    Ok(found.unwrap_or_default())
}
