//! [`Connection`]: a connection to the server, which prepares each statement once, or to a pooler, which prepares none.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures_core::Stream;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{CancelToken, Client, Error, Row, Statement};

use super::error::follows_another;
use super::unprepared::Unprepared;
use crate::sync::{Arc, Mutex, lock};

/// The schema in the text of statements, which is replaced with that of the store.
const SCHEMA: &str = "throng.";

/// Begins a transaction that sees what others commit meanwhile, whatever the level of the user is.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection to the server.
pub(super) struct Connection {
    client: Client,
    /// The text that replaces [`SCHEMA`].
    schema: String,
    statements: Statements,
    /// `true` if a process writes on another connection, too, which is the main one.
    is_second: bool,
}

/// The statements of a connection, by their texts.
enum Statements {
    /// They are prepared once. The settings are those of the connection.
    Prepared(Mutex<HashMap<&'static str, Statement>>),
    /// Each transaction may reach another connection of the server. So nothing is prepared, and each transaction begins with the settings.
    Unprepared {
        settings: String,
        known: Mutex<HashMap<&'static str, Arc<Unprepared>>>,
    },
}

impl Connection {
    /// Returns a connection to the store in a schema.
    pub(super) fn new(client: Client, schema: &str) -> Self {
        Self {
            client,
            schema: format!("{}.", quoted(schema)),
            statements: Statements::Prepared(Mutex::default()),
            is_second: false,
        }
    }

    /// Returns a connection to the store in a schema through a pooler in transaction mode. `settings` are statements that set up a
    /// transaction.
    pub(super) fn pooled(client: Client, schema: &str, settings: String) -> Self {
        let known = Mutex::default();
        Self {
            statements: Statements::Unprepared { settings, known },
            ..Self::new(client, schema)
        }
    }

    /// Returns the connection as one that writes beside the main one.
    pub(super) fn into_second(self) -> Self {
        Self {
            is_second: true,
            ..self
        }
    }

    /// Returns `true` if the connection writes beside the main one.
    pub(super) fn is_second(&self) -> bool {
        self.is_second
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
        answer_in_turn(self.client.batch_execute(sql)).await
    }

    /// Begins a transaction with a statement.
    pub(super) async fn begin(&self, begin: &str) -> Result<(), Error> {
        match &self.statements {
            Statements::Prepared(_) => self.batch(begin).await,
            Statements::Unprepared { settings, .. } => {
                self.batch(&format!("{begin}; {settings}")).await
            }
        }
    }

    /// Rolls the transaction back. Returns `false` if the connection cannot be used any longer.
    pub(super) async fn roll_back(&self, limit: Duration) -> bool {
        let rolled_back = timeout(limit, self.batch("ROLLBACK")).await;
        matches!(rolled_back, Ok(Ok(())))
    }

    /// Returns the rows that a statement selects.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        match &self.statements {
            Statements::Prepared(prepared) => {
                let statement = self.statement(prepared, sql).await?;
                answer_in_turn(self.client.query(&statement, params)).await
            }
            Statements::Unprepared { known, .. } => {
                let statement = self.unprepared(known, sql, params);
                Ok(answer_in_turn(self.send(&statement, params)).await?.0)
            }
        }
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
        match &self.statements {
            Statements::Prepared(prepared) => {
                let statement = self.statement(prepared, sql).await?;
                answer_in_turn(self.client.execute(&statement, params)).await
            }
            Statements::Unprepared { known, .. } => {
                let statement = self.unprepared(known, sql, params);
                Ok(answer_in_turn(self.send(&statement, params)).await?.1)
            }
        }
    }

    /// Prepares statements, so that they can follow one another without a wait. Statements that are never prepared can do so anyway.
    pub(super) async fn prepare(&self, statements: &[&'static str]) -> Result<(), Error> {
        if let Statements::Prepared(prepared) = &self.statements {
            for sql in statements {
                self.statement(prepared, sql).await?;
            }
        }
        Ok(())
    }

    async fn statement(
        &self,
        prepared: &Mutex<HashMap<&'static str, Statement>>,
        sql: &'static str,
    ) -> Result<Statement, Error> {
        if let Some(statement) = lock(prepared).get(sql) {
            return Ok(statement.clone());
        }
        let sql_in_schema = self.in_schema(sql);
        let statement = answer_in_turn(self.client.prepare(&sql_in_schema)).await?;
        lock(prepared).insert(sql, statement.clone());
        Ok(statement)
    }

    fn unprepared(
        &self,
        known: &Mutex<HashMap<&'static str, Arc<Unprepared>>>,
        sql: &'static str,
        params: Params<'_>,
    ) -> Arc<Unprepared> {
        let mut known = lock(known);
        let new = || Arc::new(Unprepared::new(self.in_schema(sql), params));
        Arc::clone(known.entry(sql).or_insert_with(new))
    }

    /// Sends a statement and its parameters. Returns the rows that it selects, and the number of rows that it has changed.
    async fn send(
        &self,
        statement: &Unprepared,
        params: Params<'_>,
    ) -> Result<(Vec<Row>, u64), Error> {
        let typed = statement.typed(params);
        let mut answer = pin!(self.client.query_typed_raw(&statement.sql, typed).await?);
        let mut rows = Vec::new();
        while let Some(row) = poll_fn(|cx| answer.as_mut().poll_next(cx)).await {
            rows.push(row?);
        }
        Ok((rows, answer.rows_affected().unwrap_or_default()))
    }
}

/// Awaits the answer of the server to a statement.
///
/// Of several futures that run together, one may have sent its statement before another one whose statement is refused because of that.
/// Both errors can arrive together, but only the first says what has happened. So the other one waits until all of the futures were polled.
async fn answer_in_turn<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answer = answer.await;
    if answer.as_ref().is_err_and(follows_another) {
        yield_now().await;
    }
    answer
}

/// Returns an identifier in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
