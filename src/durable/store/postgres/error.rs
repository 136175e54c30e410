//! [`Fault`]: the reason for which a request inside a transaction failed. Translates the errors of PostgreSQL for the engine.
//!
//! The text of an error may quote a row, and so the payload of a task: only texts that cannot are copied.

use std::error::Error as _;
use std::io::{Error as IoError, ErrorKind};

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::{WasNull, WrongType};

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
    /// The user may not do this. The text names the remedy.
    Denied(String),
    /// The stored data makes no sense. The transaction is lost.
    Corrupt(String),
    /// The server does not answer.
    NoAnswer,
    /// The connection has given way to another one before anything was sent.
    GaveWay,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

impl Fault {
    /// Returns `true` if the same transaction may succeed when it is tried again.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(
            self.code(),
            Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE)
        )
    }

    /// Returns `true` if the server has given up after a wait for a lock, or a statement that took too long.
    pub(super) fn is_busy(&self) -> bool {
        self.code()
            .is_some_and(|code| cause_of(code) == Cause::Busy)
    }

    /// Returns `true` if the server has answered that it did not commit the transaction.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Postgres(error) => error.as_db_error().is_some_and(is_refusal),
            Self::NoAnswer | Self::GaveWay => false,
            Self::Refused(_) | Self::NeedsStore | Self::Denied(_) | Self::Corrupt(_) => true,
        }
    }

    /// Returns `true` if the connection is lost, or another one may do better: one to the server that has become the primary, or one that
    /// prepares its statements anew.
    pub(super) fn needs_connection(&self) -> bool {
        match self {
            Self::Postgres(error) => match error.as_db_error() {
                Some(db) => !is_refusal(db) || has_changed(db.code()),
                None => cause_of_driver(error) != Cause::Corrupt,
            },
            Self::NoAnswer | Self::GaveWay => true,
            Self::Refused(_) | Self::NeedsStore | Self::Denied(_) | Self::Corrupt(_) => false,
        }
    }

    /// Returns the code with which the server has reported an error.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) => error.code(),
            _ => None,
        }
    }

    pub(super) fn failure(self, effect: Effect) -> Failure {
        match self {
            Self::Refused(cause) => Failure::new(effect, cause).reported_by_store(),
            Self::NeedsStore => Failure::new(effect, Cause::Contended),
            Self::Postgres(error) => failure(effect, error),
            Self::Denied(text) => reported(effect, Cause::Denied, text),
            Self::Corrupt(text) => reported(effect, Cause::Corrupt, text),
            Self::NoAnswer => no_answer(effect),
            Self::GaveWay => Failure::new(effect, Cause::Unavailable),
        }
    }
}

/// The failure of a request whose answer has not arrived in time.
pub(super) fn no_answer(effect: Effect) -> Failure {
    let source = IoError::from(ErrorKind::TimedOut);
    Failure::new(effect, Cause::Unavailable).with_source(source)
}

/// The failure of a request that was not sent, since the store is closed.
pub(super) fn closed() -> Failure {
    Failure::new(Effect::None, Cause::Unavailable)
}

pub(super) fn failure(effect: Effect, error: Error) -> Failure {
    match error.as_db_error() {
        Some(db) if is_refusal(db) => reported(effect, cause_of(db.code()), describe(db)),
        Some(db) => Failure::new(effect, cause_of(db.code())).with_source(text(describe(db))),
        None => {
            let cause = cause_of_driver(&error);
            Failure::new(effect, cause).with_source(text(describe_driver(&error)))
        }
    }
}

/// The error of `tokio_postgres` if connections to the server must be encrypted and it does not do that.
const NO_TLS: &str = "server does not support TLS";

/// The failure of an attempt to connect. If neither the network nor the server has failed, the user cannot be authenticated.
///
/// If the address has several hosts and none of them can be written, one is about to take the place of the primary.
pub(super) fn connect_failure(error: Error, has_others: bool) -> Failure {
    if error.as_db_error().is_some() {
        return failure(Effect::None, error);
    }
    let source = error.source();
    if source.is_some_and(|it| it.to_string() == NO_TLS) {
        let text = "it does not encrypt connections: turn on its setting `ssl`, or connect with `sslmode=prefer`";
        return Failure::new(Effect::None, Cause::Unfit(text.into())).reported_by_store();
    }
    let cause = match source.map(|source| source.downcast_ref::<IoError>()) {
        Some(Some(source)) if is_read_only(source) && !has_others => Cause::ReadOnly,
        None | Some(Some(_)) => Cause::Unavailable,
        Some(None) => Cause::Denied,
    };
    Failure::new(Effect::None, cause).with_source(text(describe_driver(&error)))
}

/// Returns `true` if the driver has refused a server because the address says `target_session_attrs=read-write`. The errors of the system
/// have codes.
fn is_read_only(error: &IoError) -> bool {
    error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

fn reported(effect: Effect, cause: Cause, source: String) -> Failure {
    Failure::new(effect, cause)
        .with_source(text(source))
        .reported_by_store()
}

fn text(text: String) -> IoError {
    IoError::other(text)
}

/// Returns `true` if the server has refused a statement, and so has not committed it. All other errors end the connection, or say that the
/// outcome is not known.
fn is_refusal(error: &DbError) -> bool {
    let code = error.code();
    error.parsed_severity() == Some(Severity::Error)
        && !code.code().starts_with("08")
        && *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// Returns `true` if the server has become a standby, or a prepared statement has become invalid or belongs to another connection.
fn has_changed(code: &SqlState) -> bool {
    matches!(
        code,
        &SqlState::READ_ONLY_SQL_TRANSACTION
            | &SqlState::FEATURE_NOT_SUPPORTED
            | &SqlState::INVALID_SQL_STATEMENT_NAME
            | &SqlState::DUPLICATE_PSTATEMENT
    )
}

fn cause_of(code: &SqlState) -> Cause {
    match *code {
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => Cause::Full,
        SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED => Cause::Busy,
        SqlState::T_R_DEADLOCK_DETECTED | SqlState::T_R_SERIALIZATION_FAILURE => Cause::Contended,
        SqlState::READ_ONLY_SQL_TRANSACTION => Cause::ReadOnly,
        SqlState::INSUFFICIENT_PRIVILEGE
        | SqlState::INVALID_PASSWORD
        | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => Cause::Denied,
        SqlState::INVALID_CATALOG_NAME => {
            Cause::Invalid(String::from("the database does not exist: create it"))
        }
        SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME => missing_tables(),
        SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Cause::Corrupt,
        _ if concerns_data(code) => Cause::Corrupt,
        _ => Cause::Unavailable,
    }
}

/// Returns `true` if a statement met a number that is out of range, or a constraint of a table. This store causes neither with rows that it
/// has written itself, and another attempt would meet the same.
fn concerns_data(code: &SqlState) -> bool {
    *code == SqlState::NUMERIC_VALUE_OUT_OF_RANGE || code.code().starts_with("23")
}

/// The tables of a store were removed while it was open.
pub(super) fn missing_tables() -> Cause {
    Cause::Unfit(String::from(
        "the tables of the store are missing: open the store again",
    ))
}

/// Returns the cause of an error that the server has not reported.
fn cause_of_driver(error: &Error) -> Cause {
    let is_local = match error.source() {
        Some(source) => source.is::<WrongType>() || source.is::<WasNull>(),
        None => !error.is_closed(),
    };
    match is_local {
        // A column is missing, has another type than expected, or is `NULL`.
        true => Cause::Corrupt,
        false => Cause::Unavailable,
    }
}

/// Returns `true` if a statement has failed only because an earlier one has, or the connection.
pub(super) fn follows_another(error: &Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) || error.is_closed()
}

/// Describes an error that the server has reported, without the data that its text may quote.
fn describe(error: &DbError) -> String {
    let code = error.code();
    let mut text = format!("PostgreSQL reports {}", code.code());
    if quotes_no_data(code) {
        text = format!("{text}: {}", error.message());
    }
    if let Some(remedy) = remedy(code) {
        text = format!("{text}; {remedy}");
    }
    text
}

/// Returns `true` if the texts of the errors of this class name only the objects, the settings and the state of the server.
fn quotes_no_data(code: &SqlState) -> bool {
    let classes = [
        "08", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58",
    ];
    classes.iter().any(|class| code.code().starts_with(class))
}

pub(super) fn remedy(code: &SqlState) -> Option<&'static str> {
    match *code {
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => Some(
            "if the address is that of a pooler in transaction mode, set `listen_url` to that of the server",
        ),
        SqlState::READ_ONLY_SQL_TRANSACTION => Some(
            "the server is a standby, or `default_transaction_read_only` is on: connect to the primary, for instance with several hosts \
             and `target_session_attrs=read-write`",
        ),
        SqlState::INSUFFICIENT_PRIVILEGE => Some(
            "grant the user all rights on the schema of the store, its tables and its sequences",
        ),
        SqlState::TOO_MANY_CONNECTIONS => Some(
            "raise `max_connections`: each process that opens the store has up to four connections",
        ),
        _ => None,
    }
}

/// Describes an error that the server has not reported. Its text contains no data.
fn describe_driver(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
