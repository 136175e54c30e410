//! [`GroupChanges`]: the changes of groups by a request, until they are settled.

use std::collections::BTreeSet;

use tokio_postgres::Row;

use super::error::Fault;
use super::text;
use crate::durable::queue::name::QueueName;

/// The changes of groups by a request, until they are settled.
#[derive(Debug, Default)]
pub(super) struct GroupChanges {
    /// The groups that have gained or lost tasks, permits or holds.
    pub(super) touched: BTreeSet<StoredGroup>,
    /// The tasks of groups that wait from now on.
    pub(super) arrivals: Vec<Arrival>,
}

/// A group as the tables identify it: by the name of its queue, and its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StoredGroup {
    pub(super) queue: String,
    pub(super) name: String,
}

/// A task of a group that waits from now on.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) group: StoredGroup,
    pub(super) kind: i64,
    pub(super) priority: i16,
    /// The name of its type.
    pub(super) name: String,
}

impl StoredGroup {
    pub(super) fn new(queue: &QueueName, name: String) -> Self {
        let queue = text::stored(queue.as_str()).into_owned();
        Self { queue, name }
    }

    /// Reads the columns `queue` and `name`.
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            queue: row.try_get("queue")?,
            name: row.try_get("name")?,
        })
    }

    pub(super) fn queue(&self) -> QueueName {
        QueueName::from(Some(text::loaded(self.queue.clone())))
    }
}

impl GroupChanges {
    pub(super) fn touch(&mut self, group: StoredGroup) {
        self.touched.insert(group);
    }

    /// Returns the lines in which tasks wait from now on, as arrays with one element for each.
    pub(super) fn lines(&self) -> (Vec<i64>, Vec<&str>, Vec<&str>, Vec<i16>) {
        let arrivals = self.arrivals.iter();
        let lines = arrivals.map(|it| (it.kind, &*it.group.name, &*it.group.queue, it.priority));
        let lines: BTreeSet<_> = lines.collect();
        lines.into_iter().collect()
    }
}
