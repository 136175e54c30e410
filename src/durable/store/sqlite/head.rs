//! Reads the tasks at the head of a queue.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::Fault;
use super::list::info;
use super::queues::queue_column;
use super::reader::ReadConnection;
use super::ready_queue::{self, NO_GROUP};
use super::time::Now;
use crate::durable::queue::name::QueueName;
use crate::durable::store::MAX_HEAD_LISTS;
use crate::durable::store::routes::ListId;
use crate::durable::{QueueHead, Status, TaskId, TaskInfo};

/// Selects the first task after a position in a sublist.
pub(super) const NEXT: &str = "
    SELECT ready.place, ready.id, name, queue, group_name, failures, crashes, ready_at
    FROM throng_ready AS ready CROSS JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?1 AND ready.sublist = ?2 AND ready.place > ?3 ORDER BY ready.place LIMIT 1";

/// Selects the first groups of a list that may be served.
pub(super) const SERVED: &str = "
    SELECT sublist FROM throng_group WHERE list = ?1 AND turn IS NOT NULL ORDER BY turn, name LIMIT ?2";

/// Selects groups of a list that are full or held. They are only read if the list has few other groups.
pub(super) const BLOCKED: &str =
    "SELECT sublist FROM throng_group WHERE list = ?1 AND turn IS NULL LIMIT ?2";

/// The first task of a list or a sublist that was not returned yet. The task that became ready first compares as the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FirstTask {
    ready_at: i64,
    id: TaskId,
    list: ListId,
    sublist: i64,
    place: i64,
}

/// Returns the tasks of a queue that became ready first, among those at the heads of its lists.
pub(super) fn head(
    reader: &ReadConnection,
    queue: &QueueName,
    limit: usize,
) -> Result<QueueHead, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let reading = Reading { db, now, queue };
        let tasks = reading.head(limit)?;
        Ok(QueueHead::at(now.wall.max(0) as u64, tasks))
    })
}

struct Reading<'a> {
    db: &'a Connection,
    now: Now,
    queue: &'a QueueName,
}

impl Reading<'_> {
    fn head(&self, limit: usize) -> Result<Vec<TaskInfo>, rusqlite::Error> {
        let mut heads = BTreeMap::new();
        let mut taken = Vec::new();
        for list in ready_queue::lists(self.db)?
            .into_iter()
            .take(MAX_HEAD_LISTS)
        {
            for sublist in self.sublists(list, limit)? {
                match self.next(list, sublist, i64::MIN)? {
                    Some((head, info)) => drop(heads.insert(head, info)),
                    // All tasks of a list are in one queue.
                    None if sublist != NO_GROUP => break,
                    None => {}
                }
            }
        }
        while taken.len() < limit
            && let Some((head, info)) = heads.pop_first()
        {
            taken.push(info);
            heads.extend(self.next(head.list, head.sublist, head.place)?);
        }
        Ok(taken)
    }

    /// Returns the sublists of a list whose first tasks are read: the tasks without a group, and the first groups.
    fn sublists(&self, list: ListId, limit: usize) -> Result<Vec<i64>, rusqlite::Error> {
        let mut sublists = vec![NO_GROUP];
        for sql in [SERVED, BLOCKED] {
            let left = 1 + limit - sublists.len();
            let mut statement = self.db.prepare_cached(sql)?;
            let found =
                statement.query_map(params![list.number(), left as i64], |row| row.get(0))?;
            for sublist in found {
                sublists.push(sublist?);
            }
        }
        Ok(sublists)
    }

    /// Returns the first task after a position in a sublist, unless it is in another queue.
    fn next(
        &self,
        list: ListId,
        sublist: i64,
        place: i64,
    ) -> Result<Option<(FirstTask, TaskInfo)>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(NEXT)?;
        let params = params![list.number(), sublist, place];
        let found = statement.query_row(params, |row| self.task(row, list, sublist));
        let found = found.optional()?;
        let queue = queue_column(self.queue);
        Ok(found.filter(|(_, info)| info.queue.as_deref() == queue))
    }

    fn task(
        &self,
        row: &Row<'_>,
        list: ListId,
        sublist: i64,
    ) -> Result<(FirstTask, TaskInfo), rusqlite::Error> {
        let id = TaskId::from_bytes(row.get(1)?);
        let ready_at: Option<i64> = row.get(7)?;
        let mut info = info(Status::Waiting, id, row, 2)?;
        info.ready_for = ready_at.map(|at| self.now.since(at));
        let head = FirstTask {
            ready_at: ready_at.unwrap_or_default(),
            id,
            list,
            sublist,
            place: row.get(0)?,
        };
        Ok((head, info))
    }
}
