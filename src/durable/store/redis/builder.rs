//! [`RedisStoreBuilder`]: configures and opens a store in Redis.

use std::time::Duration;

use super::RedisStore;
use super::link::Times;
use crate::durable::{Durability, DurableError};

/// Configures and opens a store in Redis. Create one with [`RedisStore::builder`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use throng::durable::RedisStore;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::builder("redis://127.0.0.1/")
///     .namespace("mail")
///     .answer_timeout(Duration::from_secs(2))
///     .open()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisStoreBuilder {
    pub(super) url: String,
    pub(super) namespace: String,
    pub(super) times: Times,
    pub(super) allow_eviction: bool,
    pub(super) partitions: usize,
    pub(super) wait_for_disk: bool,
    pub(super) required: Durability,
}

impl RedisStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            namespace: String::from("default"),
            times: Times {
                connect: Duration::from_secs(2),
                answer: Duration::from_secs(5),
                // With the default lease, an idle worker sends a turn more often than this, so the connection for
                // requests needs no pings.
                pulse: Duration::from_secs(15),
            },
            allow_eviction: false,
            partitions: 1,
            wait_for_disk: false,
            required: Durability::Unknown,
        }
    }

    /// Sets the name that separates the store from others in the same database. The default is `default`. All
    /// keys of the store begin with `throng:{namespace`.
    pub fn namespace(&mut self, namespace: impl Into<String>) -> &mut Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the number of partitions among which the tasks are divided, by their ids: at most 64. The default is
    /// one. Every process that opens the store must set the same number.
    ///
    /// One partition is the fastest: with several, each request is divided, and an idle worker looks into every
    /// partition. Tasks in different partitions may run in another order than the one in which they were stored. In a
    /// cluster, use one partition, since each has its own slot and a store talks to one node.
    pub fn partitions(&mut self, partitions: usize) -> &mut Self {
        self.partitions = partitions;
        self
    }

    /// If `wait` is `true`, a task counts as stored only when it is on the server's disk. The default is `false`.
    ///
    /// With `appendfsync always`, the server waits for the disk anyway, which is faster. With `everysec`, the store
    /// sends `WAITAOF` (Redis 7.2 or later, or Valkey), and storing a task takes up to a second; the Redis user needs
    /// the permission `+waitaof`. With other servers and settings, the store cannot be opened. Outcomes of runs do not
    /// wait for the disk: if the server fails, or loses power, some tasks may run again.
    pub fn wait_for_disk(&mut self, wait: bool) -> &mut Self {
        self.wait_for_disk = wait;
        self
    }

    /// Sets the least [durability](Durability) that [`open`](Self::open) accepts. By default, it accepts any.
    ///
    /// The server's settings are checked once, and may change while the store is open. To check them again,
    /// use [`DurableClient::require`](crate::durable::DurableClient::require).
    pub fn require(&mut self, level: Durability) -> &mut Self {
        self.required = level;
        self
    }

    /// Sets the maximum time to connect. The default is two seconds.
    pub fn connect_timeout(&mut self, time: Duration) -> &mut Self {
        self.times.connect = time;
        self
    }

    /// Sets the time after which a connection that has not answered is closed. The default is five seconds. It
    /// should be shorter than the lease of the workers.
    pub fn answer_timeout(&mut self, time: Duration) -> &mut Self {
        self.times.answer = time;
        self
    }

    /// If `allow` is `true`, the server may evict any key when it is full (`maxmemory-policy allkeys-*`). By
    /// default, such a server is refused.
    ///
    /// Such a server loses tasks. Therefore, each worker searches the store for missing rows whenever it maintains the
    /// store, which happens once or twice a minute. A task of which a part is lost becomes a dead letter
    /// ([`DeadReason::Damaged`](crate::durable::DeadReason::Damaged)), and
    /// [`DurableClient::health`](crate::durable::DurableClient::health) reports the damage. Handles of tasks that
    /// are lost entirely fail with an error that [`is_expired`](crate::durable::DurableError::is_expired).
    pub fn allow_eviction(&mut self, allow: bool) -> &mut Self {
        self.allow_eviction = allow;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// The same as those of [`RedisStore::open`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(&self) -> Result<RedisStore, DurableError> {
        RedisStore::open_as(self, super::time::Time::machine()).await
    }
}

impl std::fmt::Debug for RedisStoreBuilder {
    /// Leaves out the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("namespace", &self.namespace)
            .field("times", &self.times)
            .field("allow_eviction", &self.allow_eviction)
            .field("partitions", &self.partitions)
            .field("wait_for_disk", &self.wait_for_disk)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}
