//! [`RedisStoreBuilder`]: the settings of a store in Redis.

use std::fmt;
use std::time::Duration;

use super::address::RedisAddress;
use super::partitions::MAX_PARTITIONS;
use super::timeouts::Timeouts;
use crate::durable::Durability;
use crate::durable::store::layouts::Layouts;

/// Configures and opens a store in Redis. [`RedisStore::builder`](crate::durable::RedisStore::builder) creates one.
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
#[must_use = "a builder does nothing until `open` is called"]
pub struct RedisStoreBuilder {
    pub(super) address: RedisAddress,
    pub(super) namespace: String,
    pub(super) timeouts: Timeouts,
    pub(super) allow_eviction: bool,
    pub(super) partitions: usize,
    pub(super) wait_for_disk: bool,
    pub(super) wait_for_replicas: usize,
    pub(super) required: Durability,
    /// The layouts that this process knows.
    pub(super) layouts: Layouts,
}

impl RedisStoreBuilder {
    pub(super) fn new(address: RedisAddress) -> Self {
        Self {
            address,
            namespace: String::from("default"),
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                answer: Duration::from_secs(5),
                // With the default lease, an idle worker sends a turn more often than this, so the connection for
                // requests needs no pings.
                ping_interval: Duration::from_secs(15),
            },
            allow_eviction: false,
            partitions: 1,
            wait_for_disk: false,
            wait_for_replicas: 0,
            required: Durability::Unknown,
            layouts: Layouts::KNOWN,
        }
    }

    /// Sets the name that separates the store from others in the same database. The default is `default`. All
    /// keys of the store begin with `throng:{namespace`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // These stores share a database, but no tasks.
    /// let mail = RedisStore::builder("redis://127.0.0.1/").namespace("mail").open().await?;
    /// let images = RedisStore::builder("redis://127.0.0.1/").namespace("images").open().await?;
    /// # drop((mail, images));
    /// # Ok(()) }
    /// ```
    pub fn namespace(&mut self, namespace: impl Into<String>) -> &mut Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the user and the password for the server. They replace those in the URL, and may contain any characters. If the server has only
    /// a password, its user is `default`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let password = std::env::var("REDIS_PASSWORD")?;
    /// let mut builder = RedisStore::builder("redis://redis.example.com/");
    /// let store = builder.login("worker", password).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn login(&mut self, user: impl Into<String>, password: impl Into<String>) -> &mut Self {
        self.address.login = Some((user.into(), password.into()));
        self
    }

    /// Sets the user and the password for the Sentinels. By default, the store does not log in to them: the login for the server is not
    /// sent to them. If they have only a password, their user is `default`. Without Sentinels, this has no effect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::sentinel(["one.example.com", "two.example.com"], "mymaster");
    /// builder.login("worker", "secret").sentinel_login("default", "other secret");
    /// let store = builder.open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn sentinel_login(
        &mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> &mut Self {
        self.address.sentinel_login = Some((user.into(), password.into()));
        self
    }

    /// Sets the number of the database. It replaces the one in the URL. The default is 0.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::sentinel(["one.example.com", "two.example.com"], "mymaster");
    /// let store = builder.database(1).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn database(&mut self, number: u32) -> &mut Self {
        self.address.database = Some(number);
        self
    }

    /// If `tls` is `true`, all connections use TLS, including those to Sentinels, as with a URL that begins with `rediss` (feature
    /// `redis-tls`). The default is `false`.
    ///
    /// The system must trust the authority that has signed the certificate. If the environment has a variable `SSL_CERT_FILE`, the
    /// authorities in that file are trusted instead of those of the system. The certificate of the server must contain the host that the
    /// Sentinels name. They name IP addresses unless their configuration has `sentinel announce-hostnames yes` and
    /// `sentinel resolve-hostnames yes`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::sentinel(["one.example.com", "two.example.com"], "mymaster");
    /// let store = builder.tls(true).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn tls(&mut self, tls: bool) -> &mut Self {
        self.address.tls = tls;
        self
    }

    /// Sets the number of partitions among which the tasks are divided by their ids, from 1 to 64. The default is 1.
    /// Every process that opens the store must set the same number.
    ///
    /// One partition is the fastest: with several, each request is divided, and an idle worker polls every partition.
    /// Tasks in different partitions may run in another order than the one in which they were stored. In a
    /// [cluster](crate::durable::RedisStore#clusters), several partitions use several nodes.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("redis://127.0.0.1/").partitions(4).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn partitions(&mut self, partitions: usize) -> &mut Self {
        self.partitions = partitions;
        self
    }

    /// If `wait` is `true`, a task counts as stored only when it is on the server's disk. The default is `false`.
    ///
    /// With `appendfsync always`, the server waits for the disk anyway, which is faster. With `everysec`, the store
    /// sends `WAITAOF` (Redis 7.2 or later, or Valkey), and storing a task takes a second or two; the Redis user needs
    /// the permission `+waitaof`. With other servers and settings, the store cannot be opened. Outcomes of runs do not
    /// wait for the disk: if the server fails, or loses power, some tasks may run again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("redis://127.0.0.1/").wait_for_disk(true).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn wait_for_disk(&mut self, wait: bool) -> &mut Self {
        self.wait_for_disk = wait;
        self
    }

    /// Sets the number of replicas that must have received a task before it counts as stored. The default is 0.
    ///
    /// The store sends `WAIT` after each batch of tasks, so storing a task takes at least one more round trip between the servers; the
    /// Redis user needs the permission `+wait`. If fewer replicas are connected, the store cannot be opened. While fewer answer, tasks
    /// are stored, but spawning them fails after ten seconds with an error that [`is_unknown`](crate::durable::DurableError::is_unknown).
    /// So run one more replica than this number. On a cluster, only tasks of a node with too few answering replicas are affected.
    ///
    /// A failover to one of these replicas loses no task whose spawn has returned. A failover to another replica may: of replicas with the
    /// same `replica-priority`, Sentinels prefer the one that has received most. Ends of runs do not wait for replicas, so after a
    /// failover, some tasks may run again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::sentinel(["one.example.com", "two.example.com"], "mymaster");
    /// let store = builder.wait_for_replicas(1).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn wait_for_replicas(&mut self, replicas: usize) -> &mut Self {
        self.wait_for_replicas = replicas;
        self
    }

    /// Sets the minimum [durability](Durability) that [`open`](Self::open) accepts. By default, it accepts any.
    ///
    /// The server's settings are checked once, and may change while the store is open. To check them again,
    /// use [`DurableClient::require`](crate::durable::DurableClient::require).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::{Durability, RedisStore};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let opened = RedisStore::builder("redis://127.0.0.1/")
    ///     .require(Durability::Synced)
    ///     .open()
    ///     .await;
    /// match opened {
    ///     Err(error) if error.is_not_durable() => println!("set appendfsync to always: {error}"),
    ///     opened => drop(opened?),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn require(&mut self, level: Durability) -> &mut Self {
        self.required = level;
        self
    }

    /// Sets the maximum time to connect, which must be greater than zero. The default is two seconds.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::builder("redis://127.0.0.1/");
    /// let store = builder.connect_timeout(Duration::from_millis(500)).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn connect_timeout(&mut self, time: Duration) -> &mut Self {
        self.timeouts.connect = time;
        self
    }

    /// Sets the time after which a connection that has not answered is closed, which must be greater than zero. The
    /// default is five seconds. It should be shorter than the lease of the workers.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::builder("redis://127.0.0.1/");
    /// let store = builder.answer_timeout(Duration::from_secs(2)).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn answer_timeout(&mut self, time: Duration) -> &mut Self {
        self.timeouts.answer = time;
        self
    }

    /// If `allow` is `true`, the server may evict any key when its memory is full (`maxmemory-policy allkeys-*`). By
    /// default, such a server is refused.
    ///
    /// Such a server loses tasks. Therefore, each worker searches the store for missing rows whenever it maintains the
    /// store, which happens once or twice a minute. A task of which a part is lost becomes a dead letter
    /// ([`DeadReason::Damaged`](crate::durable::DeadReason::Damaged)), and
    /// [`DurableClient::health`](crate::durable::DurableClient::health) reports the damage. Handles of tasks that
    /// are lost entirely fail with an error that [`is_expired`](crate::durable::DurableError::is_expired).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("redis://127.0.0.1/").allow_eviction(true).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn allow_eviction(&mut self, allow: bool) -> &mut Self {
        self.allow_eviction = allow;
        self
    }

    /// Returns an error message if a setting has an invalid value.
    pub(super) fn check(&self) -> Result<(), String> {
        Err(if !(1..=MAX_PARTITIONS).contains(&self.partitions) {
            format!(
                "partitions is {}: set it to a number from 1 to {MAX_PARTITIONS}",
                self.partitions
            )
        } else if self.timeouts.connect.is_zero() {
            String::from("connect_timeout is zero: set it to a longer time")
        } else if self.timeouts.answer.is_zero() {
            String::from("answer_timeout is zero: set it to a longer time")
        } else {
            return Ok(());
        })
    }
}

impl fmt::Debug for RedisStoreBuilder {
    /// Omits the address, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("namespace", &self.namespace)
            .field("timeouts", &self.timeouts)
            .field("allow_eviction", &self.allow_eviction)
            .field("partitions", &self.partitions)
            .field("wait_for_disk", &self.wait_for_disk)
            .field("wait_for_replicas", &self.wait_for_replicas)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}
