//! [`Reader`]: answers requests that write nothing, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;
use tokio::try_join;

use super::connection::Connection;
use super::error::{Fault, closed, failure};
use super::meta;
use super::migrate;
use super::shared::Shared;
use super::view::{Running, View};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::Answer;

/// The time after which a query has failed, if the server does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// A query with its answer, as the store hands it to the reader.
pub(super) type Query<R, T> = for<'t> fn(&'t View, &'t R) -> Running<'t, T>;

/// Work on the reader's connection outside of a transaction.
pub(super) type Work<R, T> = for<'t> fn(&'t Connection, &'t Shared, &'t R) -> Running<'t, T>;

/// Answers requests that write nothing.
#[derive(Clone)]
pub(super) struct Reader {
    runtime: Handle,
    shared: Arc<Shared>,
    connection: Arc<Mutex<Option<Arc<Connection>>>>,
}

impl Reader {
    pub(super) fn new(runtime: Handle, shared: Arc<Shared>) -> Self {
        Self {
            runtime,
            shared,
            connection: Arc::default(),
        }
    }

    /// Runs a query. All of its statements see the same state of the store.
    pub(super) fn read<R, T>(&self, request: R, query: Query<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        let reader = self.clone();
        self.spawn(async move {
            let mut connection = reader.connection.lock().await;
            let db = reader.connected(&mut connection).await?;
            let reading = timeout(
                ANSWER_TIMEOUT,
                snapshot(&db, &reader.shared, &request, query),
            );
            let result = reading.await.unwrap_or(Err(Fault::NoAnswer));
            finished(&mut connection, &db, result).await
        })
    }

    /// Runs statements on the connection of the reader, each in a transaction of its own.
    pub(super) fn work<R, T>(&self, request: R, work: Work<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        let reader = self.clone();
        self.spawn(async move {
            let mut connection = reader.connection.lock().await;
            let db = reader.connected(&mut connection).await?;
            let working = timeout(ANSWER_TIMEOUT, work(&db, &reader.shared, &request));
            let result = working.await.unwrap_or(Err(Fault::NoAnswer));
            finished(&mut connection, &db, result).await
        })
    }

    /// Runs a future on the store's thread.
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Answer<'static, T> {
        let (reply, answer) = oneshot::channel();
        self.runtime
            .spawn(async move { reply.send(work.await).ok() });
        Box::pin(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// Returns the connection. Connects if there is none.
    async fn connected(
        &self,
        connection: &mut Option<Arc<Connection>>,
    ) -> Result<Arc<Connection>, Failure> {
        if let Some(open) = connection.as_ref().filter(|open| !open.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let new = Arc::new(self.shared.server.connect(None).await?);
        let exists = migrate::exists(&new, &self.shared).await;
        let prepared = new.prepare(&[meta::LOAD]).await;
        prepared.map_err(|error| failure(Effect::None, error))?;
        match exists.map_err(|fault| fault.failure(Effect::None))? {
            true => Ok(Arc::clone(connection.insert(new))),
            false => Err(Failure::new(Effect::None, Cause::Invalid(no_store()))),
        }
    }
}

fn no_store() -> String {
    String::from("the schema contains no store: a process that opens the store creates it")
}

/// Runs a query in a transaction that only reads.
async fn snapshot<R, T>(
    db: &Arc<Connection>,
    shared: &Arc<Shared>,
    request: &R,
    query: Query<R, T>,
) -> Result<T, Fault> {
    let begin = async { Ok(db.batch(BEGIN).await?) };
    let ((), meta) = try_join!(begin, meta::load(db, shared))?;
    let view = View::new(Arc::clone(db), Arc::clone(shared), meta);
    let answer = query(&view, request).await?;
    db.batch("COMMIT").await?;
    Ok(answer)
}

/// Ends the transaction of a query that has failed, or the connection.
async fn finished<T>(
    connection: &mut Option<Arc<Connection>>,
    db: &Connection,
    result: Result<T, Fault>,
) -> Result<T, Failure> {
    if let Err(fault) = &result
        && !(fault.is_answer() && db.batch("ROLLBACK").await.is_ok())
    {
        *connection = None;
    }
    result.map_err(|fault| fault.failure(Effect::None))
}
