//! [`RedisStoreBuilder`]: how a store in Redis is opened.

use std::time::Duration;

use super::RedisStore;
use super::link::Times;
use crate::durable::{Durability, DurableError};

/// How a store in Redis is opened: made by [`RedisStore::builder`].
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
                // An idle worker sends a turn more often, at the usual lease: so nothing else is asked of
                // the connection for requests.
                pulse: Duration::from_secs(15),
            },
            allow_eviction: false,
            partitions: 1,
            wait_for_disk: false,
            required: Durability::Unknown,
        }
    }

    /// The name of the store among others in the same database: `default`, unless another is set. All
    /// keys of the store begin with `throng:{namespace`.
    pub fn namespace(&mut self, namespace: impl Into<String>) -> &mut Self {
        self.namespace = namespace.into();
        self
    }

    /// Into how many parts the tasks are divided, by their ids: one, unless another number is set, at
    /// most 64. All who open the store must say the same.
    ///
    /// One part is the fastest: with several, each request is divided, and an idle worker looks into every
    /// part. Tasks of different parts may run in another order than that in which they were stored. In a
    /// cluster, use one part, since each part has its own slot and a store talks to one node.
    pub fn partitions(&mut self, partitions: usize) -> &mut Self {
        self.partitions = partitions;
        self
    }

    /// Whether a task counts as stored only when it is on the server's disk: not, unless it is asked
    /// for.
    ///
    /// With `appendfsync always`, it is so anyway, and that is the faster way. With `everysec`, the
    /// server is asked to say when it is (`WAITAOF`, in Redis from 7.2 and in Valkey), and to store a task
    /// takes up to a second; its user needs the right to say so (`+waitaof`). Else the store cannot be
    /// opened. Outcomes of runs do not wait for the disk: if the server fails,
    /// or loses power, some tasks may run again.
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

    /// How long it may take to connect: two seconds, unless another time is set.
    pub fn connect_timeout(&mut self, time: Duration) -> &mut Self {
        self.times.connect = time;
        self
    }

    /// How long an answer may take before the connection is given up: five seconds, unless another time
    /// is set. It should be shorter than the lease of the workers.
    pub fn answer_timeout(&mut self, time: Duration) -> &mut Self {
        self.times.answer = time;
        self
    }

    /// Whether the server may be one that removes any key when it is full (`maxmemory-policy
    /// allkeys-*`): not, unless it is allowed.
    ///
    /// Such a server loses tasks. Then each worker has the store searched for what is missing whenever it maintains it,
    /// once or twice a minute. A task of which a part is lost becomes a dead letter
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
    /// As [`RedisStore::open`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind if the future is dropped.
    pub async fn open(&self) -> Result<RedisStore, DurableError> {
        RedisStore::open_as(self, super::time::Time::machine()).await
    }
}

impl std::fmt::Debug for RedisStoreBuilder {
    /// Without the URL, which may hold a password.
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
