//! [`Connection`]: a connection to the server, which prepares each statement once.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{CancelToken, Client, Error, Row, Statement};

use crate::sync::{Mutex, lock};

/// The schema in the text of statements, which is replaced with that of the store.
const SCHEMA: &str = "throng.";

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection to the server.
pub(super) struct Connection {
    client: Client,
    /// The text that replaces [`SCHEMA`].
    schema: String,
    prepared: Mutex<HashMap<&'static str, Statement>>,
}

impl Connection {
    /// Returns a connection to the store in a schema.
    pub(super) fn new(client: Client, schema: &str) -> Self {
        Self {
            client,
            schema: format!("{}.", quoted(schema)),
            prepared: Mutex::default(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns a token with which another connection can cancel the statement that this one runs.
    pub(super) fn cancel_token(&self) -> CancelToken {
        self.client.cancel_token()
    }

    /// Returns the text of a statement in the schema of the store.
    pub(super) fn in_schema(&self, sql: &str) -> String {
        sql.replace(SCHEMA, &self.schema)
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }

    /// Rolls the transaction back. Returns `false` if the connection cannot be used any longer.
    pub(super) async fn roll_back(&self, limit: Duration) -> bool {
        let rolled_back = timeout(limit, self.batch("ROLLBACK")).await;
        matches!(rolled_back, Ok(Ok(())))
    }

    /// Returns the rows that a statement selects. It is prepared once.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, params).await
    }

    /// Returns the first row that a statement selects.
    pub(super) async fn row(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// Executes a statement. Returns the number of rows that it has changed.
    pub(super) async fn execute(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<u64, Error> {
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, params).await
    }

    /// Prepares statements, so that they can follow one another without a wait.
    pub(super) async fn prepare(&self, statements: &[&'static str]) -> Result<(), Error> {
        for sql in statements {
            self.statement(sql).await?;
        }
        Ok(())
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = lock(&self.prepared).get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&self.in_schema(sql)).await?;
        lock(&self.prepared).insert(sql, statement.clone());
        Ok(statement)
    }
}

/// Returns an identifier in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
