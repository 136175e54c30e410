//! [`Fault`]: the reason for which a request inside a transaction failed. Translates the errors of PostgreSQL for the engine.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::durable::failure::{Cause, Effect, Failure};

/// The reason for which a request inside a transaction failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The request was refused and has written nothing. The transaction continues with the next.
    Refused(Cause),
    /// The request has to run again in a transaction that has the store for itself.
    NeedsStore,
    /// The transaction is lost.
    Postgres(Error),
    /// What is stored makes no sense. The transaction is lost.
    Corrupt(String),
    /// The server does not answer.
    NoAnswer,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

impl Fault {
    /// Returns `true` if the same transaction may succeed when it is tried again.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Postgres(error) => matches!(
                error.code(),
                Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE)
            ),
            _ => false,
        }
    }

    /// Returns `true` if the server has answered, so the connection can be used for other transactions.
    pub(super) fn is_answer(&self) -> bool {
        match self {
            Self::Postgres(error) => error.as_db_error().is_some() || !error.is_closed(),
            Self::NoAnswer => false,
            Self::Refused(_) | Self::NeedsStore | Self::Corrupt(_) => true,
        }
    }

    pub(super) fn failure(self, effect: Effect) -> Failure {
        match self {
            Self::Refused(cause) => Failure::new(effect, cause).reported_by_store(),
            Self::NeedsStore => Failure::new(effect, Cause::Contended),
            Self::Postgres(error) => failure(effect, error),
            Self::Corrupt(text) => Failure::new(effect, Cause::Corrupt)
                .with_source(std::io::Error::other(text))
                .reported_by_store(),
            Self::NoAnswer => no_answer(effect),
        }
    }
}

/// The failure of a request whose answer has not arrived in time.
pub(super) fn no_answer(effect: Effect) -> Failure {
    let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
    Failure::new(effect, Cause::Unavailable).with_source(source)
}

/// The failure of a request that was not sent, since the store is closed.
pub(super) fn closed() -> Failure {
    Failure::new(Effect::None, Cause::Unavailable)
}

pub(super) fn failure(effect: Effect, error: Error) -> Failure {
    let is_answer = error.as_db_error().is_some();
    let failure = Failure::new(effect, cause(&error)).with_source(error);
    match is_answer {
        true => failure.reported_by_store(),
        false => failure,
    }
}

fn cause(error: &Error) -> Cause {
    let Some(code) = error.code() else {
        return match error.is_closed() || std::error::Error::source(error).is_some() {
            true => Cause::Unavailable,
            // A column has another type than expected, or is `NULL`.
            false => Cause::Corrupt,
        };
    };
    match code {
        &SqlState::DISK_FULL | &SqlState::OUT_OF_MEMORY => Cause::Full,
        &SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED => Cause::Busy,
        &SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE => Cause::Contended,
        &SqlState::READ_ONLY_SQL_TRANSACTION => Cause::ReadOnly,
        &SqlState::INSUFFICIENT_PRIVILEGE
        | &SqlState::INVALID_PASSWORD
        | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => Cause::Denied,
        &SqlState::INVALID_CATALOG_NAME => {
            Cause::Invalid(String::from("the database does not exist: create it"))
        }
        &SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME => Cause::Unfit(String::from(
            "the tables of the store are missing: open the store again",
        )),
        &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => Cause::Corrupt,
        _ => Cause::Unavailable,
    }
}

/// The fault of a request that is not written yet.
pub(super) fn unwritten(what: &str) -> Fault {
    Fault::Corrupt(format!("not written yet: {what}"))
}
