//! Stores tasks in transactions of `rusqlite`.

use rusqlite::{Connection, Savepoint, Transaction, params};

use super::error::failure;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::{DurableError, DurableTask, OutboxConnection, OutboxRow};
use crate::join::sealed::Sealed;

impl Sealed for Connection {}
impl Sealed for Transaction<'_> {}
impl Sealed for Savepoint<'_> {}

/// With a bare connection, the task is part of the transaction that the connection has begun. If there is none, the task is stored at once.
impl OutboxConnection for Connection {
    type Inserted<'a, T: DurableTask> = Result<OutboxRow<T>, DurableError>;

    fn insert<'a, T: DurableTask>(
        &'a self,
        row: Result<OutboxRow<T>, DurableError>,
    ) -> Self::Inserted<'a, T> {
        let row = row?;
        let statement = self.prepare_cached(row.insert());
        let inserted = statement.and_then(|mut it| it.execute(params![row.id_bytes(), row.body()]));
        match inserted {
            Ok(_) => Ok(row),
            Err(error) => Err(DurableError::store(
                row.store_name(),
                Some(row.id()),
                failure_of(error),
            )),
        }
    }
}

impl OutboxConnection for Transaction<'_> {
    type Inserted<'a, T: DurableTask>
        = Result<OutboxRow<T>, DurableError>
    where
        Self: 'a;

    fn insert<'a, T: DurableTask>(
        &'a self,
        row: Result<OutboxRow<T>, DurableError>,
    ) -> Self::Inserted<'a, T> {
        OutboxConnection::insert::<T>(&**self, row)
    }
}

impl OutboxConnection for Savepoint<'_> {
    type Inserted<'a, T: DurableTask>
        = Result<OutboxRow<T>, DurableError>
    where
        Self: 'a;

    fn insert<'a, T: DurableTask>(
        &'a self,
        row: Result<OutboxRow<T>, DurableError>,
    ) -> Self::Inserted<'a, T> {
        OutboxConnection::insert::<T>(&**self, row)
    }
}

fn failure_of(error: rusqlite::Error) -> Failure {
    if !error.to_string().contains("no such table: throng_outbox") {
        return failure(Effect::None, error);
    }
    let cause = Cause::Unfit(String::from(
        "the database of the transaction has no outbox: create it with `Outbox::CREATE`, in the database of the store",
    ));
    Failure::new(Effect::None, cause)
        .with_source(error)
        .reported_by_store()
}
