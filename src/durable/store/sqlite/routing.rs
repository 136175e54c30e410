//! Changes of the lists in which tasks wait: see [`Routes`].

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::error::Fault;
use super::groups;
use super::ready_queue::{self, NO_GROUP};
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::{ListId, Routes};

/// The number of tasks that a turn moves out of draining lists, at most.
const MAX_DRAINED: usize = 256;

impl Transaction<'_> {
    /// Changes the routes, and removes empty lists from them.
    pub(super) fn change_routes(&mut self, change: impl FnOnce(&mut Routes)) -> Result<(), Fault> {
        let mut routes = Routes::clone(&self.routes);
        change(&mut routes);
        let mut empty = BTreeSet::new();
        for list in routes.collapsible() {
            if ready_queue::is_empty(self.db, list)? {
                empty.insert(list);
            }
        }
        routes.collapse(|list| empty.contains(&list));
        if routes == *self.routes {
            return Ok(());
        }
        let text = serde_json::to_string(&routes).unwrap_or_default();
        self.execute(
            "UPDATE throng_meta SET routes = ?1, routes_version = routes_version + 1",
            [text],
        )?;
        self.routes = Arc::new(routes);
        Ok(())
    }

    /// Pauses or resumes the type with this name.
    pub(super) fn set_paused(&mut self, name: &str, is_paused: bool) -> Result<(), Fault> {
        let kinds = Kind::all_of(name);
        self.change_routes(|routes| match is_paused {
            true => routes.pause(name, kinds),
            false => routes.resume(name),
        })?;
        // Idle sessions that read the lists from now on have work. A session that no longer reads them may have been woken
        // for their tasks.
        let kinds = kinds.into_iter().flat_map(|of| self.routes.kinds_of(of));
        for kind in kinds {
            for &list in self.routes.path(kind) {
                self.notices.add_ready(list, 0);
            }
        }
        Ok(())
    }

    /// Removes the sets that no session has.
    pub(super) fn remove_unused_sets(&mut self) -> Result<(), Fault> {
        let mut statement = self
            .db
            .prepare_cached("SELECT DISTINCT types FROM throng_session WHERE types IS NOT NULL")?;
        let live = statement.query_map([], |row| row.get(0).map(SetId::from_number))?;
        let live = live.collect::<Result<BTreeSet<_>, _>>()?;
        drop(statement);
        let gone: Vec<_> = self
            .routes
            .sets()
            .filter(|set| !live.contains(set))
            .collect();
        self.change_routes(|routes| gone.iter().for_each(|&set| routes.remove(set)))
    }

    /// Moves tasks out of the draining lists of a set.
    pub(super) fn drain(&mut self, set: SetId) -> Result<(), Fault> {
        let mut left = MAX_DRAINED;
        while left > 0
            // The last list comes first, since its tasks are older and can be claimed sooner.
            && let Some(&list) = self.routes.draining(set).last()
        {
            let moved = self.drain_one(list, left)?;
            left -= moved.min(left);
            // If the list is empty now, this removes it from the draining lists.
            self.change_routes(|_| ())?;
            if moved == 0 && self.routes.draining(set).contains(&list) {
                // The list has only entries without a task.
                break;
            }
        }
        Ok(())
    }

    /// Moves up to `limit` tasks out of a list. Returns the number of entries that it has read.
    fn drain_one(&mut self, list: ListId, limit: usize) -> Result<usize, Fault> {
        let mut statement = self.db.prepare_cached(
            "SELECT ready.sublist, ready.place, task.id, task.kind
             FROM throng_ready AS ready LEFT JOIN throng_task AS task ON task.id = ready.id
             WHERE ready.list = ?1 ORDER BY ready.sublist, ready.place LIMIT ?2",
        )?;
        let rows = statement.query_map([list.number(), limit as i64], |row| {
            let place: (i64, i64) = (row.get(0)?, row.get(1)?);
            let kind = Kind::from_number(row.get(3)?);
            Ok((place, TaskId::from_bytes(row.get(2)?), kind))
        })?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        drop(statement);
        for &(place, id, kind) in &rows {
            if let Some(next) = self.routes.next(kind, list) {
                self.move_to(id, place, list, next)?;
            }
        }
        Ok(rows.len())
    }

    fn move_to(
        &mut self,
        id: TaskId,
        (sublist, position): (i64, i64),
        from: ListId,
        to: ListId,
    ) -> Result<(), Fault> {
        let (new_sublist, new_position) = self.place_in(id, (sublist, position), from, to)?;
        self.execute(
            "UPDATE throng_ready SET list = ?4, sublist = ?5, place = ?6
             WHERE list = ?1 AND sublist = ?2 AND place = ?3",
            params![
                from.number(),
                sublist,
                position,
                to.number(),
                new_sublist,
                new_position
            ],
        )?;
        self.execute(
            "UPDATE throng_task SET list = ?2, sublist = ?3, place = ?4 WHERE id = ?1",
            params![id.to_bytes(), to.number(), new_sublist, new_position],
        )?;
        self.remove_sublist_if_empty(from.number(), sublist)?;
        self.notices.add_ready(from, -1);
        self.notices.add_ready(to, 1);
        Ok(())
    }

    /// Returns the sublist and the position of a task that moves to another list. The group keeps its turn there, even if a task of it has
    /// been put into that list before.
    fn place_in(
        &mut self,
        id: TaskId,
        (sublist, position): (i64, i64),
        from: ListId,
        to: ListId,
    ) -> Result<(i64, i64), Fault> {
        if sublist == NO_GROUP {
            return Ok((sublist, position));
        }
        let sql = "SELECT turn FROM throng_group WHERE list = ?1 AND sublist = ?2";
        let mut statement = self.db.prepare_cached(sql)?;
        let turn =
            statement.query_row([from.number(), sublist], |row| row.get::<_, Option<i64>>(0));
        let turn = turn.optional()?.flatten();
        drop(statement);
        let new_sublist = match self.group_of(id)? {
            Some(group) => groups::sublist_of(self.db, to, &group, || turn.unwrap_or_default())?,
            None => NO_GROUP,
        };
        let sql =
            "UPDATE throng_group SET turn = ?3 WHERE list = ?1 AND sublist = ?2 AND turn > ?3";
        self.execute(sql, params![to.number(), new_sublist, turn])?;
        Ok((
            new_sublist,
            self.queue.next_tail_of(self.db, to, new_sublist)?,
        ))
    }
}
