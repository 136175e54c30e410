//! [`RedisStore`]: tasks in Redis.
//!
//! A [script](scripts) makes each change as a whole, by the server's clock. The store's thread drives two connections to the server, or to
//! each of the [nodes] of a cluster: one for [requests](link), and one for [messages](subscriber) to this process. Each is reopened
//! whenever it breaks. If the answer to a request is lost, its effect is unknown, and the engine sends it again under the same number.
//!
//! [`enqueue`] encodes a batch of tasks, and runs `lua/enqueue.lua` to store it. A [turn](turns) sends verdicts and claims
//! tasks.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::address::{ConnectTarget, RedisAddress};
pub use self::builder::RedisStoreBuilder;
use self::error::no_connection;
use self::inner::Inner;
use self::lost_writes::LostWrites;
pub use self::probe::RedisReport;
pub(crate) use self::time::Time;
use super::{Answer, Event, Store};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::observer::Observer;
use crate::durable::{Durability, DurableError};
use crate::sync::{Mutex, thread};

mod address;
mod admin;
mod backend;
mod batches;
mod births;
mod builder;
mod changes;
mod cluster_slots;
mod connection;
mod connector;
mod copies;
mod diagnosis;
mod discovery;
mod each_partition;
mod enqueue;
mod entry;
mod epochs;
mod error;
mod find_task;
mod idle_partitions;
mod inner;
mod keys;
mod last_numbers;
mod link;
mod list_tasks;
mod lost_writes;
mod maintenance;
mod move_tasks;
mod move_waiting;
mod names;
mod namespaces;
mod node;
mod nodes;
mod notes;
mod overview;
mod partition_turn;
mod partitions;
mod probe;
mod progress;
mod push_message;
mod queues;
mod recorded_types;
mod relays;
mod renew;
mod reply;
mod retention;
mod routes_cache;
mod routing;
mod schedule_row;
mod schedules;
mod scripts;
mod sentinel_problems;
mod sentinel_watcher;
mod sentinels;
mod server_clock;
mod session_state;
mod sessions;
mod stats;
mod steps;
mod subscriber;
mod tail;
#[cfg(test)]
pub(super) mod tests;
mod time;
mod timeouts;
mod turns;
mod types;
mod workers;

/// Tasks in Redis, for the processes of many machines.
///
/// The server is Redis 6.2 or later, or Valkey. Other programs may use it, too: all keys of the store begin with
/// `throng:`.
///
/// # Guarantees
///
/// - An acknowledged write is as durable as the server makes it: see [`Durability`]. With `appendonly yes` and
///   `appendfsync always`, it is on the disk. With `everysec`, a server process that is killed loses up to two seconds of
///   acknowledged writes.
/// - When a process exits, for any reason, other workers take over its tasks once their lease expires: after
///   ten seconds, unless the executor was built with another lease.
/// - If the server cannot be reached, requests wait, and fail after the
///   [answer timeout](RedisStoreBuilder::answer_timeout). The store keeps trying to reconnect.
/// - Only the server's clock is used. If it is set, delayed tasks start earlier or later. Results and dead letters are
///   removed at most one minute early if the clock is set forward, and never early if it is set back. Their age increases
///   only while an executor runs, and for a minute after that.
/// - If the server has no memory left, no more tasks can be stored; stored tasks still run.
/// - A store with a layout that this version of the crate does not know is neither changed nor converted. If the layout is
///   older, let a version that knows it run all tasks, or delete the keys. See also
///   [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade).
///
/// # Clusters
///
/// A store can be on a Redis Cluster of version 7.0 or later. It is opened with the URL of any node, which names the others; see also
/// [`cluster`](Self::cluster).
///
/// - Each [partition](RedisStoreBuilder::partitions) is in one cluster slot. To use all nodes, choose at least four times as many
///   partitions as nodes: with 64 partitions, each of three nodes has 14 to 29.
/// - A named queue, with its limits and groups, is in one partition, and so are the tasks of a queue with the same key.
/// - While a cluster slot moves to another node, requests for its partition wait, and no script stops halfway. Workers go on with the
///   other partitions. Keep partitions small, since a server answers nothing while it sends one key.
/// - If a replica takes over from its primary, the store uses it within seconds. The replica may lack the last writes. Each client then
///   stores its lost tasks again: see [`Losses`](crate::durable::Losses).
/// - While a node is down, only its partitions wait. New tasks without a key or a named queue get ids of other partitions. Set
///   `cluster-require-full-coverage no`, without which the cluster refuses all requests. While a store is opened
///   or an executor is started, all partitions must answer.
/// - A task in a named [queue](crate::durable::SpawnOptions::queue) or with a [key](crate::durable::Key) waits for its own node. If this
///   node is down, spawning the task fails after ten seconds. The tasks of other nodes are stored, but while many such tasks are spawned,
///   others may wait behind them, and fail after 30 s or more.
///
/// # Sentinels
///
/// With [`sentinel`](Self::sentinel), Sentinels determine the server. Whenever the store connects, it asks one of them after the other,
/// and uses the server that they name only if that server is a primary. The store also learns of a failover when a Sentinel announces it.
/// Each connection to another server is then closed, even if that server still answers, since it will lose what is stored there.
///
/// During a failover, requests wait, and fail after the [answer timeout](RedisStoreBuilder::answer_timeout); the client repeats them for
/// ten seconds. Workers resume by themselves. A run whose lease ends meanwhile may run again, so the lease should be longer than a
/// failover, which takes `down-after-milliseconds` plus a few seconds.
///
/// The replicas of a server get its writes after it has acknowledged them. So a failover can lose the last ones: tasks whose spawn has
/// returned may be gone, and runs that have ended may run again. With `min-replicas-to-write 1`, a primary that is cut off from its
/// replicas stops accepting writes after `min-replicas-max-lag`, ten seconds. With
/// [`wait_for_replicas`](RedisStoreBuilder::wait_for_replicas), a task counts as stored only when replicas have it.
///
/// After each connect, a client looks for tasks that the server has lost, and stores those again that it still has in memory: see
/// [`Losses`](crate::durable::Losses).
///
/// If the Sentinels have users, the one that [`sentinel_login`](RedisStoreBuilder::sentinel_login) names needs permission for `SENTINEL
/// GET-MASTER-ADDR-BY-NAME`, `SENTINEL MASTER` and, to learn of failovers at once, `SUBSCRIBE` on `+switch-master` and `+promoted-slave`.
///
/// # Costs
///
/// A store has one thread and six file descriptors: two for connections to the server, the others for
/// the thread's event loop. With [`wait_for_disk`](RedisStoreBuilder::wait_for_disk) or
/// [`wait_for_replicas`](RedisStoreBuilder::wait_for_replicas), it has a third connection, and with Sentinels, one to each Sentinel. On a
/// cluster, it has these connections to each node that has a partition.
/// Clones of a [client](crate::durable::DurableClient), its handles and its executors share the store.
///
/// An idle client sends 8 commands a minute. An idle worker sends 14: it polls for tasks every 7.5 s (with the default lease
/// of ten seconds; less often with a longer one), removes expired results twice a minute, and pings silent connections. With several
/// partitions, a worker also asks for due schedules twice a minute. If 64 workers or more are idle, each polls less often: from 128 on,
/// every 30 s on average.
///
/// # How large will this get
///
/// Redis runs scripts one after another, so the limits are the CPU time that a task takes on a server, and the memory of the tasks that
/// wait.
///
/// | tasks a day | a second, at five times the mean | choose |
/// | --- | --- | --- |
/// | 10^6 | 60 | any store. With `SqliteStore`, one machine is enough; a Redis server takes 2 % of a core |
/// | 10^8 | 5,800 | one Redis server with one partition. With a thousand workers, it takes 60 % of a core; with few, busy ones, less |
/// | 10^9 | 58,000 | many tasks with each call of `spawn_all`, and few workers with many permits: one server takes 40 % of a core. If tasks are spawned one by one, a cluster of at least eight nodes with four partitions each |
///
/// - *The more tasks there are, the less each costs.* While a request is under way, other tasks wait for the next one, which takes all of
///   them. A task that is spawned and run alone costs the server 300 us; tasks that are spawned 10,000 at a time and run by a worker with
///   256 permits cost 7 us each.
/// - *Partitions cost.* A task in one of several partitions takes three requests to the server instead of two if workers are idle. Use
///   several only on a cluster, four for each node.
/// - *Idle workers cost little.* A thousand of them take 3 % of a core, and two connections each. Redis accepts 10,000 connections
///   (`maxclients`), so beyond 4,000 processes, raise that.
/// - *Memory.* A waiting task takes about 190 bytes and its payload. The end of a task takes memory until the
///   [retention](crate::durable::Admin::set_retention) of the store has it removed: at 10^8 tasks a day, keep ends for minutes.
/// - *Beyond that*, divide the work: stores in other namespaces can be on other servers, and a client and an executor for each of them can
///   share a process.
///
/// The figures were measured on a machine with two cores that also ran the workers.
/// `cargo run --release -p throng-benches -- durable --filter redis/fleet` measures them on yours, and predicts them with a simulation of
/// the fleet.
///
/// # Other servers
///
/// The tests run on Redis and Valkey. Managed services and compatible servers are not tested. A store relies on this:
///
/// - Scripts in Lua run as a whole, one after another, with `redis.pcall`, `cmsgpack`, `cjson` and `struct`. The keys of a partition have
///   one hash tag. A script names some of them when it is sent, and derives others from what it reads.
/// - The commands of Redis 6.2, such as `ZMSCORE`, `HRANDFIELD` and `LPOS`; RESP3 with pushed messages (`HELLO 3`); `PUBLISH` and
///   `PUBSUB` in scripts. On a cluster also `SPUBLISH` and `SSUBSCRIBE`, and `TRYAGAIN` for a script one of whose keys has moved.
/// - No key is evicted or expires on its own: set `maxmemory-policy noeviction`, and give the store a database that others do not flush.
///   Where `CONFIG` is not permitted, as in many managed services, check that yourself: the [durability](Durability) is then unknown.
///
/// Dragonfly refuses keys that a script has not named unless it runs with `--cluster_mode=emulated --lock_on_hashtags` or
/// `--default_lua_flags=allow-undeclared-keys`. KeyDB lacks `SPUBLISH` and `SSUBSCRIBE`, so it cannot be used as a cluster.
///
/// # Permissions
///
/// The URL may name a user. The user needs access to the keys `throng:*` and the channels `throng:*`, and to the commands on
/// hashes, lists, sets, sorted sets and scripts, and `PUBLISH`, `SUBSCRIBE`, `PUBSUB NUMSUB`, `EXISTS`, `UNLINK`, `TIME`, `PING` and
/// `HELLO`:
///
/// ```text
/// ACL SETUSER worker on >password ~throng:* resetchannels &throng:* +@hash +@list +@set
///     +@sortedset +@scripting +@connection +exists +unlink +time +publish +subscribe +pubsub|numsub
///     +info +config|get
/// ```
///
/// [`wait_for_disk`](RedisStoreBuilder::wait_for_disk) also needs `WAITAOF`, and
/// [`wait_for_replicas`](RedisStoreBuilder::wait_for_replicas) needs `WAIT`. On a cluster, the user also needs `CLUSTER SLOTS`, and the
/// commands for messages of a cluster slot:
///
/// ```text
/// ACL SETUSER worker +cluster|slots +asking +spublish +ssubscribe +pubsub|shardnumsub
/// ```
///
/// Without `INFO` and `CONFIG GET`, the [durability](Durability) is unknown, and a server that evicts keys when its memory is
/// full is not refused. Without `INFO`, a restart or a promotion of the server is not detected, and
/// [fencing tokens](crate::durable::TaskContext::fencing_token) may fall if the server's clock is behind. Without access to
/// the channels, workers poll for tasks twice a second.
///
/// # Examples
///
/// ```no_run
/// use throng::durable::{DurableClient, RedisStore};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(RedisStore::open("redis://127.0.0.1/").await?);
/// # drop(client);
/// # Ok(()) }
/// ```
pub struct RedisStore {
    inner: Arc<Inner>,
    runtime: Handle,
    events: Mutex<Option<mpsc::UnboundedReceiver<Event>>>,
    /// Stops the thread when the store is dropped.
    _thread: DropGuard,
}

impl RedisStore {
    /// Opens the store at `url`: `redis://user:password@host:port/database`, the same with `rediss://` for
    /// TLS (feature `redis-tls`), `redis+unix:///path` for a Unix socket, or `redis-sentinel://host:port,host:port/name` for the server
    /// that [Sentinels](Self::sentinel) watch under this name (`rediss-sentinel://` with TLS). Certificates are checked as
    /// [`tls`](RedisStoreBuilder::tls) describes.
    ///
    /// # Errors
    ///
    /// - if `url` is not a valid address, or a setting has an invalid value ([`is_invalid`](DurableError::is_invalid));
    /// - if the server cannot be reached;
    /// - if it does not let the user log in or run scripts ([`is_denied`](DurableError::is_denied));
    /// - if the server is older than 6.2 (in a cluster: 7.0), evicts keys when its memory is full, is a Sentinel, or belongs to
    ///   a cluster in which no node owns the cluster slot of a partition ([`is_unfit`](DurableError::is_unfit));
    /// - if the server is less durable than the builder [requires](RedisStoreBuilder::require)
    ///   ([`is_not_durable`](DurableError::is_not_durable));
    /// - if a version of this crate with an older layout has written the keys
    ///   ([`is_older_layout`](DurableError::is_older_layout)), or one with a newer layout
    ///   ([`is_newer_layout`](DurableError::is_newer_layout)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections. The server may have stored the layout of the store.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::open("redis://user:password@redis.example.com:6379/0").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub async fn open(url: &str) -> Result<Self, DurableError> {
        Self::builder(url).open().await
    }

    /// Opens the store at `url` read-only: see [`RedisStoreBuilder::observe`].
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::observe`].
    ///
    /// # Cancel safety
    ///
    /// As [`RedisStoreBuilder::observe`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::{DurableClient, RedisStore};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let observer = DurableClient::open(RedisStore::observe("redis://127.0.0.1/").await?);
    /// println!("{} tasks wait", observer.counts().await?.waiting);
    /// # Ok(()) }
    /// ```
    pub async fn observe(url: &str) -> Result<Store, DurableError> {
        Self::builder(url).observe().await
    }

    /// Returns a builder, which configures and opens a store.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("redis://127.0.0.1/").partitions(4).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(RedisAddress::url(url))
    }

    /// Returns a builder of a store whose server is the one that Sentinels watch under this name. An address is `host:port`, or `host` for
    /// port 26379. A URL does the same: `redis-sentinel://user:password@host:port,host:port/name/database`, where the user and the
    /// password are those for the server.
    ///
    /// Give the addresses of all Sentinels, so that some of them may be down. See [Sentinels](Self#sentinels).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sentinels = ["one.example.com:26379", "two.example.com:26379", "three.example.com:26379"];
    /// let store = RedisStore::sentinel(sentinels, "mymaster").open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn sentinel<A>(addresses: impl IntoIterator<Item = A>, name: &str) -> RedisStoreBuilder
    where
        A: Into<String>,
    {
        let addresses = addresses.into_iter().map(Into::into).collect();
        RedisStoreBuilder::new(RedisAddress::sentinels(addresses, name))
    }

    /// Returns a builder of a store on a Redis Cluster. The URLs are those of some of its nodes, of which the first that answers is asked
    /// for the others. All nodes have the same user and password, and all use TLS or none does.
    ///
    /// A store that is opened with the URL of one node, by [`open`](Self::open) or [`builder`](Self::builder), finds the others, too. With
    /// several URLs, it can be opened while one of these nodes is down.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://10.0.0.1:7000/", "redis://10.0.0.2:7000/"];
    /// let store = RedisStore::cluster(nodes).partitions(16).open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn cluster<'a>(urls: impl IntoIterator<Item = &'a str>) -> RedisStoreBuilder {
        let urls = urls.into_iter().map(str::to_owned);
        RedisStoreBuilder::new(RedisAddress::nodes(urls.collect()))
    }

    /// Requests the server's version and its settings, which determine how durable its writes are.
    /// [`Admin::report`](crate::durable::Admin::report) says what is wrong with them.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::open("redis://127.0.0.1/").await?;
    /// let report = store.report().await?;
    /// println!("{:?}, version {:?}", report.durability, report.version);
    /// # Ok(()) }
    /// ```
    pub async fn report(&self) -> Result<RedisReport, DurableError> {
        let report = self.request(|inner| async move { probe::report(&inner).await });
        let name = &self.inner.name;
        report
            .await
            .map_err(|failure| DurableError::store(name, None, failure))
    }

    /// Opens the store with a source of time.
    pub(crate) async fn open_as(
        builder: &RedisStoreBuilder,
        time: Time,
    ) -> Result<Self, DurableError> {
        let store = Self::connect(builder, time, false).await?;
        store.require(builder.required).await?;
        Ok(store)
    }

    /// Observes the store with a source of time.
    pub(crate) async fn observe_as(
        builder: &RedisStoreBuilder,
        time: Time,
    ) -> Result<Store, DurableError> {
        let store = Self::connect(builder, time, true).await?;
        Ok(Store::new(Observer::new(store)))
    }

    async fn connect(
        builder: &RedisStoreBuilder,
        time: Time,
        is_observer: bool,
    ) -> Result<Self, DurableError> {
        let (target, name) = Self::address(builder)?;
        let opened = match is_observer {
            true => Self::try_observe(builder, target, &name, time).await,
            false => Self::try_open(builder, target, &name, time).await,
        };
        opened.map_err(|failure| DurableError::store(&name, None, failure))
    }

    /// Returns the addresses of the server, or of nodes of a cluster, and the name of the store in messages, which contains no password.
    fn address(builder: &RedisStoreBuilder) -> Result<(ConnectTarget, Arc<str>), DurableError> {
        let target = builder.address.resolve();
        let name = target
            .as_ref()
            .map(|it| format!("{it} ({})", builder.namespace));
        let name: Arc<str> = name.unwrap_or_else(|_| String::from("redis")).into();
        let checked = builder.check();
        checked.map_err(|reason| DurableError::invalid(&name, reason))?;
        match target {
            Ok(target) => Ok((target, name)),
            Err(failure) => Err(DurableError::store(&name, None, failure)),
        }
    }

    async fn list_namespaces(builder: &RedisStoreBuilder) -> Result<Vec<String>, DurableError> {
        let (target, name) = Self::address(builder)?;
        let failed = |failure| DurableError::store(&name, None, failure);
        let store = Self::start(builder, target, &name, Time::server(), None);
        let store = store.await.map_err(failed)?;
        let list = |inner: Arc<Inner>| async move { namespaces::list(&inner).await };
        store.request(list).await.map_err(failed)
    }

    /// Refuses a server that is less durable than required.
    async fn require(&self, level: Durability) -> Result<(), DurableError> {
        if level == Durability::Unknown {
            return Ok(());
        }
        let found = self.report().await?.durability;
        match found >= level {
            true => Ok(()),
            false => Err(DurableError::not_durable(&self.inner.name, found, level)),
        }
    }

    async fn try_open(
        builder: &RedisStoreBuilder,
        target: ConnectTarget,
        name: &Arc<str>,
        time: Time,
    ) -> Result<Self, Failure> {
        let (sender, events) = mpsc::unbounded_channel();
        time.watch(&sender);
        let store = Self {
            events: Mutex::new(Some(events)),
            ..Self::start(builder, target, name, time, Some(sender)).await?
        };
        let wait = builder.wait_for_disk;
        let opened =
            store.request(move |inner| async move { sessions::open_store(&inner, wait).await });
        opened.await?;
        Ok(store)
    }

    async fn try_observe(
        builder: &RedisStoreBuilder,
        target: ConnectTarget,
        name: &Arc<str>,
        time: Time,
    ) -> Result<Self, Failure> {
        let store = Self::start(builder, target, name, time, None).await?;
        let opened = store.request(|inner| async move { sessions::observe_store(&inner).await });
        opened.await?;
        Ok(store)
    }

    /// Starts the thread of the store, and its connections.
    async fn start(
        builder: &RedisStoreBuilder,
        target: ConnectTarget,
        name: &Arc<str>,
        time: Time,
        events: Option<mpsc::UnboundedSender<Event>>,
    ) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let runtime = start_thread(stop.clone())?;
        let thread = stop.drop_guard();
        let is_observer = events.is_none();
        let connect = Inner::connect(builder.clone(), target, Arc::clone(name), time, events);
        let inner = Arc::new(link::spawn(&runtime, connect).await?);
        if !is_observer {
            LostWrites::watch(&inner);
        }
        Ok(Self {
            inner,
            runtime,
            events: Mutex::default(),
            _thread: thread,
        })
    }

    /// Runs a future on the store's thread.
    fn request<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        link::spawn(&self.runtime, work(Arc::clone(&self.inner)))
    }

    /// Returns the id by which other processes send messages to this one.
    #[cfg(test)]
    pub(crate) fn client_id(&self) -> &str {
        &self.inner.client_id
    }
}

// This is not in `builder.rs`, which the rest of the store depends on.
impl RedisStoreBuilder {
    /// Opens the store.
    ///
    /// # Errors
    ///
    /// The same as those of [`RedisStore::open`]. An error about an invalid setting names the setting and its value.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`RedisStore::open`].
    ///
    /// # Examples
    ///
    /// See [`RedisStoreBuilder`].
    pub async fn open(&self) -> Result<RedisStore, DurableError> {
        RedisStore::open_as(self, Time::server()).await
    }

    /// Opens the store read-only. A client of it has no effect on the store.
    ///
    /// It writes no key, and other processes do not see it. It can list and count tasks, and await them: its handles poll once a second.
    /// Requests that would change something, such as spawning a task or starting an executor, fail with an error that
    /// [`is_read_only`](DurableError::is_read_only). The settings [`require`](Self::require), [`wait_for_disk`](Self::wait_for_disk) and
    /// [`allow_eviction`](Self::allow_eviction) have no effect.
    ///
    /// With Redis 7.0 or later, and with Valkey, scripts run with `EVAL_RO`. So the server itself refuses writes, and the store can also be
    /// observed on a replica. The user needs no permission to write:
    ///
    /// ```text
    /// ACL SETUSER viewer on >password ~throng:* resetchannels +@read +@connection +eval_ro
    ///     +evalsha_ro +time +pubsub|numsub +info +config|get
    /// ```
    ///
    /// # Errors
    ///
    /// - if the namespace contains no store, `url` is not a valid address, or a setting has an invalid value
    ///   ([`is_invalid`](DurableError::is_invalid));
    /// - if the server cannot be reached;
    /// - if the server does not let the user log in or run scripts ([`is_denied`](DurableError::is_denied));
    /// - if the server is older than 6.2 or is a Sentinel, or if the store has another number of partitions
    ///   ([`is_unfit`](DurableError::is_unfit));
    /// - if the store has a layout that this version of the crate does not know ([`is_older_layout`](DurableError::is_older_layout),
    ///   [`is_newer_layout`](DurableError::is_newer_layout)).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::{DurableClient, RedisStore};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = RedisStore::builder("redis://127.0.0.1/");
    /// let observer = DurableClient::open(builder.namespace("mail").observe().await?);
    /// println!("{} tasks wait", observer.counts().await?.waiting);
    /// # Ok(()) }
    /// ```
    pub async fn observe(&self) -> Result<Store, DurableError> {
        RedisStore::observe_as(self, Time::server()).await
    }

    /// Returns the namespaces in the database of the server, or in the cluster, that contain a store, in order. The builder's own namespace
    /// has no effect.
    ///
    /// The set `throng:namespaces` in Redis has these names. Each process that opens a store adds the store's namespace to it, unless the
    /// cluster node that has the set is down.
    ///
    /// Nothing is written. The names come from the server, so escape them before you print them.
    ///
    /// # Errors
    ///
    /// - if `url` is not a valid address, or a setting has an invalid value ([`is_invalid`](DurableError::is_invalid));
    /// - if the server cannot be reached;
    /// - if the server does not let the user log in or read the set ([`is_denied`](DurableError::is_denied)).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::RedisStore;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// for namespace in RedisStore::builder("redis://127.0.0.1/").namespaces().await? {
    ///     println!("{namespace:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn namespaces(&self) -> Result<Vec<String>, DurableError> {
        RedisStore::list_namespaces(self).await
    }
}

impl From<RedisStore> for Store {
    fn from(store: RedisStore) -> Self {
        Self::new(store)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("name", &self.inner.name)
            .field("is_connected", &self.inner.nodes.failure().is_none())
            .field("is_subscribed", &self.inner.is_subscribed())
            .finish_non_exhaustive()
    }
}

/// Starts a thread that drives the connections until `stop` is cancelled.
fn start_thread(stop: CancellationToken) -> Result<Handle, Failure> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("throng-redis".into());
    // The thread also drops the runtime, since the caller may be in another runtime, where that is not allowed.
    let started = thread.spawn(move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        sender.send(runtime.handle().clone()).ok();
        runtime.block_on(stop.cancelled());
    });
    let failure = |error| Failure::new(Effect::None, Cause::Unavailable).with_source(error);
    started.map_err(failure)?;
    receiver.recv().map_err(|_| no_connection())
}
