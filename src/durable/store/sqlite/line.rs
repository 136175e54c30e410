//! The line: the tasks that wait for a worker, in the order in which they are to run.

use rusqlite::params;

use super::error::Fault;
use super::state::State;
use super::work::Work;
use crate::durable::TaskId;

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
        self.put(id, place, from)
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
            self.put(id, place, State::Running)?;
        }
        Ok(())
    }

    fn put(&mut self, id: TaskId, place: i64, from: State) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_task SET state = 0, place = ?2, at = NULL WHERE id = ?1",
            params![id.to_bytes(), place],
        )?;
        self.execute(STAND, params![place, id.to_bytes()])?;
        self.leave(from);
        self.enter(State::Waiting);
        Ok(())
    }

    /// A task goes out of the line before its turn.
    pub(super) fn step_out(&self, place: i64) -> Result<(), rusqlite::Error> {
        self.execute("DELETE FROM throng_line WHERE place = ?1", [place])?;
        Ok(())
    }

    /// Those who have these places, in this order, leave the line.
    pub(super) fn go(&self, places: &[i64]) -> Result<(), rusqlite::Error> {
        let sql = "DELETE FROM throng_line WHERE place BETWEEN ?1 AND ?2";
        for together in places.chunk_by(|&one, &next| one + 1 == next) {
            self.execute(sql, [together.first(), together.last()])?;
        }
        Ok(())
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
        let head = self.number("SELECT place FROM throng_line ORDER BY place LIMIT 1", [])?;
        let tail = self.number(
            "SELECT place FROM throng_line ORDER BY place DESC LIMIT 1",
            [],
        )?;
        Ok(Line {
            head: head.unwrap_or(0),
            tail: tail.unwrap_or(-1),
        })
    }
}

/// Has a task stand in line.
pub(super) const STAND: &str = "INSERT INTO throng_line (place, id) VALUES (?1, ?2)";
