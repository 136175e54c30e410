//! Moves waiting tasks out of draining lists.
//!
//! No claim takes tasks from a draining list. So the groups of the list take turns when their tasks move. Otherwise, all tasks of a large
//! group would move, and could start, before any task of another group could be claimed.

use std::sync::Arc;

use rusqlite::params;

use super::error::Fault;
use super::ready_queue::NO_GROUP;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::ListId;

/// The number of tasks that a turn moves, at most.
const MAX_DRAINED: usize = 256;

/// The groups of a list that have turns, in their order.
const WITH_TURNS: &str = "
    SELECT sublist, name, turn FROM throng_group
    WHERE list = ?1 AND turn IS NOT NULL ORDER BY turn, name LIMIT ?2";

/// The groups of a list of which no task may start.
const WITHOUT_TURNS: &str = "
    SELECT sublist, name, 0 FROM throng_group WHERE list = ?1 AND turn IS NULL LIMIT ?2";

/// A sublist from which tasks move.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    /// The turn of the group, and its name, since groups with the same turn are in the order of their names.
    turn: (i64, String),
    list: ListId,
    sublist: i64,
}

/// A task that waits in a draining list.
struct Waiting {
    id: TaskId,
    kind: Kind,
    position: i64,
}

impl Transaction<'_> {
    /// Moves tasks out of the draining lists of a set.
    pub(super) fn drain(&mut self, set: SetId) -> Result<(), Fault> {
        let mut left = MAX_DRAINED;
        loop {
            let routes = Arc::clone(&self.routes);
            let draining = routes.draining(set);
            if draining.is_empty() || left == 0 {
                return Ok(());
            }
            let moved = self.drain_round(&draining, left)?;
            left -= moved.min(left);
            // Lists that are empty now are removed from the draining lists. Then other lists may drain.
            self.change_routes(|_| ())?;
            if moved == 0 && Arc::ptr_eq(&routes, &self.routes) {
                return Ok(());
            }
        }
    }

    /// Moves up to `limit` tasks: the same number of each group, and also of the tasks without a group. Tasks that cannot start move last.
    /// Returns the number of entries that it has read.
    fn drain_round(&mut self, draining: &[ListId], limit: usize) -> Result<usize, Fault> {
        let plain = self.lists_without_groups(draining)?;
        let mut grouped = self.groups_to_drain(WITH_TURNS, draining, limit)?;
        if plain.is_empty() && grouped.is_empty() {
            grouped = self.groups_to_drain(WITHOUT_TURNS, draining, limit)?;
        }
        let each = match grouped.is_empty() {
            true => limit,
            false => (limit / (grouped.len() + plain.len())).max(1),
        };
        let mut left = limit;
        for source in &grouped {
            let moved = self.drain_source(source.list, source.sublist, each.min(left))?;
            self.pass_turn(source)?;
            left -= moved;
        }
        for list in plain {
            left -= self.drain_source(list, NO_GROUP, each.min(left))?;
        }
        Ok(limit - left)
    }

    /// Returns the lists in which tasks without a group wait. The last one comes first, since its tasks are older and can be claimed
    /// sooner.
    fn lists_without_groups(&self, draining: &[ListId]) -> Result<Vec<ListId>, Fault> {
        let sql = "SELECT 1 FROM throng_ready WHERE list = ?1 AND sublist = 0";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut lists = Vec::new();
        for &list in draining.iter().rev() {
            if statement.exists([list.number()])? {
                lists.push(list);
            }
        }
        Ok(lists)
    }

    /// Returns the groups of the lists that a query selects, those whose turn it is first.
    fn groups_to_drain(
        &self,
        sql: &str,
        draining: &[ListId],
        limit: usize,
    ) -> Result<Vec<Source>, Fault> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut sources = Vec::new();
        for &list in draining {
            let rows = statement.query_map(params![list.number(), limit as i64], |row| {
                Ok(Source {
                    turn: (row.get(2)?, row.get(1)?),
                    list,
                    sublist: row.get(0)?,
                })
            })?;
            sources.extend(rows.collect::<Result<Vec<_>, _>>()?);
        }
        sources.sort_unstable();
        sources.truncate(limit);
        Ok(sources)
    }

    /// Moves up to `limit` tasks out of a sublist of a list. Returns the number of entries that it has read.
    fn drain_source(&mut self, list: ListId, sublist: i64, limit: usize) -> Result<usize, Fault> {
        let mut statement = self.db.prepare_cached(
            "SELECT ready.place, task.id, task.kind
             FROM throng_ready AS ready LEFT JOIN throng_task AS task ON task.id = ready.id
             WHERE ready.list = ?1 AND ready.sublist = ?2 ORDER BY ready.place LIMIT ?3",
        )?;
        let rows = statement.query_map(params![list.number(), sublist, limit as i64], |row| {
            Ok(Waiting {
                position: row.get(0)?,
                id: TaskId::from_bytes(row.get(1)?),
                kind: Kind::from_number(row.get(2)?),
            })
        })?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        drop(statement);
        for task in &rows {
            if let Some(next) = self.routes.next(task.kind, list) {
                self.move_to(task, (list, sublist), next)?;
            }
        }
        self.remove_sublist_if_empty(list.number(), sublist)?;
        Ok(rows.len())
    }

    /// Puts a group of which some tasks have moved behind the others.
    fn pass_turn(&mut self, source: &Source) -> Result<(), Fault> {
        let turn = self.next_turn();
        let sql = "UPDATE throng_group SET turn = ?3
             WHERE list = ?1 AND sublist = ?2 AND turn IS NOT NULL";
        self.execute(sql, params![source.list.number(), source.sublist, turn])?;
        Ok(())
    }

    fn move_to(
        &mut self,
        task: &Waiting,
        (from, sublist): (ListId, i64),
        to: ListId,
    ) -> Result<(), Fault> {
        let (new_sublist, new_position) = self.place_in(task, sublist, to)?;
        self.execute(
            "UPDATE throng_ready SET list = ?4, sublist = ?5, place = ?6
             WHERE list = ?1 AND sublist = ?2 AND place = ?3",
            params![
                from.number(),
                sublist,
                task.position,
                to.number(),
                new_sublist,
                new_position
            ],
        )?;
        self.execute(
            "UPDATE throng_task SET list = ?2, sublist = ?3, place = ?4 WHERE id = ?1",
            params![task.id.to_bytes(), to.number(), new_sublist, new_position],
        )?;
        self.notices.add_ready(from, -1);
        self.notices.add_ready(to, 1);
        Ok(())
    }

    /// Returns the sublist and the position of a task that moves to another list.
    fn place_in(&mut self, task: &Waiting, sublist: i64, to: ListId) -> Result<(i64, i64), Fault> {
        if sublist == NO_GROUP {
            return Ok((sublist, task.position));
        }
        let group = self.group_of(task.id)?;
        let (new_sublist, _) = self.sublist_for(to, task.kind, group.as_ref())?;
        let position = self.queue.next_tail_of(self.db, to, new_sublist)?;
        Ok((new_sublist, position))
    }
}
