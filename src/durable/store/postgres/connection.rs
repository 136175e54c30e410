//! [`Connection`]: a connection to the server, which prepares each statement once. [`Server`]: how to make connections.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row, Statement};

use super::error::{failure, no_answer};
use crate::durable::failure::{Effect, Failure};
use crate::retry::Retry;
use crate::sync::{Mutex, lock};

/// The pauses between attempts to connect, and between attempts of a transaction that met a conflict.
pub(super) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(50))
    .cap(Duration::from_secs(1));

/// The schema in the text of statements, which is replaced with that of the store.
const SCHEMA: &str = "throng.";

/// The settings of each connection.
///
/// The statements of this store are pinned to the plans that they are written for: each row is found by an index, in a nested loop. The
/// statistics of a queue's tables are always out of date, and then a planner that is free to choose reads whole tables.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '30s'; SET client_min_messages = warning;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET jit = off;
    SET max_parallel_workers_per_gather = 0";

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How to connect to the server.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) config: Config,
    /// The name of the schema.
    pub(super) schema: Arc<str>,
    pub(super) connect_timeout: Duration,
}

/// A connection to the server.
pub(super) struct Connection {
    client: Client,
    /// What replaces [`SCHEMA`].
    schema: String,
    prepared: Mutex<HashMap<&'static str, Statement>>,
}

/// A notification: the text that another process has sent.
pub(super) type Notices = mpsc::UnboundedSender<String>;

impl Server {
    /// Connects. The notifications of the connection go to `notices`. If the receiver is closed, so is the connection.
    pub(super) async fn connect(&self, notices: Option<Notices>) -> Result<Connection, Failure> {
        let connecting = async {
            let (client, mut driver) = self.config.connect(NoTls).await?;
            // The connection lives until the client is dropped.
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|cx| driver.poll_message(cx)).await {
                    if let (AsyncMessage::Notification(it), Some(notices)) = (message, &notices) {
                        notices.send(it.payload().to_owned()).ok();
                    }
                }
            });
            client.batch_execute(SETTINGS).await?;
            Ok(client)
        };
        let client = timeout(self.connect_timeout, connecting).await;
        let client = client.map_err(|_| no_answer(Effect::None))?;
        Ok(Connection {
            client: client.map_err(|error| failure(Effect::None, error))?,
            schema: format!("{}.", quoted(&self.schema)),
            prepared: Mutex::default(),
        })
    }
}

impl Connection {
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns the text of a statement in the schema of the store.
    pub(super) fn in_schema(&self, sql: &str) -> String {
        sql.replace(SCHEMA, &self.schema)
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
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
