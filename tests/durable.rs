//! Durable tasks by their behaviour, through the public interface: on the store in memory, and, with
//! the features of their names, on those in a file and in Redis.

#![cfg(feature = "test-util")]

#[cfg(feature = "redis")]
#[macro_use]
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod redis_server;
#[cfg(all(feature = "redis", feature = "rusqlite", feature = "tokio-postgres"))]
#[path = "support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod postgres_server;
mod support;

#[path = "support/ledger.rs"]
mod ledger;

#[path = "durable/harness.rs"]
#[macro_use]
mod harness;

#[path = "durable/bulk.rs"]
mod bulk;
#[path = "durable/cancel.rs"]
mod cancel;
#[path = "durable/children.rs"]
mod children;
#[path = "durable/close.rs"]
mod close;
#[path = "durable/dead.rs"]
mod dead;
#[path = "durable/deploys.rs"]
mod deploys;
#[path = "durable/details.rs"]
mod details;
#[path = "durable/errors.rs"]
mod errors;
#[path = "durable/executors.rs"]
mod executors;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[path = "durable/full.rs"]
mod full;
#[path = "durable/handles.rs"]
mod handles;
#[path = "durable/health.rs"]
mod health;
#[path = "durable/idle.rs"]
mod idle;
#[path = "durable/keys.rs"]
mod keys;
#[path = "durable/leases.rs"]
mod leases;
#[path = "durable/lists.rs"]
mod lists;
#[cfg(feature = "tower")]
#[path = "durable/middleware.rs"]
mod middleware;
#[path = "durable/nested.rs"]
mod nested;
#[cfg(all(feature = "redis", feature = "rusqlite", feature = "tokio-postgres"))]
#[path = "durable/outbox.rs"]
mod outbox;
#[path = "durable/overview.rs"]
mod overview;
#[path = "durable/panics.rs"]
mod panics;
#[path = "durable/policies.rs"]
mod policies;
#[path = "durable/progress.rs"]
mod progress;
#[cfg(all(unix, feature = "redis"))]
#[path = "durable/redis_example.rs"]
mod redis_example;
#[path = "durable/retention.rs"]
mod retention;
#[path = "durable/schedules.rs"]
mod schedules;
#[path = "durable/shutdown.rs"]
mod shutdown;
#[path = "durable/spawn.rs"]
mod spawn;
#[path = "durable/stress.rs"]
mod stress;
#[path = "durable/surface.rs"]
mod surface;
#[path = "durable/time.rs"]
mod time;
#[path = "durable/types.rs"]
mod types;
#[cfg(any(feature = "redis", feature = "sqlite"))]
#[path = "durable/unanswered_close.rs"]
mod unanswered_close;
#[path = "durable/user_code.rs"]
mod user_code;
#[path = "durable/versions.rs"]
mod versions;
#[path = "durable/workflow_details.rs"]
mod workflow_details;
#[path = "durable/workflows.rs"]
mod workflows;
