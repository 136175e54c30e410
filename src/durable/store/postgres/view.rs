//! [`View`]: the things that a request reads, whether it writes or not.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::connection::{Connection, Params};
use super::error::Fault;
use super::meta::Meta;
use super::shared::Shared;
use crate::durable::TaskId;

/// A future of the answer to a request within a transaction.
pub(super) type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// The tables, as one transaction sees them, and what every request needs of them.
pub(super) struct View {
    db: Arc<Connection>,
    pub(super) shared: Arc<Shared>,
    pub(super) meta: Meta,
}

impl View {
    pub(super) fn new(db: Arc<Connection>, shared: Arc<Shared>, meta: Meta) -> Self {
        Self { db, shared, meta }
    }

    /// Prepares statements, so that they are sent at once. If several futures run together, the server executes those of their statements
    /// that are prepared in the order of the futures. After the first of them fails, it refuses all others, and `try_join!` returns the
    /// first error.
    pub(super) async fn prepare(&self, statements: &[&'static str]) -> Result<(), Error> {
        self.db.prepare(statements).await
    }

    /// Returns the rows that a statement selects.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.db.rows(sql, params).await
    }

    /// Returns the first row that a statement selects.
    pub(super) async fn row(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Option<Row>, Error> {
        self.db.row(sql, params).await
    }

    /// Returns the first column of the first row that a statement selects.
    pub(super) async fn value<T: FromSqlOwned>(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Option<T>, Error> {
        self.row(sql, params)
            .await?
            .map(|row| row.try_get(0))
            .transpose()
    }

    /// Returns the first column of the rows that a statement selects.
    pub(super) async fn values<T: FromSqlOwned>(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.rows(sql, params).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    /// Returns the ids in the first column of the rows that a statement selects.
    pub(super) async fn ids(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<TaskId>, Error> {
        let ids: Vec<Uuid> = self.values(sql, params).await?;
        Ok(ids.into_iter().map(task_id).collect())
    }
}

impl Deref for View {
    type Target = Meta;

    fn deref(&self) -> &Meta {
        &self.meta
    }
}

/// Returns the id of a task as it is stored.
pub(super) fn uuid(id: TaskId) -> Uuid {
    Uuid::from_bytes(id.to_bytes())
}

/// Returns the ids of tasks as they are stored.
pub(super) fn uuids<'a>(ids: impl IntoIterator<Item = &'a TaskId>) -> Vec<Uuid> {
    ids.into_iter().map(|id| uuid(*id)).collect()
}

/// Returns an id that was read.
pub(super) fn task_id(stored: Uuid) -> TaskId {
    TaskId::from_bytes(stored.into_bytes())
}
