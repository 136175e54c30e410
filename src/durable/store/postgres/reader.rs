//! [`Reader`]: answers requests that write nothing, on a connection of its own.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;
use tokio::try_join;

use super::connection::Connection;
use super::error::{Fault, closed, missing_tables};
use super::meta;
use super::migrate;
use super::shared::Shared;
use super::view::{Running, View};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::Answer;

/// The maximum number of attempts of a query whose connection breaks.
const MAX_ATTEMPTS: u32 = 3;

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
        let (shared, request) = (Arc::clone(&self.shared), Arc::new(request));
        self.run(move |db| {
            let (shared, request): (_, Arc<R>) = (Arc::clone(&shared), Arc::clone(&request));
            Box::pin(async move { snapshot(&db, &shared, &*request, query).await })
        })
    }

    /// Runs statements on the connection of the reader, each in a transaction of its own. If the connection breaks, they run again.
    pub(super) fn work<R, T>(&self, request: R, work: Work<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (shared, request) = (Arc::clone(&self.shared), Arc::new(request));
        self.run(move |db| {
            let (shared, request): (_, Arc<R>) = (Arc::clone(&shared), Arc::clone(&request));
            Box::pin(async move { work(&db, &shared, &request).await })
        })
    }

    /// Runs `run` on the store's thread. If the connection breaks, it runs again on another one.
    fn run<T: Send + 'static>(
        &self,
        run: impl Fn(Arc<Connection>) -> Running<'static, T> + Send + Sync + 'static,
    ) -> Answer<'static, T> {
        let (reply, answer) = oneshot::channel();
        let reader = self.clone();
        self.runtime.spawn(async move {
            let mut connection = reader.connection.lock().await;
            let mut attempts = 1;
            let answer = loop {
                match reader.attempt(&mut connection, &run).await {
                    Err(fault) if fault.may_succeed() && attempts < MAX_ATTEMPTS => attempts += 1,
                    result => break result,
                }
            };
            drop(connection);
            reply.send(answer.map_err(BrokenRead::failure)).ok()
        });
        Box::pin(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// Runs `run` once. Closes the connection if it cannot be used any longer.
    async fn attempt<T>(
        &self,
        connection: &mut Option<Arc<Connection>>,
        run: &(impl Fn(Arc<Connection>) -> Running<'static, T> + Sync),
    ) -> Result<T, BrokenRead> {
        let db = self.connected(connection).await?;
        let limit = self.shared.server.answer_timeout;
        let result = timeout(limit, run(Arc::clone(&db))).await;
        let result = result.unwrap_or(Err(Fault::NoAnswer));
        if let Err(fault) = &result
            && (fault.needs_connection() || !db.roll_back(limit).await)
        {
            *connection = None;
        }
        Ok(result?)
    }

    /// Returns the connection. Connects if there is none.
    async fn connected(
        &self,
        connection: &mut Option<Arc<Connection>>,
    ) -> Result<Arc<Connection>, BrokenRead> {
        if let Some(open) = connection.as_ref().filter(|open| !open.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let new = self.shared.connect(None).await?;
        let setting_up = timeout(self.shared.server.answer_timeout, self.set_up(&new));
        setting_up.await.unwrap_or(Err(Fault::NoAnswer))?;
        Ok(Arc::clone(connection.insert(Arc::new(new))))
    }

    async fn set_up(&self, connection: &Connection) -> Result<(), Fault> {
        if !migrate::exists(connection, &self.shared).await? {
            return Err(Fault::Refused(match self.shared.is_observer {
                true => Cause::Invalid(no_store()),
                false => missing_tables(),
            }));
        }
        Ok(connection.prepare(&[meta::LOAD]).await?)
    }
}

/// The reason for which an attempt failed: it could not connect, or the request failed.
enum BrokenRead {
    Unconnected(Failure),
    Failed(Fault),
}

impl BrokenRead {
    /// Returns `true` if the request may succeed on another connection.
    fn may_succeed(&self) -> bool {
        match self {
            Self::Unconnected(_) | Self::Failed(Fault::NoAnswer) => false,
            Self::Failed(fault) => fault.needs_connection() || fault.is_conflict(),
        }
    }

    fn failure(self) -> Failure {
        match self {
            Self::Unconnected(failure) => failure,
            Self::Failed(fault) => fault.failure(Effect::None),
        }
    }
}

impl From<Failure> for BrokenRead {
    fn from(failure: Failure) -> Self {
        Self::Unconnected(failure)
    }
}

impl From<Fault> for BrokenRead {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
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
    let begin = async { Ok(db.begin(BEGIN).await?) };
    let ((), meta) = try_join!(begin, meta::load(db, shared))?;
    let view = View::new(Arc::clone(db), Arc::clone(shared), meta);
    let answer = query(&view, request).await?;
    db.batch("COMMIT").await?;
    Ok(answer)
}
