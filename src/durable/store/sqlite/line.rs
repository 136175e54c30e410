//! The line: the tasks that wait for a worker, in lists, in the order in which they are to run.

use rusqlite::params;

use super::error::Fault;
use super::state::State;
use super::work::Work;
use crate::durable::TaskId;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::ListId;

/// The places that were given out last, at both ends of the line.
#[derive(Clone, Copy)]
pub(super) struct Line {
    head: i64,
    tail: i64,
}

impl Work<'_> {
    /// A task goes to the end of the line.
    pub(super) fn put_last(&mut self, id: TaskId, from: State) -> Result<(), Fault> {
        let place = self.next_tail()?;
        let list = self.routes.entrance(self.kind(id)?);
        self.put(id, list, place, from)
    }

    /// Running tasks go before those that wait, in the order of their ids; this is added to what
    /// counts against them.
    pub(super) fn put_first(
        &mut self,
        mut ids: Vec<TaskId>,
        lost: i64,
        crashes: i64,
    ) -> Result<(), Fault> {
        ids.sort_unstable();
        for id in ids.into_iter().rev() {
            self.execute(
                "UPDATE throng_task SET lost = lost + ?2, crashes = crashes + ?3 WHERE id = ?1",
                params![id.to_bytes(), lost, crashes],
            )?;
            let place = self.next_head()?;
            let list = self.routes.leaf(self.kind(id)?);
            self.put(id, list, place, State::Running)?;
        }
        Ok(())
    }

    fn put(&mut self, id: TaskId, list: ListId, place: i64, from: State) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_task SET state = 0, list = ?2, place = ?3, at = NULL WHERE id = ?1",
            params![id.to_bytes(), list.number(), place],
        )?;
        self.execute(STAND, params![list.number(), place, id.to_bytes()])?;
        self.leave(from);
        self.enter(State::Waiting);
        self.notes.come(list, 1);
        Ok(())
    }

    fn kind(&self, id: TaskId) -> Result<Kind, rusqlite::Error> {
        let mut statement = self
            .db
            .prepare_cached("SELECT kind FROM throng_task WHERE id = ?1")?;
        statement.query_row([id.to_bytes()], |row| row.get(0).map(Kind::from_number))
    }

    /// A task goes out of the line before its turn.
    pub(super) fn step_out(&self, list: Option<i64>, place: i64) -> Result<(), rusqlite::Error> {
        let sql = "DELETE FROM throng_ready WHERE list = ?1 AND place = ?2";
        self.execute(sql, params![list, place])?;
        Ok(())
    }

    /// Removes the tasks at these places, in rising order, from a list.
    pub(super) fn go(&mut self, list: ListId, places: &[i64]) -> Result<(), rusqlite::Error> {
        let sql = "DELETE FROM throng_ready WHERE list = ?1 AND place BETWEEN ?2 AND ?3";
        for together in places.chunk_by(|&one, &next| one + 1 == next) {
            let ends = (together.first(), together.last());
            self.execute(sql, params![list.number(), ends.0, ends.1])?;
        }
        self.notes.come(list, -(places.len() as i64));
        Ok(())
    }

    /// Has a session look at the lists of a set, since tasks may be left there.
    pub(super) fn look_at_lists_of(&mut self, set: Option<SetId>) {
        for list in set.map(|set| self.routes.reads(set)).unwrap_or_default() {
            self.notes.come(list, 0);
        }
    }

    /// The next place behind those that wait.
    pub(super) fn next_tail(&mut self) -> Result<i64, rusqlite::Error> {
        let line = self.line()?;
        line.tail += 1;
        Ok(line.tail)
    }

    fn next_head(&mut self) -> Result<i64, rusqlite::Error> {
        let line = self.line()?;
        line.head -= 1;
        Ok(line.head)
    }

    fn line(&mut self) -> Result<&mut Line, rusqlite::Error> {
        let line = match self.line {
            Some(line) => line,
            None => self.ends_of_line()?,
        };
        Ok(self.line.insert(line))
    }

    fn ends_of_line(&self) -> Result<Line, rusqlite::Error> {
        let (mut head, mut tail) = (None::<i64>, None::<i64>);
        let mut lists = self.db.prepare_cached(ENDS)?;
        let mut lists = lists.query([])?;
        while let Some(row) = lists.next()? {
            let (first, last) = (row.get(0)?, row.get(1)?);
            head = Some(head.map_or(first, |head| head.min(first)));
            tail = Some(tail.map_or(last, |tail| tail.max(last)));
        }
        Ok(Line {
            head: head.unwrap_or(0),
            tail: tail.unwrap_or(-1),
        })
    }
}

/// Has a task stand in line.
pub(super) const STAND: &str = "INSERT INTO throng_ready (list, place, id) VALUES (?1, ?2, ?3)";

/// The lists in which tasks wait. This takes a seek for each list, however long it is.
pub(super) const LISTS: &str = "
    WITH RECURSIVE lists(list) AS (
        SELECT min(list) FROM throng_ready
        UNION ALL
        SELECT (SELECT min(list) FROM throng_ready WHERE list > lists.list)
        FROM lists WHERE lists.list IS NOT NULL
    )
    SELECT list FROM lists WHERE list IS NOT NULL";

/// The first and the last place of each list. This takes some seeks for each list, however long it is.
const ENDS: &str = "
    WITH RECURSIVE lists(list) AS (
        SELECT min(list) FROM throng_ready
        UNION ALL
        SELECT (SELECT min(list) FROM throng_ready WHERE list > lists.list)
        FROM lists WHERE lists.list IS NOT NULL
    )
    SELECT (SELECT min(place) FROM throng_ready WHERE list = lists.list),
        (SELECT max(place) FROM throng_ready WHERE list = lists.list)
    FROM lists WHERE list IS NOT NULL";
