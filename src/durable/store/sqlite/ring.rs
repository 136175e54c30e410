//! [`Ring`]: the lanes of lists, in the order in which groups are served.

use std::collections::VecDeque;

use rusqlite::{Connection, params};

use crate::durable::store::routes::ListId;

/// The number of lanes that are read at once.
const PAGE: usize = 64;

/// A lane of which a task may start.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) list: ListId,
    pub(super) number: i64,
    pub(super) group: String,
    /// The position of the last task that a claim has selected from it.
    pub(super) position: i64,
    turn: i64,
}

/// The lanes of lists, in the order in which groups are served. They are read as far as they are needed.
pub(super) struct Ring<'a> {
    db: &'a Connection,
    lists: Vec<Pages>,
}

struct Pages {
    list: ListId,
    lanes: VecDeque<Lane>,
    /// The turn and the group of the last lane that was read.
    last: (i64, String),
    is_over: bool,
}

impl<'a> Ring<'a> {
    pub(super) fn new(db: &'a Connection, lists: impl Iterator<Item = ListId>) -> Self {
        let lists = lists.map(|list| Pages {
            list,
            lanes: VecDeque::new(),
            last: (i64::MIN, String::new()),
            is_over: false,
        });
        Self {
            db,
            lists: lists.collect(),
        }
    }

    /// Returns the next lane.
    pub(super) fn next(&mut self) -> Result<Option<Lane>, rusqlite::Error> {
        for pages in &mut self.lists {
            if pages.lanes.is_empty() && !pages.is_over {
                pages.read(self.db)?;
            }
        }
        let order = |lane: &Lane| (lane.turn, lane.group.clone());
        let waiting = self
            .lists
            .iter_mut()
            .filter(|pages| !pages.lanes.is_empty());
        let first = waiting.min_by_key(|pages| pages.lanes.front().map(order));
        Ok(first.and_then(|pages| pages.lanes.pop_front()))
    }
}

impl Pages {
    fn read(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        let mut statement = db.prepare_cached(
            "SELECT lane, name, turn FROM throng_group
             WHERE list = ?1 AND turn IS NOT NULL AND (turn, name) > (?2, ?3)
             ORDER BY turn, name LIMIT ?4",
        )?;
        let (list, (turn, name)) = (self.list, &self.last);
        let params = params![list.number(), turn, name, PAGE as i64];
        let lanes = statement.query_map(params, |row| {
            Ok(Lane {
                list,
                number: row.get(0)?,
                group: row.get(1)?,
                position: i64::MIN,
                turn: row.get(2)?,
            })
        })?;
        self.lanes = lanes.collect::<Result<_, _>>()?;
        self.is_over = self.lanes.len() < PAGE;
        if let Some(last) = self.lanes.back() {
            self.last = (last.turn, last.group.clone());
        }
        Ok(())
    }
}
