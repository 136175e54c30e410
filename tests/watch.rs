//! The registry of parts: what it reads, what it keeps, and what it leaves alone.

#[cfg(all(unix, feature = "redis", feature = "test-util"))]
#[macro_use]
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod redis_server;
mod support;

#[cfg(feature = "tracing")]
#[path = "watch/console.rs"]
mod console;
#[path = "watch/exposition.rs"]
mod exposition;

#[cfg(feature = "metrics")]
#[path = "watch/facade.rs"]
mod facade;
#[path = "watch/gone.rs"]
mod gone;
#[path = "watch/groups.rs"]
mod groups;
#[cfg(feature = "test-util")]
#[path = "watch/items.rs"]
mod items;
#[path = "watch/long_jobs.rs"]
mod long_jobs;
#[cfg(feature = "test-util")]
#[path = "watch/ops.rs"]
mod ops;
#[path = "watch/parts.rs"]
mod parts;
#[cfg(feature = "test-util")]
#[path = "watch/scraped.rs"]
mod scraped;
#[cfg(feature = "test-util")]
#[path = "watch/stores.rs"]
mod stores;
#[path = "watch/text.rs"]
mod text;
