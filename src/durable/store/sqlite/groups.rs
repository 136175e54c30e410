//! The groups of tasks within named queues, which take turns.
//!
//! The tasks of a group wait in *sublists*: a sublist is the part of a list that has the tasks of one group. It has a row in `throng_group`
//! while tasks wait in it. The column `turn` is a number if the group lets a task start, that is, if the group is not held and has a
//! permit; otherwise, it is `NULL`. Among the sublists of a list, the one with the lowest number is served next. The number of running
//! tasks of a group is the number of its rows in `throng_group_run`. The groups that are held have rows in `throng_group_hold`.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Fault;
use super::queues::QueueRow;
use super::ready_queue::NO_GROUP;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::ListId;

/// The number of holds that a turn ends, at most.
const MAX_ENDED: i64 = 256;

/// A condition in SQL: a task of the group of a row `own` of `throng_group` may start.
pub(super) const MAY_START: &str = "
    (SELECT count(*) FROM throng_group_run AS run WHERE run.queue = own.queue AND run.name = own.name)
        < coalesce((SELECT group_max FROM throng_queue WHERE throng_queue.name = own.queue), 1 << 40)
    AND NOT EXISTS (SELECT 1 FROM throng_group_hold AS hold WHERE hold.queue = own.queue AND hold.name = own.name)";

/// The group of a task, and the queue of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskGroup {
    pub(super) queue: String,
    pub(super) name: String,
}

/// Returns the number of tasks of a group that may start, if only its limit matters.
pub(super) fn permits(db: &Connection, group: &TaskGroup) -> Result<usize, rusqlite::Error> {
    let queue = QueueName::from(Some(group.queue.clone()));
    let row = QueueRow::load(db, &queue)?;
    let Some(most) = row.settings.groups.max_running else {
        return Ok(usize::MAX);
    };
    let sql = "SELECT count(*) FROM throng_group_run WHERE queue = ?1 AND name = ?2";
    let mut statement = db.prepare_cached(sql)?;
    let running: i64 = statement.query_row([&group.queue, &group.name], |row| row.get(0))?;
    Ok(usize::try_from(i64::from(most) - running).unwrap_or_default())
}

fn is_held(db: &Connection, group: &TaskGroup) -> Result<bool, rusqlite::Error> {
    let sql = "SELECT 1 FROM throng_group_hold WHERE queue = ?1 AND name = ?2";
    let mut statement = db.prepare_cached(sql)?;
    statement.exists([&group.queue, &group.name])
}

/// Returns `true` if a task of a group may start.
pub(super) fn may_start(db: &Connection, group: &TaskGroup) -> Result<bool, rusqlite::Error> {
    Ok(permits(db, group)? > 0 && !is_held(db, group)?)
}

/// Returns the sublist of a group in a list. Creates it if there is none: its turn is `turn`, if a task of the group may start.
pub(super) fn sublist_of(
    db: &Connection,
    list: ListId,
    group: &TaskGroup,
    turn: impl FnOnce() -> i64,
) -> Result<i64, rusqlite::Error> {
    let sql = "SELECT sublist FROM throng_group WHERE queue = ?1 AND name = ?2 AND list = ?3";
    let mut find = db.prepare_cached(sql)?;
    let found = find.query_row(params![group.queue, group.name, list.number()], |row| {
        row.get(0)
    });
    if let Some(sublist) = found.optional()? {
        return Ok(sublist);
    }
    let sql = "SELECT coalesce(max(sublist), 0) + 1 FROM throng_group WHERE list = ?1";
    let mut next = db.prepare_cached(sql)?;
    let sublist: i64 = next.query_row([list.number()], |row| row.get(0))?;
    let turn = may_start(db, group)?.then(turn);
    let sql =
        "INSERT INTO throng_group (list, sublist, queue, name, turn) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = db.prepare_cached(sql)?;
    insert.execute(params![
        list.number(),
        sublist,
        group.queue,
        group.name,
        turn
    ])?;
    Ok(sublist)
}

/// Returns the time until the first hold of a queue is over. The default queue has no groups.
pub(super) fn hold_wait(
    db: &Connection,
    queue: &QueueName,
    now: i64,
) -> Result<Option<Duration>, rusqlite::Error> {
    if queue.is_default() {
        return Ok(None);
    }
    let sql = "SELECT min(until) FROM throng_group_hold WHERE queue = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let until: Option<i64> = statement.query_row([queue.as_str()], |row| row.get(0))?;
    let left = |until| u64::try_from(until - now).unwrap_or_default();
    Ok(until.map(|until| Duration::from_millis(left(until))))
}

impl Transaction<'_> {
    /// Returns the turn of the groups of which a task may start because of the current request. They are behind all others.
    pub(super) fn next_turn(&mut self) -> i64 {
        *self.next_turn.get_or_insert_with(|| {
            self.meta.group_turn += 1;
            self.meta.group_turn
        })
    }

    /// Returns the sublist of a list for a task of a group, and `true` if a session is to be woken for the task. (If the group is held, the
    /// session that is woken learns when the hold ends.)
    pub(super) fn sublist_for(
        &mut self,
        list: ListId,
        kind: Kind,
        group: Option<&TaskGroup>,
    ) -> Result<(i64, bool), rusqlite::Error> {
        let Some(group) = group else {
            return Ok((NO_GROUP, true));
        };
        let turn = match self.turn_before(list, kind, group)? {
            Some(turn) => turn,
            None => self.next_turn(),
        };
        let sublist = sublist_of(self.db, list, group, || turn)?;
        Ok((sublist, permits(self.db, group)? > 0))
    }

    /// Returns the first turn that a group has in the lists which drain into a list: it keeps this turn there.
    fn turn_before(
        &self,
        list: ListId,
        kind: Kind,
        group: &TaskGroup,
    ) -> Result<Option<i64>, rusqlite::Error> {
        let sql = "SELECT turn FROM throng_group
             WHERE queue = ?1 AND name = ?2 AND list = ?3 AND turn IS NOT NULL";
        let path = self.routes.path(kind).iter();
        let mut first: Option<i64> = None;
        for other in path.take_while(|&&other| other != list) {
            let mut statement = self.db.prepare_cached(sql)?;
            let params = params![group.queue, group.name, other.number()];
            let turn = statement.query_row(params, |row| row.get(0)).optional()?;
            first = first.into_iter().chain(turn).min();
        }
        Ok(first)
    }

    /// Returns the group of a task, if it has one.
    pub(super) fn group_of(&self, id: TaskId) -> Result<Option<TaskGroup>, rusqlite::Error> {
        let sql = "SELECT queue, group_name FROM throng_task
             WHERE id = ?1 AND queue IS NOT NULL AND group_name IS NOT NULL";
        let mut statement = self.db.prepare_cached(sql)?;
        let group = statement.query_row([id.to_bytes()], |row| {
            Ok(TaskGroup {
                queue: row.get(0)?,
                name: row.get(1)?,
            })
        });
        group.optional()
    }

    /// Removes a sublist from which a task was removed, if it is empty.
    pub(super) fn remove_sublist_if_empty(
        &self,
        list: i64,
        sublist: i64,
    ) -> Result<(), rusqlite::Error> {
        if sublist != NO_GROUP {
            let sql = "DELETE FROM throng_group WHERE list = ?1 AND sublist = ?2 AND NOT EXISTS (
                 SELECT 1 FROM throng_ready WHERE list = ?1 AND sublist = ?2)";
            self.execute(sql, [list, sublist])?;
        }
        Ok(())
    }

    /// Removes the sublists that a request has emptied and not filled again. A group that has tasks before and after a request keeps its
    /// turn.
    pub(super) fn remove_emptied_sublists(&mut self) -> Result<(), rusqlite::Error> {
        for (list, sublist) in std::mem::take(&mut self.emptied) {
            self.remove_sublist_if_empty(list, sublist)?;
        }
        Ok(())
    }

    /// Gives turns to the sublists of a group if its tasks may start; otherwise, takes them away.
    pub(super) fn update_group(&mut self, group: &TaskGroup) -> Result<(), rusqlite::Error> {
        let may_start = may_start(self.db, group)?;
        let turn = may_start.then(|| self.next_turn());
        let sql = "UPDATE throng_group SET turn = ?3
             WHERE queue = ?1 AND name = ?2 AND (turn IS NULL) <> (?3 IS NULL)";
        self.execute(sql, params![group.queue, group.name, turn])?;
        Ok(())
    }

    // ===== Tasks that start or stop =====

    /// Records that a sublist was served.
    pub(super) fn sublist_served(
        &mut self,
        list: i64,
        sublist: i64,
    ) -> Result<(), rusqlite::Error> {
        self.meta.group_turn += 1;
        let sql = "UPDATE throng_group SET turn = ?3 WHERE list = ?1 AND sublist = ?2";
        self.execute(sql, [list, sublist, self.meta.group_turn])?;
        self.remove_sublist_if_empty(list, sublist)
    }

    /// Records that tasks of a group start.
    pub(super) fn start_in_group(
        &mut self,
        group: &TaskGroup,
        ids: &[TaskId],
    ) -> Result<(), rusqlite::Error> {
        let sql = "INSERT OR REPLACE INTO throng_group_run (id, queue, name) VALUES (?1, ?2, ?3)";
        for id in ids {
            self.execute(sql, params![id.to_bytes(), group.queue, group.name])?;
        }
        self.update_group(group)
    }

    /// Records that a task of a named queue stops running.
    pub(super) fn stop_in_group(&mut self, id: TaskId) -> Result<(), rusqlite::Error> {
        let sql = "SELECT queue, name FROM throng_group_run WHERE id = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let group = statement.query_row([id.to_bytes()], |row| {
            Ok(TaskGroup {
                queue: row.get(0)?,
                name: row.get(1)?,
            })
        });
        let Some(group) = group.optional()? else {
            return Ok(());
        };
        drop(statement);
        self.execute(
            "DELETE FROM throng_group_run WHERE id = ?1",
            [id.to_bytes()],
        )?;
        self.update_group(&group)
    }

    // ===== Holds and limits =====

    /// Holds the group of a task. This replaces an earlier hold of the group.
    pub(super) fn hold_group(&mut self, id: TaskId, wait: Duration) -> Result<(), Fault> {
        let Some(group) = self.group_of(id)? else {
            return Ok(());
        };
        let until = self.now.wall.saturating_add(millis(wait) as i64);
        let sql =
            "INSERT OR REPLACE INTO throng_group_hold (queue, name, until) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![group.queue, group.name, until])?;
        self.update_group(&group)?;
        // An idle session may have to check earlier now.
        self.recheck_queue(&QueueName::from(Some(group.queue)));
        Ok(())
    }

    /// Ends the holds of a queue whose time is over: a limited number in each turn. The next turn follows at once if others are left.
    pub(super) fn end_holds(&mut self, queue: &QueueName) -> Result<(), rusqlite::Error> {
        let sql = "SELECT name FROM throng_group_hold WHERE queue = ?1 AND until <= ?2
             ORDER BY until LIMIT ?3";
        let mut statement = self.db.prepare_cached(sql)?;
        let params = params![queue.as_str(), self.now.wall, MAX_ENDED];
        let over = statement.query_map(params, |row| row.get(0))?;
        let over = over.collect::<Result<Vec<String>, _>>()?;
        drop(statement);
        for name in over {
            let queue = queue.as_str().to_owned();
            let sql = "DELETE FROM throng_group_hold WHERE queue = ?1 AND name = ?2";
            self.execute(sql, [&queue, &name])?;
            self.update_group(&TaskGroup { queue, name })?;
        }
        Ok(())
    }

    /// Applies a new limit to the groups of which tasks run. No others can be affected.
    pub(super) fn update_running_groups(&mut self, queue: &QueueName) -> Result<(), Fault> {
        let sql = format!(
            "UPDATE throng_group AS own SET turn = iif(turn IS NULL, ?2, NULL)
             WHERE queue = ?1 AND name IN (SELECT name FROM throng_group_run WHERE queue = ?1)
                 AND (turn IS NULL) = ({MAY_START})"
        );
        let turn = self.next_turn();
        self.execute(&sql, params![queue.as_str(), turn])?;
        Ok(())
    }

    /// Has the lists of a queue checked by a session.
    pub(super) fn recheck_queue(&mut self, queue: &QueueName) {
        for list in self.routes.lists_of_queue(queue) {
            self.notices.add_ready(list, 0);
        }
    }
}
