//! Payloads and outputs that are too large for the row of their task.

use rusqlite::Connection;

use super::error::{is_corrupt, is_damaged_page};
use crate::durable::TaskId;

/// The largest payload or output, in bytes, that is stored in the row of its task, so that a row fits into a page.
pub(super) const MAX_INLINE_BYTES: usize = 512;

/// Reads a payload or an output from `throng_payload`.
pub(super) fn read(db: &Connection, id: TaskId) -> Result<Vec<u8>, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT bytes FROM throng_payload WHERE id = ?1")?;
    statement.query_row([id.to_bytes()], |row| row.get(0))
}

/// Reads a payload or an output. The inner error describes the damage if the data is lost.
///
/// # Errors
///
/// If a page on the path to the data cannot be read, the data may not be lost: a repair may find it.
pub(super) fn read_or_lost(
    db: &Connection,
    id: TaskId,
) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    match read(db, id) {
        Err(error) if is_damaged_page(&error) && !is_path_readable(db, id)? => Err(error),
        bytes => or_lost(bytes),
    }
}

/// Turns the error of unreadable data into a description, since only one task is affected. All other errors
/// remain errors.
pub(super) fn or_lost(
    bytes: Result<Vec<u8>, rusqlite::Error>,
) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    match bytes {
        Err(error) if is_corrupt(&error) => Ok(Err(format!("its data cannot be read: {error}"))),
        bytes => bytes.map(Ok),
    }
}

/// Returns `true` if the pages on the path to a payload or an output can be read.
fn is_path_readable(db: &Connection, id: TaskId) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT 1 FROM throng_payload NOT INDEXED
         WHERE rowid = (SELECT rowid FROM throng_payload WHERE id = ?1)",
    )?;
    match statement.exists([id.to_bytes()]) {
        Err(error) if is_damaged_page(&error) => Ok(false),
        found => found,
    }
}
