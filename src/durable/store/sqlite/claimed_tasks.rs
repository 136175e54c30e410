//! [`ClaimedTasks`]: the tasks that a claim still holds.

use std::collections::BTreeMap;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use super::endpoint::EndpointId;
use crate::durable::TaskId;

/// The length of an id, in bytes.
const ID_LEN: usize = 16;
/// The length of an entry, in bytes: the id of a task, and the endpoint that has stored it.
const ENTRY_LEN: usize = ID_LEN + 8;

/// The tasks that a claim still holds, with the endpoint that has stored each.
///
/// They are in the column `held` of the claim, as bytes. When a task is claimed, it is removed from `throng_ready`, but
/// its own row does not change until the task ends. This halves the number of writes.
#[derive(Debug, Default)]
pub(super) struct ClaimedTasks(BTreeMap<TaskId, EndpointId>);

impl ClaimedTasks {
    /// The length of a task in the row of its claim, in bytes.
    pub(super) const ENTRY_LEN: usize = ENTRY_LEN;

    pub(super) fn insert(&mut self, id: TaskId, producer: EndpointId) {
        self.0.insert(id, producer);
    }

    /// Removes a task. Returns the endpoint that has stored it, or `None` if the claim does not hold it.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<EndpointId> {
        self.0.remove(&id)
    }

    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> {
        self.0.keys().copied()
    }
}

impl ToSql for ClaimedTasks {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let mut bytes = Vec::with_capacity(self.0.len() * ENTRY_LEN);
        for (id, producer) in &self.0 {
            bytes.extend(id.to_bytes());
            bytes.extend(producer.to_le_bytes());
        }
        Ok(bytes.into())
    }
}

impl FromSql for ClaimedTasks {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let (entries, rest) = value.as_blob()?.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(FromSqlError::InvalidType);
        }
        Ok(Self(entries.iter().map(decode).collect()))
    }
}

fn decode(entry: &[u8; ENTRY_LEN]) -> (TaskId, EndpointId) {
    let id = std::array::from_fn(|i| entry[i]);
    let producer = std::array::from_fn(|i| entry[ID_LEN + i]);
    (TaskId::from_bytes(id), EndpointId::from_le_bytes(producer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_as_they_were_written() {
        let mut tasks = ClaimedTasks::default();
        for (number, producer) in [(7, i64::MIN), (3, -1), (5, i64::MAX)] {
            tasks.insert(TaskId::from_bytes([number; 16]), producer);
        }
        let Ok(ToSqlOutput::Owned(bytes)) = tasks.to_sql() else {
            panic!("tasks are written as bytes");
        };
        let mut read = ClaimedTasks::column_result((&bytes).into()).expect("the bytes are valid");
        let ids: Vec<_> = read.ids().map(|id| id.to_bytes()[0]).collect();
        assert_eq!(ids, [3, 5, 7]);
        assert_eq!(read.remove(TaskId::from_bytes([7; 16])), Some(i64::MIN));
        assert_eq!(read.remove(TaskId::from_bytes([7; 16])), None);
    }

    #[test]
    fn an_incomplete_entry_is_rejected() {
        let bytes = [0; ENTRY_LEN + 1];
        assert!(ClaimedTasks::column_result(ValueRef::Blob(&bytes)).is_err());
    }
}
