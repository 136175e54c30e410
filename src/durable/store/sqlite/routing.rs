//! The lists of waiting tasks, and their changes.
//!
//! [`Routes`] are one value in `throng_meta`. Every transaction needs them, and they rarely change, so
//! each process caches the value that it has read last, with its version.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::error::Fault;
use super::work::Work;
use crate::durable::TaskId;
use crate::durable::failure::Cause;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::{ListId, Routes};
use crate::sync::{Mutex, lock};

/// The maximum number of tasks that a turn moves out of draining lists.
const MAX_DRAINED: usize = 256;

/// The routes that were read last.
#[derive(Default)]
pub(super) struct RouteCache(Mutex<Option<(i64, Arc<Routes>)>>);

impl RouteCache {
    /// The routes that a transaction sees.
    pub(super) fn load(&self, db: &Connection) -> Result<Arc<Routes>, Fault> {
        let mut statement = db.prepare_cached("SELECT routes_version FROM throng_meta")?;
        let version = statement.query_row([], |row| row.get(0))?;
        if let Some((known, routes)) = &*lock(&self.0)
            && *known == version
        {
            return Ok(Arc::clone(routes));
        }
        let routes = Arc::new(read(db)?);
        *lock(&self.0) = Some((version, Arc::clone(&routes)));
        Ok(routes)
    }
}

fn read(db: &Connection) -> Result<Routes, Fault> {
    let mut statement = db.prepare_cached("SELECT routes FROM throng_meta")?;
    let text = statement.query_row([], |row| row.get::<_, Option<String>>(0))?;
    let Some(text) = text else {
        return Ok(Routes::default());
    };
    serde_json::from_str(&text).map_err(|_| Fault::Refused(Cause::Corrupt))
}

/// Returns `true` if no task waits in a list.
fn is_empty(db: &Connection, list: ListId) -> Result<bool, rusqlite::Error> {
    let mut statement =
        db.prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM throng_ready WHERE list = ?1)")?;
    statement.query_row([list.number()], |row| row.get(0))
}

impl Work<'_> {
    /// Changes the routes, and removes lists from them that are empty.
    pub(super) fn change_routes(&mut self, change: impl FnOnce(&mut Routes)) -> Result<(), Fault> {
        let mut routes = Routes::clone(&self.routes);
        change(&mut routes);
        let mut empty = BTreeSet::new();
        for list in routes.collapsible() {
            if is_empty(self.db, list)? {
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

    /// Removes the sets of which no session is left.
    pub(super) fn forget_sets(&mut self) -> Result<(), Fault> {
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

    /// Moves tasks on that wait in lists which drain, as far as they concern a set.
    pub(super) fn drain(&mut self, set: SetId) -> Result<(), Fault> {
        let mut left = MAX_DRAINED;
        while left > 0
            // The last one comes first, since its tasks are older and can be claimed sooner.
            && let Some(&list) = self.routes.draining(set).last()
        {
            let moved = self.drain_one(list, left)?;
            left -= moved.min(left);
            // If the list is empty now, it drains no longer.
            self.change_routes(|_| ())?;
            if moved == 0 && self.routes.draining(set).contains(&list) {
                // The list has only places without a task.
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of moved tasks.
    fn drain_one(&mut self, list: ListId, most: usize) -> Result<usize, Fault> {
        let mut statement = self.db.prepare_cached(
            "SELECT ready.place, task.id, task.kind
             FROM throng_ready AS ready LEFT JOIN throng_task AS task ON task.id = ready.id
             WHERE ready.list = ?1 ORDER BY ready.place LIMIT ?2",
        )?;
        let rows = statement.query_map([list.number(), most as i64], |row| {
            let kind = Kind::from_number(row.get(2)?);
            Ok((row.get::<_, i64>(0)?, TaskId::from_bytes(row.get(1)?), kind))
        })?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        for &(place, id, kind) in &rows {
            if let Some(next) = self.routes.next(kind, list) {
                self.move_on(id, place, list, next)?;
            }
        }
        Ok(rows.len())
    }

    fn move_on(&mut self, id: TaskId, place: i64, from: ListId, to: ListId) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_ready SET list = ?3 WHERE list = ?1 AND place = ?2",
            params![from.number(), place, to.number()],
        )?;
        self.execute(
            "UPDATE throng_task SET list = ?2 WHERE id = ?1",
            params![id.to_bytes(), to.number()],
        )?;
        self.notes.come(from, -1);
        self.notes.come(to, 1);
        Ok(())
    }

    /// Returns the sessions to wake for the lists that this transaction has changed: for each list, a number
    /// of sessions and the sets from which they may be chosen.
    pub(super) fn wakes(&self) -> Result<Vec<(usize, Vec<SetId>)>, rusqlite::Error> {
        let mut wakes = Vec::new();
        for (list, more) in self.notes.lists() {
            let readers: Vec<_> = self.routes.readers(list).collect();
            if !readers.is_empty() && !is_empty(self.db, list)? {
                wakes.push((more, readers));
            }
        }
        Ok(wakes)
    }
}
