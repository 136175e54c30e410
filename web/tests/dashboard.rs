//! The dashboard, through its service: pages, the API, access and operations.

#[path = "dashboard/access.rs"]
mod access;
#[path = "dashboard/api.rs"]
mod api;
#[path = "dashboard/bounds.rs"]
mod bounds;
#[path = "dashboard/crash.rs"]
mod crash;
#[path = "dashboard/golden.rs"]
mod golden;
#[path = "dashboard/guards.rs"]
mod guards;
#[path = "dashboard/hostile.rs"]
mod hostile;
#[path = "dashboard/operations.rs"]
mod operations;
#[path = "dashboard/pages.rs"]
mod pages;
#[path = "dashboard/postgres.rs"]
mod postgres;
#[path = "../../tests/support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod postgres_server;
#[path = "dashboard/redis.rs"]
mod redis;
#[path = "dashboard/redis_info.rs"]
mod redis_info;
#[path = "../../examples/durable_redis/server.rs"]
mod server;
#[path = "dashboard/signals.rs"]
mod signals;
#[path = "dashboard/stage.rs"]
mod stage;
#[path = "dashboard/streams.rs"]
mod streams;
#[path = "dashboard/support.rs"]
mod support;
#[path = "dashboard/troubles.rs"]
mod troubles;
#[path = "dashboard/workflows.rs"]
mod workflows;

use throng::durable::{DurableClient, DurableError, RedisStore};

/// For the server that the tests share with an example.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn open(url: &str) -> std::result::Result<DurableClient, DurableError> {
    Ok(DurableClient::open(RedisStore::open(url).await?))
}
