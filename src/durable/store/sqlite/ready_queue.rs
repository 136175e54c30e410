//! [`ReadyQueue`]: the tasks that wait for a worker, in lists, in the order in which they are to run.

use rusqlite::{Connection, OptionalExtension, params};

use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;
use crate::durable::store::routes::ListId;

/// The sublist of tasks without a group: see `groups.rs`.
pub(super) const NO_GROUP: i64 = 0;

/// Issues positions at both ends of the queue. Positions rise over all lists. Those in the sublist of a group rise in that sublist only.
#[derive(Default)]
pub(super) struct ReadyQueue(Option<Ends>);

/// The positions that were issued last.
#[derive(Clone, Copy)]
struct Ends {
    head: i64,
    tail: i64,
}

impl ReadyQueue {
    /// Issues the position behind all waiting tasks.
    pub(super) fn next_tail(&mut self, db: &Connection) -> Result<i64, rusqlite::Error> {
        let ends = self.ends(db)?;
        ends.tail += 1;
        Ok(ends.tail)
    }

    /// Issues the position before all waiting tasks.
    pub(super) fn next_head(&mut self, db: &Connection) -> Result<i64, rusqlite::Error> {
        let ends = self.ends(db)?;
        ends.head -= 1;
        Ok(ends.head)
    }

    /// Issues the position behind all tasks of a sublist.
    pub(super) fn next_tail_of(
        &mut self,
        db: &Connection,
        list: ListId,
        sublist: i64,
    ) -> Result<i64, rusqlite::Error> {
        match sublist {
            NO_GROUP => self.next_tail(db),
            sublist => end_of(db, "SELECT max(place) + 1", list, sublist),
        }
    }

    /// Issues the position before all tasks of a sublist.
    pub(super) fn next_head_of(
        &mut self,
        db: &Connection,
        list: ListId,
        sublist: i64,
    ) -> Result<i64, rusqlite::Error> {
        match sublist {
            NO_GROUP => self.next_head(db),
            sublist => end_of(db, "SELECT min(place) - 1", list, sublist),
        }
    }

    fn ends(&mut self, db: &Connection) -> Result<&mut Ends, rusqlite::Error> {
        let ends = match self.0 {
            Some(ends) => ends,
            None => read_ends(db)?,
        };
        Ok(self.0.insert(ends))
    }
}

/// Returns the position that a query selects in a sublist, or zero in an empty sublist.
fn end_of(
    db: &Connection,
    select: &str,
    list: ListId,
    sublist: i64,
) -> Result<i64, rusqlite::Error> {
    let sql = format!("{select} FROM throng_ready WHERE list = ?1 AND sublist = ?2");
    let mut statement = db.prepare_cached(&sql)?;
    let position: Option<i64> = statement.query_row([list.number(), sublist], |row| row.get(0))?;
    Ok(position.unwrap_or_default())
}

fn read_ends(db: &Connection) -> Result<Ends, rusqlite::Error> {
    let (mut head, mut tail) = (None::<i64>, None::<i64>);
    let mut lists = db.prepare_cached(ENDS)?;
    let mut lists = lists.query([])?;
    while let Some(row) = lists.next()? {
        let (Some(first), Some(last)) = (row.get(0)?, row.get(1)?) else {
            // It has only tasks of groups.
            continue;
        };
        head = Some(head.map_or(first, |head| head.min(first)));
        tail = Some(tail.map_or(last, |tail| tail.max(last)));
    }
    Ok(Ends {
        head: head.unwrap_or(0),
        tail: tail.unwrap_or(-1),
    })
}

/// Inserts a task into a list.
pub(super) fn insert(
    db: &Connection,
    list: ListId,
    sublist: i64,
    position: i64,
    id: TaskId,
) -> Result<(), rusqlite::Error> {
    let params = params![list.number(), sublist, position, id.to_bytes()];
    db.prepare_cached(INSERT)?.execute(params).map(drop)
}

/// Removes the task at a position from a list, if it is in one.
pub(super) fn remove(
    db: &Connection,
    list: Option<i64>,
    sublist: i64,
    position: i64,
) -> Result<(), rusqlite::Error> {
    let sql = "DELETE FROM throng_ready WHERE list = ?1 AND sublist = ?2 AND place = ?3";
    let params = params![list, sublist, position];
    db.prepare_cached(sql)?.execute(params).map(drop)
}

/// Removes the tasks at these positions, which rise, from a list.
pub(super) fn remove_all(
    db: &Connection,
    list: ListId,
    sublist: i64,
    positions: &[i64],
) -> Result<(), rusqlite::Error> {
    let sql =
        "DELETE FROM throng_ready WHERE list = ?1 AND sublist = ?2 AND place BETWEEN ?3 AND ?4";
    let mut statement = db.prepare_cached(sql)?;
    for run in positions.chunk_by(|&one, &next| one + 1 == next) {
        statement.execute(params![list.number(), sublist, run.first(), run.last()])?;
    }
    Ok(())
}

/// Returns `true` if no task waits in a list.
pub(super) fn is_empty(db: &Connection, list: ListId) -> Result<bool, rusqlite::Error> {
    let mut statement =
        db.prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM throng_ready WHERE list = ?1)")?;
    statement.query_row([list.number()], |row| row.get(0))
}

/// Returns the lists in which tasks wait.
pub(super) fn lists(db: &Connection) -> Result<Vec<ListId>, rusqlite::Error> {
    let mut statement = db.prepare_cached(LISTS)?;
    let lists = statement.query_map([], |row| row.get(0).map(ListId::from_number))?;
    lists.collect()
}

/// Returns the number of tasks in a list.
pub(super) fn count(db: &Connection, list: ListId) -> Result<u64, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT count(*) FROM throng_ready WHERE list = ?1")?;
    statement.query_row([list.number()], |row| {
        row.get::<_, i64>(0).map(|count| count as u64)
    })
}

/// Returns the queue of the tasks in a list, or `None` if the list is empty. All tasks of a list are in one queue.
pub(super) fn queue_of(
    db: &Connection,
    list: ListId,
) -> Result<Option<QueueName>, rusqlite::Error> {
    let mut statement = db.prepare_cached(QUEUE)?;
    let queue = statement.query_row([list.number()], |row| {
        Ok(QueueName::from(row.get::<_, Option<String>>(0)?))
    });
    queue.optional()
}

/// Selects the queue of the first task of a list.
pub(super) const QUEUE: &str = "
    SELECT queue FROM throng_ready AS ready
    CROSS JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?1 ORDER BY ready.sublist, ready.place LIMIT 1";

/// Inserts a task into a list: the parameters are the list, the sublist, the position and the id.
pub(super) const INSERT: &str =
    "INSERT INTO throng_ready (list, sublist, place, id) VALUES (?1, ?2, ?3, ?4)";

/// The lists in which tasks wait. This takes one seek for each list, however long the list is.
const LISTS: &str = "
    WITH RECURSIVE lists(list) AS (
        SELECT min(list) FROM throng_ready
        UNION ALL
        SELECT (SELECT min(list) FROM throng_ready WHERE list > lists.list)
        FROM lists WHERE lists.list IS NOT NULL
    )
    SELECT list FROM lists WHERE list IS NOT NULL";

/// The first and the last position of a task without a group in each list. This takes a few seeks for each list, however long the list is.
const ENDS: &str = "
    WITH RECURSIVE lists(list) AS (
        SELECT min(list) FROM throng_ready
        UNION ALL
        SELECT (SELECT min(list) FROM throng_ready WHERE list > lists.list)
        FROM lists WHERE lists.list IS NOT NULL
    )
    SELECT (SELECT min(place) FROM throng_ready WHERE list = lists.list AND sublist = 0),
        (SELECT max(place) FROM throng_ready WHERE list = lists.list AND sublist = 0)
    FROM lists WHERE list IS NOT NULL";
