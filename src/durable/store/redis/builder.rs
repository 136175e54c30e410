//! [`RedisStoreBuilder`]: how a store in Redis is opened.

use std::time::Duration;

use super::RedisStore;
use super::link::Times;
use crate::durable::DurableError;

/// How a store in Redis is opened: made by [`RedisStore::builder`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use throng::durable::RedisStore;
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
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
}

impl RedisStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            namespace: String::from("default"),
            times: Times {
                connect: Duration::from_secs(2),
                answer: Duration::from_secs(5),
            },
            allow_eviction: false,
        }
    }

    /// The name of the store among others in the same database: `default`, unless another is set. All
    /// keys of the store begin with `throng:{namespace`.
    pub fn namespace(&mut self, namespace: impl Into<String>) -> &mut Self {
        self.namespace = namespace.into();
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
    /// allkeys-*`): not, unless it is allowed. With such a server, tasks are lost.
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
        RedisStore::open_as(self, super::Time::machine()).await
    }
}

impl std::fmt::Debug for RedisStoreBuilder {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("namespace", &self.namespace)
            .field("times", &self.times)
            .field("allow_eviction", &self.allow_eviction)
            .finish_non_exhaustive()
    }
}
