//! What SQLite's errors mean to the engine.

use std::io;

use rusqlite::ErrorCode;

use crate::durable::error::{Cause, Effect, Failure};

/// Why a request inside a transaction was not done.
pub(super) enum Fault {
    /// It was refused, and has written nothing: the transaction goes on with the next.
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
    /// The failure of a request that has had no effect.
    pub(super) fn without_effect(self) -> Failure {
        match self {
            Self::Refused(cause) => Failure::new(Effect::None, cause).said_by_store(),
            Self::Sqlite(error) => failure(Effect::None, error),
        }
    }
}

pub(super) fn failure(effect: Effect, error: rusqlite::Error) -> Failure {
    Failure::new(effect, cause(&error))
        .because(error)
        .said_by_store()
}

/// What is wrong with the files beside the database.
pub(super) fn io_failure(error: io::Error) -> Failure {
    let cause = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Cause::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Cause::ReadOnly,
        _ => Cause::Unavailable,
    };
    Failure::new(Effect::None, cause)
        .because(error)
        .said_by_store()
}

/// The failure of a request whose answer nobody will give.
pub(super) fn no_answer() -> Failure {
    Failure::new(Effect::Unknown, Cause::Unavailable)
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(cause(error), Cause::Busy)
}

/// Whether the connection that says so can be used again.
pub(super) fn is_sound(error: &rusqlite::Error) -> bool {
    !matches!(cause(error), Cause::Unavailable | Cause::Corrupt)
}

fn cause(error: &rusqlite::Error) -> Cause {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
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
