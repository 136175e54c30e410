//! The service and its database.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use throng::watch::Registry;
use throng::{BlockingPool, JoinHandle};
use tokio::time::timeout;

/// The number of connections that the database accepts.
pub(crate) const CONNECTIONS: usize = 4;
/// The number of queries that may wait for a connection.
pub(crate) const QUEUE: usize = 16;
/// The duration of a query.
pub(crate) const QUERY: Duration = Duration::from_millis(20);
/// The time that a request waits for a permit.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A slow database, whose client blocks.
#[derive(Debug, Default)]
struct Database {
    connections: AtomicUsize,
    most: AtomicUsize,
}

impl Database {
    fn query(&self) -> Result<&'static str, TooMany> {
        let connections = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(connections, Ordering::Relaxed);
        if connections <= CONNECTIONS {
            thread::sleep(QUERY);
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
        match connections <= CONNECTIONS {
            true => Ok("rows\n"),
            false => Err(TooMany),
        }
    }
}

/// The database has more clients than it can serve.
#[derive(Debug)]
struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many connections")
    }
}

/// The state that requests share.
pub(crate) struct Service {
    pool: BlockingPool,
    registry: Registry,
    database: Arc<Database>,
}

impl Service {
    pub(crate) fn new() -> io::Result<Self> {
        let pool = BlockingPool::builder()
            .name("database")
            .max_threads(CONNECTIONS)
            .queue_capacity(QUEUE)
            .build()?;
        let registry = Registry::new();
        registry.watch("database", &pool);
        Ok(Self {
            pool,
            registry,
            database: Arc::default(),
        })
    }

    pub(crate) fn pool(&self) -> &BlockingPool {
        &self.pool
    }

    /// The largest number of connections at a time.
    pub(crate) fn most_connections(&self) -> usize {
        self.database.most.load(Ordering::Relaxed)
    }

    /// A closure that queries the database, for a thread of the pool.
    fn query(&self) -> impl FnOnce() -> Result<&'static str, TooMany> + Send + 'static {
        let database = Arc::clone(&self.database);
        move || database.query()
    }

    /// Reports why there is no answer, and when the requests that wait now will have theirs.
    fn unavailable(&self, why: impl fmt::Display) -> Response {
        let before = self.pool.metrics().queued / CONNECTIONS as u64 + 1;
        let seconds = (before as f64 * QUERY.as_secs_f64()).ceil();
        let retry_after = [(header::RETRY_AFTER, seconds.to_string())];
        (
            StatusCode::SERVICE_UNAVAILABLE,
            retry_after,
            format!("{why}\n"),
        )
            .into_response()
    }
}

pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/shed", get(shed))
        .route("/wait", get(wait))
        .route("/health", get(async || "fine\n"))
        .route("/metrics", get(metrics))
        .with_state(service)
}

/// Rejection: a request that finds the queue full fails at once.
async fn shed(State(service): State<Arc<Service>>) -> Response {
    match service.pool.try_spawn_blocking(service.query()) {
        Ok(rows) => answer(rows).await,
        Err(refused) => service.unavailable(refused),
    }
}

/// Back-pressure: a request that finds the queue full waits, without blocking a thread.
async fn wait(State(service): State<Arc<Service>>) -> Response {
    match timeout(RESERVE_TIMEOUT, service.pool.reserve()).await {
        Ok(Ok(permit)) => answer(permit.spawn_blocking(service.query())).await,
        Ok(Err(refused)) => service.unavailable(refused),
        Err(elapsed) => service.unavailable(elapsed),
    }
}

async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (format, service.registry.prometheus())
}

async fn answer(rows: JoinHandle<Result<&'static str, TooMany>>) -> Response {
    let failed = |why: String| (StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
    // If the client disconnects, this future is dropped, and its query is not needed.
    match rows.abort_on_drop().await {
        Ok(Ok(rows)) => rows.into_response(),
        Ok(Err(error)) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}
