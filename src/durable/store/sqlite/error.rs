//! Translates SQLite's errors for the engine.

use std::ffi::c_int;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::durable::failure::{Cause, Effect, Failure};

/// The reason for which a request inside a transaction failed.
pub(super) enum Fault {
    /// The request was refused and has written nothing. The transaction continues with the next.
    Refused(Cause),
    /// The transaction is lost.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    /// Returns the same fault with the reason that the system has reported.
    pub(super) fn explained(self) -> Self {
        match self {
            Self::Sqlite(error) => Self::Sqlite(explained(error)),
            refused @ Self::Refused(_) => refused,
        }
    }

    /// The failure of a request that has had no effect.
    pub(super) fn without_effect(self) -> Failure {
        match self {
            Self::Refused(cause) => Failure::new(Effect::None, cause).reported_by_store(),
            Self::Sqlite(error) => failure(Effect::None, error),
        }
    }
}

pub(super) fn failure(effect: Effect, error: rusqlite::Error) -> Failure {
    Failure::new(effect, cause(&error))
        .with_source(error)
        .reported_by_store()
}

/// SQLite's code for a failed write to a file.
const WRITE: c_int = ffi::SQLITE_IOERR | 3 << 8;
/// SQLite's code for an index of the log that cannot grow.
const INDEX_SIZE: c_int = ffi::SQLITE_IOERR | 19 << 8;

/// Returns `true` if the index of the log could not grow. At the end of a transaction, this happens after the frames of
/// the transaction were written, so the next connection may find them.
pub(super) fn is_of_index(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == INDEX_SIZE)
}

/// Turns an error that SQLite reports as a broken disk into a full one, if no room is left. SQLite
/// recognizes only a full disk, and no other reason for which a file cannot grow. The thread that has received the error
/// must call this at once, before its next system call.
pub(super) fn explained(error: rusqlite::Error) -> rusqlite::Error {
    let is_growth = matches!(
        error.sqlite_error(),
        Some(error) if [WRITE, INDEX_SIZE].contains(&error.extended_code)
    );
    // The last system call that failed is the one that SQLite reports.
    let system = io::Error::last_os_error();
    if !is_growth || !is_no_room(&system) {
        return error;
    }
    let full = ffi::Error::new(ffi::SQLITE_FULL);
    rusqlite::Error::SqliteFailure(full, Some(system.to_string()))
}

/// Returns `true` if the disk is full, a quota is used up, or a file has reached its largest size.
fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// The failure of an operation on the files beside the database.
pub(super) fn io_failure(error: io::Error) -> Failure {
    let cause = match error.kind() {
        _ if is_no_room(&error) => Cause::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Cause::ReadOnly,
        _ => Cause::Unavailable,
    };
    Failure::new(Effect::None, cause)
        .with_source(error)
        .reported_by_store()
}

/// Finds out why SQLite cannot open or create a file at a path, since SQLite does not report the reason.
pub(super) fn cannot_open(path: &Path) -> Cause {
    let Some(folder) = path.parent().filter(|folder| folder.is_dir()) else {
        return Cause::Invalid(format!(
            "the folder of {} does not exist: create it",
            path.display()
        ));
    };
    if path.is_dir() {
        return Cause::Invalid(format!("{} is a folder: name a file", path.display()));
    }
    // SQLite also creates files beside the database.
    match tempfile_in(folder) {
        Err(error) => io_failure(error).cause,
        Ok(()) => Cause::Denied,
    }
}

/// Creates a file in a folder, and removes it.
fn tempfile_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".throng-{:016x}", fastrand::u64(..)));
    File::create_new(&path)?;
    fs::remove_file(path)
}

/// The fault of stored values that SQLite can read but that make no sense.
pub(super) fn corrupt() -> Fault {
    Fault::Sqlite(no_sense())
}

/// The error of stored values that make no sense.
pub(super) fn no_sense() -> rusqlite::Error {
    rusqlite::Error::QueryReturnedNoRows
}

/// The failure of a request that will never be answered.
pub(super) fn no_answer() -> Failure {
    Failure::new(Effect::Unknown, Cause::Unavailable)
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(cause(error), Cause::Busy)
}

/// Returns `true` if what is stored cannot be read.
pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(cause(error), Cause::Corrupt)
}

/// Returns `true` if SQLite cannot read a page.
pub(super) fn is_damaged_page(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
}

/// Returns `true` if there was no room for a write.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    matches!(cause(error), Cause::Full)
}

/// Returns `true` if the connection remains usable after this error.
pub(super) fn is_sound(error: &rusqlite::Error) -> bool {
    !matches!(cause(error), Cause::Unavailable | Cause::Corrupt)
}

fn cause(error: &rusqlite::Error) -> Cause {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::QueryReturnedNoRows => return Cause::Corrupt,
        _ => {}
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Cause::Busy,
        Some(ErrorCode::DiskFull) => Cause::Full,
        Some(ErrorCode::ReadOnly) => Cause::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Cause::Corrupt,
        _ => Cause::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_disk_a_quota_and_the_largest_size_of_a_file_leave_no_room() {
        let cause = |number: Errno| io_failure(io::Error::from(number)).cause;
        for number in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
            assert_eq!(cause(number), Cause::Full, "{number}");
        }
        assert_eq!(cause(Errno::IO), Cause::Unavailable);
    }
}
