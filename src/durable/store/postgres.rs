//! [`PostgresStore`]: a store in a PostgreSQL database.
//!
//! One connection writes, another one reads, and a third one receives the notifications of other processes. The writer runs requests that
//! arrive together in one transaction, and uses a second connection while it commits. The requests that run most often share the store, and
//! rely on the locks of rows; all others have it for themselves while they run: see `transaction.rs`.
//!
//! The files, from top to bottom: `backend` lists the requests; `session`, `enqueue`, `turn`, `cancel` and `queries` are some of them;
//! `verdicts`, `claim`, `next_tasks`, `upkeep`, `reap`, `renew`, `idle` and `next_check` are their parts; `task` has the steps of a task;
//! `line`, `claims`, `queues`, `groups`, `keys`, `steps`, `totals` and `meta` each read and write one or two tables; `wakes` and `notices`
//! choose whom to notify. `schema.sql` describes the tables.
//!
//! Statements that do not depend on each other are sent together, so that they take one round trip: see `View::prepare`.
//!
//! `postgres/PROTOCOL.md` explains why commits are safe, with the order of locks and the two connections that write.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::builder::PostgresStoreBuilder;
use self::listener::NoticeListener;
use self::reader::Reader;
pub(crate) use self::relayed_outbox::PostgresOutbox;
use self::shared::Shared;
pub(crate) use self::time::ServerTime;
use self::transaction::Run;
use self::writer::Writer;
use super::observer::Observer;
use super::{Answer, Event, Store};
use crate::durable::DurableError;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::sync::{Mutex, lock, thread};

mod added_steps;
mod address;
mod backend;
mod builder;
mod cancel;
mod changes;
mod claim;
mod claimed_tasks;
mod claims;
mod connection;
mod dead_letters;
mod deltas;
mod diagnosis;
mod ended_child;
mod enqueue;
mod error;
mod errors;
mod find;
mod findings;
mod group_changes;
mod groups;
mod head;
mod idle;
mod keys;
mod kind_sizes;
mod kinds;
mod last_writes;
mod line;
mod list;
mod list_position;
mod listener;
mod liveness;
mod low_marks;
mod maintain;
mod meta;
mod migrate;
mod next_check;
mod next_tasks;
mod notices;
mod outbox;
#[cfg(feature = "tokio-postgres")]
mod outbox_connection;
mod overview;
mod pauses;
mod probe;
mod progress;
mod queries;
mod queue_changes;
mod queues;
mod reader;
mod reap;
mod relayed_outbox;
mod removal;
mod renew;
mod replay_from;
mod retention;
mod ring;
mod schedules;
mod server;
mod session;
mod shared;
mod silent_sessions;
mod spare;
mod state;
mod stats;
mod steps;
mod task;
mod task_info;
#[cfg(test)]
pub(in crate::durable::store) mod tests;
mod text;
mod time;
#[cfg(feature = "postgres-tls")]
mod tls;
mod totals;
mod transaction;
mod turn;
mod unprepared;
mod unserved;
mod upkeep;
mod verdicts;
mod view;
mod waiting_kinds;
mod wakes;
mod workers;
mod writer;

/// A store in a PostgreSQL database, for the processes of any number of machines.
///
/// The server is PostgreSQL 13 or later, and the encoding of the database is `UTF8`. Other programs may use the database, too: all tables
/// are in a schema of their own, `throng` by default, which is created when the store is opened for the first time.
///
/// This store is experimental: its tables may change in a way that makes you delete them before an update.
///
/// # Guarantees
///
/// - An acknowledged write is as durable as the server makes it: see [`Durability`](crate::durable::Durability). With the server's default
///   settings, it is on the disk.
/// - When a process exits, for any reason, other workers take over its tasks once their lease expires: after
///   ten seconds, unless the executor was built with another lease.
/// - If the server cannot be reached, requests fail, and the store connects again with the next one. Reads that lose their connection are
///   sent again.
/// - If the server waits for a standby that is gone (`synchronous_standby_names`), requests that write fail after the
///   [answer timeout](PostgresStoreBuilder::answer_timeout), and may have taken effect on the primary. The store sends such a request
///   again, and then it may be acknowledged before the standby has it. If a process is killed while such a request waits, the store stays
///   busy until the standby returns, or until an administrator cancels the statement.
/// - Only the server's clock is used. If it is set, delayed tasks start earlier or later, and leases expire earlier or later.
/// - A store with a layout that this version of the crate does not know is neither changed nor converted. See also
///   [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade).
///
/// # Costs
///
/// A store has one thread and up to four connections: two for requests that write, one for reads, and one that receives notifications.
/// If the server allows it only three, it does without the second one that writes.
/// Clones of a [client](crate::durable::DurableClient), its handles and its executors share the store.
///
/// Connect to the server itself, or through a pooler in session mode. Through a pooler in transaction mode, such as PgBouncer with
/// `pool_mode = transaction`, also set [`listen_url`](PostgresStoreBuilder::listen_url) to the address of the server. If the store gets no
/// notifications, it detects that, and warns through `tracing` with the feature of that name. Idle workers then look for tasks twice a
/// second.
///
/// If the address has several hosts, they are tried in this order. With `target_session_attrs=read-write`, those that cannot be written are
/// passed over, such as standbys. If none can be written, requests wait for some seconds until one can, as after a failover.
///
/// Long transactions of other programs in the same database keep the server from removing dead rows, and make claims slower.
///
/// # Permissions
///
/// The user needs `CREATE` on the database, or on a schema that exists, to open the store for the first time. Afterwards, it needs all
/// rights on the schema, its tables and its sequences. An [observer](Self::observe) needs `USAGE` on the schema
/// and `SELECT` on its tables. A user that stores tasks [in its own transactions](crate::durable::Outbox) needs `USAGE` on the schema and
/// `INSERT` on the table `outbox`.
///
/// # Security
///
/// With the feature `postgres-tls`, the parameter `sslmode` of the address determines how connections are encrypted:
///
/// | `sslmode` | connections |
/// | --- | --- |
/// | `disable` | are never encrypted |
/// | `prefer`, the default | are encrypted if the server allows that; its certificate is not checked, so this protects only against those who listen |
/// | `require`, `verify-full` | are encrypted, and the certificate of the server must be valid for its name |
///
/// Unlike in other programs, `require` checks the certificate. The authority that has signed it must be one that the system trusts, or be
/// in the file that the parameter `sslrootcert` names. An example is
/// `postgres://app:secret@db.example/app?sslmode=verify-full&sslrootcert=/etc/ssl/own.pem`. Over an encrypted connection, a password that
/// is stored as `scram-sha-256` is bound to the certificate.
///
/// Without this feature, connections are not encrypted: reach the server by a Unix socket, a private network or a tunnel.
///
/// Errors, the name of the store and its `Debug` output contain neither the user nor the password.
///
/// # Examples
///
/// ```no_run
/// use throng::durable::{DurableClient, PostgresStore};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::open("postgres://app:secret@localhost/app").await?;
/// let client = DurableClient::open(store);
/// # drop(client);
/// # Ok(()) }
/// ```
pub struct PostgresStore {
    shared: Arc<Shared>,
    runtime: Handle,
    writer: Writer,
    reader: Reader,
    name: Arc<str>,
    events: Mutex<Option<mpsc::UnboundedReceiver<Event>>>,
    /// Stops the thread when the store is dropped.
    _thread: DropGuard,
}

impl PostgresStore {
    /// Opens the store at `url`: `postgres://user:password@host:port/database`. The tables are created if they do not exist.
    ///
    /// # Errors
    ///
    /// - if `url` is not a valid address, or the database does not exist ([`is_invalid`](DurableError::is_invalid));
    /// - if the server cannot be reached within five seconds;
    /// - if the user may not log in, or may not create or write the tables ([`is_denied`](DurableError::is_denied));
    /// - if the server is a standby, or the user's transactions are read-only ([`is_read_only`](DurableError::is_read_only));
    /// - if the server is too old, or the database has an unsuitable encoding ([`is_unfit`](DurableError::is_unfit));
    /// - if the store has a layout that this version of the crate does not know ([`is_newer_layout`](DurableError::is_newer_layout),
    ///   [`is_older_layout`](DurableError::is_older_layout)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store is not open. Its tables may exist.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// match PostgresStore::open("postgres://app:secret@localhost/app").await {
    ///     Err(error) if error.is_denied() => println!("check the password and the rights: {error}"),
    ///     opened => drop(opened?),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn open(url: &str) -> Result<Self, DurableError> {
        Self::builder(url).open().await
    }

    /// Opens the store read-only. A client of it has no effect on the store, and its user needs no right to write.
    ///
    /// # Errors
    ///
    /// The same as those of [`open`](Self::open), and if the schema contains no store ([`is_invalid`](DurableError::is_invalid)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has happened.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::{DurableClient, PostgresStore};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = DurableClient::open(PostgresStore::observe("postgres://reader@localhost/app").await?);
    /// println!("{:?}", client.counts().await?);
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
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::builder("postgres://localhost/app").schema("mail").open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(url)
    }

    /// Opens the store with a source of time.
    pub(crate) async fn open_as(
        builder: &PostgresStoreBuilder,
        time: ServerTime,
    ) -> Result<Self, DurableError> {
        let name = builder.name();
        let opened = Self::try_open(builder, &name, time).await;
        opened.map_err(|failure| DurableError::store(&name, None, failure))
    }

    /// Observes the store with a source of time.
    pub(crate) async fn observe_as(
        builder: &PostgresStoreBuilder,
        time: ServerTime,
    ) -> Result<Store, DurableError> {
        let name = builder.name();
        let observed = Self::try_observe(builder, &name, time).await;
        let store = observed.map_err(|failure| DurableError::store(&name, None, failure))?;
        Ok(Store::new(Observer::new(store)))
    }

    async fn try_open(
        builder: &PostgresStoreBuilder,
        name: &Arc<str>,
        time: ServerTime,
    ) -> Result<Self, Failure> {
        let store = Self::start(builder, name, time, false)?;
        // The writer creates the tables when it connects.
        store.write((), |_, ()| Box::pin(async { Ok(()) })).await?;
        let (sender, events) = mpsc::unbounded_channel();
        store.shared.time.watch(&sender);
        let (tried, has_tried) = oneshot::channel();
        let listener = NoticeListener {
            shared: Arc::clone(&store.shared),
            reader: store.reader.clone(),
            name: Arc::clone(name),
            events: sender,
        };
        store.runtime.spawn(listener.listen(tried));
        // If this process does not receive notifications yet, its workers look from time to time.
        has_tried.await.ok();
        *lock(&store.events) = Some(events);
        Ok(store)
    }

    async fn try_observe(
        builder: &PostgresStoreBuilder,
        name: &Arc<str>,
        time: ServerTime,
    ) -> Result<Self, Failure> {
        let store = Self::start(builder, name, time, true)?;
        store.read((), |_, ()| Box::pin(async { Ok(()) })).await?;
        Ok(store)
    }

    fn start(
        builder: &PostgresStoreBuilder,
        name: &Arc<str>,
        time: ServerTime,
        is_observer: bool,
    ) -> Result<Self, Failure> {
        let server = builder.server()?;
        let stop = CancellationToken::new();
        let runtime = start_thread(stop.clone())?;
        let shared = Arc::new(Shared::new(server, builder.layouts, time, is_observer));
        Ok(Self {
            writer: Writer::start(&runtime, Arc::clone(&shared)),
            reader: Reader::new(runtime.clone(), Arc::clone(&shared)),
            shared,
            runtime,
            name: Arc::clone(name),
            events: Mutex::default(),
            _thread: stop.drop_guard(),
        })
    }

    /// Runs a request that writes. Its transaction shares the store with others unless the request needs the store for itself.
    fn write<R, T>(&self, request: R, run: Run<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.writer.run(request, None, false, run)
    }

    /// Runs a request whose transaction has the store for itself.
    fn write_exclusive<R, T>(&self, request: R, run: Run<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.writer.run(request, None, true, run)
    }

    /// Runs a request that writes nothing.
    fn read<R, T>(&self, request: R, query: reader::Query<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.reader.read(request, query)
    }

    /// Returns the id by which other processes notify this one.
    #[cfg(test)]
    pub(crate) fn endpoint(&self) -> i64 {
        self.shared.endpoint
    }
}

impl PostgresStoreBuilder {
    /// Opens the store.
    ///
    /// # Errors
    ///
    /// The same as those of [`PostgresStore::open`], and if a setting has an invalid value ([`is_invalid`](DurableError::is_invalid)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store is not open. Its tables may exist.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::PostgresStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::builder("postgres://localhost/app").schema("mail").open().await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub async fn open(&self) -> Result<PostgresStore, DurableError> {
        PostgresStore::open_as(self, ServerTime::server()).await
    }

    /// Opens the store read-only: the same as [`PostgresStore::observe`], with the settings of this builder.
    ///
    /// # Errors
    ///
    /// The same as those of [`PostgresStore::observe`], and if a setting has an invalid value ([`is_invalid`](DurableError::is_invalid)).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has happened.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use throng::durable::{DurableClient, PostgresStore};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::builder("postgres://localhost/app").schema("mail").observe().await?;
    /// println!("{:?}", DurableClient::open(store).counts().await?);
    /// # Ok(()) }
    /// ```
    pub async fn observe(&self) -> Result<Store, DurableError> {
        PostgresStore::observe_as(self, ServerTime::server()).await
    }
}

impl From<PostgresStore> for Store {
    fn from(store: PostgresStore) -> Self {
        Self::new(store)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Starts a thread that drives the connections until `stop` is cancelled.
fn start_thread(stop: CancellationToken) -> Result<Handle, Failure> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("throng-postgres".into());
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
    receiver.recv().map_err(|_| error::closed())
}
