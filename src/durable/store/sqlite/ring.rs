//! [`Ring`]: the sublists of some lists, in the order in which their groups are served. [`Groups`]: the limits of the groups of a queue.

use std::collections::VecDeque;

use rusqlite::{Connection, params};

use super::groups::{self, TaskGroup};
use super::queues::QueueRow;
use super::transaction::Transaction;
use crate::durable::queue::name::QueueName;
use crate::durable::store::routes::ListId;

/// The number of sublists that are read at once.
const PAGE: usize = 64;

/// The groups of a queue.
pub(super) struct Groups<'a> {
    queue: &'a QueueName,
    pub(super) quantum: usize,
}

impl<'a> Groups<'a> {
    /// Returns the groups of a named queue.
    pub(super) fn of(
        tx: &Transaction<'_>,
        queue: &'a QueueName,
    ) -> Result<Option<Self>, rusqlite::Error> {
        if queue.is_default() {
            return Ok(None);
        }
        let settings = QueueRow::load(tx.db, queue)?.settings;
        let quantum = settings.groups.quantum as usize;
        Ok(Some(Self { queue, quantum }))
    }

    pub(super) fn permits(
        &self,
        tx: &Transaction<'_>,
        group: &str,
    ) -> Result<usize, rusqlite::Error> {
        let group = TaskGroup {
            queue: self.queue.as_str().to_owned(),
            name: group.to_owned(),
        };
        groups::permits(tx.db, &group)
    }
}

/// A sublist of which a task may start.
#[derive(Clone, Debug)]
pub(super) struct Sublist {
    pub(super) list: ListId,
    pub(super) number: i64,
    pub(super) group: String,
    /// The position of the last task that a claim has selected from it.
    pub(super) position: i64,
    turn: i64,
}

/// The sublists of lists, in the order in which groups are served. They are read as far as they are needed.
pub(super) struct Ring<'a> {
    db: &'a Connection,
    lists: Vec<Pages>,
}

struct Pages {
    list: ListId,
    sublists: VecDeque<Sublist>,
    /// The turn and the group of the last sublist that was read.
    last: (i64, String),
    is_over: bool,
}

impl<'a> Ring<'a> {
    pub(super) fn new(db: &'a Connection, lists: impl Iterator<Item = ListId>) -> Self {
        let lists = lists.map(|list| Pages {
            list,
            sublists: VecDeque::new(),
            last: (i64::MIN, String::new()),
            is_over: false,
        });
        Self {
            db,
            lists: lists.collect(),
        }
    }

    /// Returns the next sublist.
    pub(super) fn next(&mut self) -> Result<Option<Sublist>, rusqlite::Error> {
        for pages in &mut self.lists {
            if pages.sublists.is_empty() && !pages.is_over {
                pages.read(self.db)?;
            }
        }
        let order = |sublist: &Sublist| (sublist.turn, sublist.group.clone());
        let waiting = self
            .lists
            .iter_mut()
            .filter(|pages| !pages.sublists.is_empty());
        let first = waiting.min_by_key(|pages| pages.sublists.front().map(order));
        Ok(first.and_then(|pages| pages.sublists.pop_front()))
    }
}

impl Pages {
    fn read(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        let mut statement = db.prepare_cached(
            "SELECT sublist, name, turn FROM throng_group
             WHERE list = ?1 AND turn IS NOT NULL AND (turn, name) > (?2, ?3)
             ORDER BY turn, name LIMIT ?4",
        )?;
        let (list, (turn, name)) = (self.list, &self.last);
        let params = params![list.number(), turn, name, PAGE as i64];
        let sublists = statement.query_map(params, |row| {
            Ok(Sublist {
                list,
                number: row.get(0)?,
                group: row.get(1)?,
                position: i64::MIN,
                turn: row.get(2)?,
            })
        })?;
        self.sublists = sublists.collect::<Result<_, _>>()?;
        self.is_over = self.sublists.len() < PAGE;
        if let Some(last) = self.sublists.back() {
            self.last = (last.turn, last.group.clone());
        }
        Ok(())
    }
}
