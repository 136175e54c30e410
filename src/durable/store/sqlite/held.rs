//! [`Held`]: the tasks of a claim that still run.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::OptionalExtension;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use super::endpoint::EndpointId;
use super::session::Session;
use super::work::Work;
use crate::durable::TaskId;

/// The length of an id in bytes.
const ID: usize = 16;
/// The length of a task in bytes: its id, and the endpoint that has stored it.
const ENTRY: usize = ID + 8;

/// The tasks of a claim that still run, and the endpoint that has stored each.
///
/// A claim lists them in its own row, as bytes. A task that is claimed leaves the line, but its own row does not
/// change until the task ends, which halves the number of writes.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<TaskId, EndpointId>);

impl Held {
    /// The length of a task in the row of its claim, in bytes.
    pub(super) const ENTRY: usize = ENTRY;

    pub(super) fn insert(&mut self, id: TaskId, owner: EndpointId) {
        self.0.insert(id, owner);
    }

    /// Removes a task that no longer runs. Returns the endpoint that has stored it, if it did run.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<EndpointId> {
        self.0.remove(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> {
        self.0.keys().copied()
    }
}

impl ToSql for Held {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let mut bytes = Vec::with_capacity(self.0.len() * ENTRY);
        for (id, owner) in &self.0 {
            bytes.extend(id.to_bytes());
            bytes.extend(owner.to_le_bytes());
        }
        Ok(bytes.into())
    }
}

impl FromSql for Held {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let (entries, rest) = value.as_blob()?.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err(FromSqlError::InvalidType);
        }
        Ok(Self(entries.iter().map(read).collect()))
    }
}

fn read(entry: &[u8; ENTRY]) -> (TaskId, EndpointId) {
    let id = std::array::from_fn(|i| entry[i]);
    let owner = std::array::from_fn(|i| entry[ID + i]);
    (TaskId::from_bytes(id), EndpointId::from_le_bytes(owner))
}

impl Work<'_> {
    /// Returns the tasks that a claim still holds: none if there is no such claim.
    pub(super) fn held(&self, epoch: i64) -> Result<Held, rusqlite::Error> {
        let sql = "SELECT held FROM throng_claim WHERE epoch = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let held = statement.query_row([epoch], |row| row.get(0));
        Ok(held.optional()?.unwrap_or_default())
    }

    /// Records that a claim holds fewer tasks than before, as a session reports. A claim that holds none is removed.
    pub(super) fn keep_held(
        &self,
        session: &Session,
        epoch: i64,
        held: &Held,
    ) -> Result<(), rusqlite::Error> {
        match held.is_empty() {
            true => self.execute("DELETE FROM throng_claim WHERE epoch = ?1", [epoch])?,
            false => {
                let sql = "UPDATE throng_claim
                     SET held = ?2, delivered = max(delivered, session = ?3) WHERE epoch = ?1";
                self.execute(sql, rusqlite::params![epoch, held, session.id])?
            }
        };
        Ok(())
    }

    /// Returns the claims that hold these tasks.
    pub(super) fn holders(
        &self,
        ids: &BTreeSet<TaskId>,
    ) -> Result<Vec<(TaskId, i64)>, rusqlite::Error> {
        let sql = "SELECT epoch, held FROM throng_claim";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut claims = statement.query([])?;
        let mut holders = Vec::new();
        while let Some(claim) = claims.next()? {
            let epoch: i64 = claim.get(0)?;
            let held: Held = claim.get(1)?;
            let found = held.ids().filter(|id| ids.contains(id));
            holders.extend(found.map(|id| (id, epoch)));
        }
        Ok(holders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_read_as_it_was_written() {
        let mut held = Held::default();
        for (number, owner) in [(7, i64::MIN), (3, -1), (5, i64::MAX)] {
            held.insert(TaskId::from_bytes([number; 16]), owner);
        }
        let Ok(ToSqlOutput::Owned(bytes)) = held.to_sql() else {
            panic!("it is written as bytes");
        };
        let mut read = Held::column_result((&bytes).into()).expect("it was written here");
        let ids: Vec<_> = read.ids().map(|id| id.to_bytes()[0]).collect();
        assert_eq!(ids, [3, 5, 7]);
        assert_eq!(read.remove(TaskId::from_bytes([7; 16])), Some(i64::MIN));
        assert_eq!(read.remove(TaskId::from_bytes([7; 16])), None);
    }

    #[test]
    fn half_an_entry_is_refused() {
        let bytes = [0; ENTRY + 1];
        assert!(Held::column_result(ValueRef::Blob(&bytes)).is_err());
    }
}
