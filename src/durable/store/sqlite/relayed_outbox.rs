//! [`SqliteOutbox`]: an outbox in a SQLite database without a store.
//!
//! Only the removal of rows locks the file, and no request waits for a store while it holds the lock: the file belongs to a program that
//! must be able to write. So two relays may take the same rows. The second one stores tasks whose ids are known, which changes nothing, and
//! finds the rows removed.

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior,
};

use super::error::Fault;
use super::files::{Identity, OPENING, checked, identity};
use super::outbox::{
    KNOWN, LOOK_INTERVAL, MAX_BYTES, NEXT, OutboxTableRow, contains, count_newer, next_rows,
};
use super::schema;
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::{OutboxLook, RelayedAnswer, RelayedOutbox, TakenRow, TakenRows};
use crate::sync::lock;

const ROW: &str = "SELECT rowid, id, substr(body, 1, ?2) FROM throng_outbox WHERE rowid = ?1";

/// An outbox in a SQLite database without a store.
pub(crate) struct SqliteOutbox {
    path: PathBuf,
    /// `None` while a request runs. So a request that fails closes the connection.
    file: Option<OutboxFile>,
}

/// An open database.
struct OutboxFile {
    db: Connection,
    identity: Identity,
    /// SQLite's number of the state of the file when the outbox last had no rows to move. It changes with each commit of another
    /// connection.
    empty_at: Option<i64>,
    /// The same, when it last had no rows of later versions.
    none_newer_at: Option<i64>,
}

impl SqliteOutbox {
    /// Returns the outbox in the file at `path`.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let name = Self::name(path);
        Ok(Self {
            path: checked(path, &name)?,
            file: None,
        })
    }

    /// Returns the name of the outbox for messages.
    pub(crate) fn name(path: &Path) -> Arc<str> {
        path.to_string_lossy().into()
    }

    /// Makes a request. Opens the file first, unless it is open and has not been replaced.
    fn ask<'a, T: 'a>(
        &mut self,
        request: impl FnOnce(&mut OutboxFile) -> Result<T, Fault>,
    ) -> RelayedAnswer<'a, T> {
        let answer = self.try_ask(request).map_err(Fault::explained);
        Box::pin(ready(answer.map_err(Fault::without_effect)))
    }

    fn try_ask<T>(
        &mut self,
        request: impl FnOnce(&mut OutboxFile) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let file = self.file.take();
        let file = file.filter(|file| identity(&self.path) == Some(file.identity));
        let mut file = file.map_or_else(|| OutboxFile::open(&self.path), Ok)?;
        let answer = request(&mut file)?;
        self.file = Some(file);
        Ok(answer)
    }
}

impl RelayedOutbox for SqliteOutbox {
    fn open(&mut self) -> RelayedAnswer<'_, ()> {
        self.ask(|file| {
            file.examine()?;
            // This fails if the file cannot be written.
            Ok(begin(&file.db)?.rollback()?)
        })
    }

    fn look(&mut self) -> RelayedAnswer<'_, OutboxLook> {
        self.ask(|file| {
            Ok(OutboxLook {
                has_rows: file.has_rows()?,
                interval: LOOK_INTERVAL,
            })
        })
    }

    fn count_newer(&mut self) -> RelayedAnswer<'_, u64> {
        self.ask(OutboxFile::count_newer)
    }

    fn take(&mut self) -> RelayedAnswer<'_, TakenRows> {
        self.ask(|file| {
            let (rows, more) = next_rows(&file.db)?;
            let rows = rows.into_iter().map(taken).collect();
            Ok(TakenRows { rows, more })
        })
    }

    fn remove<'a>(&'a mut self, rows: &'a [TakenRow]) -> RelayedAnswer<'a, ()> {
        self.ask(|file| {
            let tx = begin(&file.db)?;
            for row in rows {
                remove(&tx, row)?;
            }
            failpoint("relay.removed");
            Ok(tx.commit()?)
        })
    }

    fn give_back(&mut self) -> RelayedAnswer<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn find(&mut self, ids: Vec<TaskId>) -> RelayedAnswer<'_, Vec<TaskId>> {
        self.ask(|file| {
            let mut found = Vec::new();
            for id in ids {
                if contains(&file.db, id)? {
                    found.push(id);
                }
            }
            Ok(found)
        })
    }
}

impl OutboxFile {
    fn open(path: &Path) -> Result<Self, Fault> {
        let Some(identity) = identity(path) else {
            return Err(Fault::Refused(Cause::Invalid(format!(
                "there is no file {}: check the path, or create the database and the outbox in it with `Outbox::CREATE`",
                path.display()
            ))));
        };
        let _alone = lock(&OPENING);
        Ok(Self {
            db: schema::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
            identity,
            empty_at: None,
            none_newer_at: None,
        })
    }

    /// Checks that the file has an outbox whose rows a relay may move.
    fn examine(&self) -> Result<(), Fault> {
        if schema::layout(&self.db)?.is_some() {
            return Err(unfit(
                "the file contains a store, which moves the rows of the outbox into itself: use the outbox of a client of that store",
            ));
        }
        if !schema::has_outbox(&self.db)? {
            return Err(unfit(
                "the file has no table `throng_outbox`: create it with `Outbox::CREATE`",
            ));
        }
        match self.db.prepare_cached(NEXT) {
            Err(error) if is_of_statement(&error) => Err(unfit(
                "the table `throng_outbox` has other columns than the one that `Outbox::CREATE` creates: drop it, and create it so",
            )),
            prepared => Ok(prepared.map(drop)?),
        }
    }

    /// Looks for rows. While the file does not change, this reads no table.
    fn has_rows(&mut self) -> Result<bool, Fault> {
        let data_version = self.data_version()?;
        if self.empty_at == Some(data_version) {
            return Ok(false);
        }
        let has_rows = self.db.prepare_cached(NEXT)?.exists((KNOWN, MAX_BYTES))?;
        self.empty_at = (!has_rows).then_some(data_version);
        Ok(has_rows)
    }

    /// Counts the rows of later versions. While the file does not change, this reads no table.
    fn count_newer(&mut self) -> Result<u64, Fault> {
        let data_version = self.data_version()?;
        if self.none_newer_at == Some(data_version) {
            return Ok(0);
        }
        let newer = count_newer(&self.db)?;
        self.none_newer_at = (newer == 0).then_some(data_version);
        Ok(newer)
    }

    fn data_version(&self) -> Result<i64, rusqlite::Error> {
        let mut statement = self.db.prepare_cached("PRAGMA data_version")?;
        statement.query_row([], |row| row.get(0))
    }
}

/// Begins a transaction that writes.
fn begin(db: &Connection) -> Result<Transaction<'_>, rusqlite::Error> {
    Transaction::new_unchecked(db, TransactionBehavior::Immediate)
}

/// Returns a row that is to be moved. Its key is its number, followed by its id.
fn taken(row: OutboxTableRow) -> TakenRow {
    TakenRow {
        key: [&row.number.to_be_bytes()[..], &row.id].concat(),
        entry: row.entry,
    }
}

/// Removes a row. Another relay may have removed it since it was taken, and another row may have its number.
fn remove(db: &Connection, row: &TakenRow) -> Result<(), rusqlite::Error> {
    let number = row.key.first_chunk().copied().map(i64::from_be_bytes);
    let mut statement = db.prepare_cached(ROW)?;
    let found = statement.query_row((number, MAX_BYTES), OutboxTableRow::read);
    if found.optional()?.map(taken).as_ref() == Some(row) {
        let mut statement = db.prepare_cached("DELETE FROM throng_outbox WHERE rowid = ?1")?;
        statement.execute([number])?;
    }
    Ok(())
}

/// Returns `true` if a statement does not suit the table: it lacks a column, for instance that of the row ids.
fn is_of_statement(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_none_or(|code| code == ErrorCode::Unknown)
}

fn unfit(reason: &str) -> Fault {
    Fault::Refused(Cause::Unfit(reason.into()))
}
