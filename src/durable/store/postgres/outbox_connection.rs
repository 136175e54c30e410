//! Stores tasks in transactions of `tokio_postgres`.

use std::pin::Pin;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Transaction};

use super::error::failure;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::{DurableError, DurableTask, OutboxConnection, OutboxRow};
use crate::join::sealed::Sealed;

impl Sealed for Transaction<'_> {}

impl OutboxConnection for Transaction<'_> {
    type Inserted<'a, T: DurableTask>
        = Pin<Box<dyn Future<Output = Result<OutboxRow<T>, DurableError>> + Send + 'a>>
    where
        Self: 'a;

    fn insert<'a, T: DurableTask>(
        &'a self,
        row: Result<OutboxRow<T>, DurableError>,
    ) -> Self::Inserted<'a, T> {
        Box::pin(async move {
            let row = row?;
            let inserted = self
                .execute(row.insert(), &[&row.id_bytes(), &row.body()])
                .await;
            match inserted {
                Ok(_) => Ok(row),
                Err(error) => Err(DurableError::store(
                    row.store_name(),
                    Some(row.id()),
                    failure_of(error),
                )),
            }
        })
    }
}

fn failure_of(error: Error) -> Failure {
    let is_missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    if !error.code().is_some_and(|code| is_missing.contains(code)) {
        return failure(Effect::None, error);
    }
    let cause = Cause::Unfit(String::from(
        "the database of the transaction has no outbox: use a transaction in the database of the store",
    ));
    Failure::new(Effect::None, cause)
        .with_source(error)
        .reported_by_store()
}
