//! [`OutboxRelay`]: moves tasks from an outbox in another database into the store of a client.

use std::fmt;
use std::io::Error as IoError;
#[cfg(feature = "sqlite-unbundled")]
use std::path::Path;
use std::sync::Arc as StdArc;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::row_mover::{AwaitedRow, RowMover};
use super::failure::{Cause, Effect, Failure};
use super::outbox::body::encode_body;
use super::store::RelayedOutbox;
#[cfg(feature = "postgres")]
use super::store::postgres::PostgresOutbox;
#[cfg(feature = "sqlite-unbundled")]
use super::store::sqlite::SqliteOutbox;
use super::{
    DurableClient, DurableError, DurableHandle, DurableTask, Outbox, OutboxConnection, OutboxRow,
    SpawnOptions,
};
use crate::sync::thread;

mod row_mover;

/// Moves tasks from an outbox in another database into the store of a client. It is for programs that keep their rows in PostgreSQL or
/// SQLite, and their tasks elsewhere, such as in Redis.
///
/// Your transaction inserts a row for the task into the [outbox](Outbox), next to your own rows. Once the transaction has committed, a
/// relay stores the task and removes the row. If your rows and your tasks are in the same database, you need no relay: use
/// [`DurableClient::outbox`].
///
/// Each process that inserts such rows opens a relay. Other processes can open one, too, so that rows are moved while none of those
/// processes runs. Several relays share the rows of an outbox.
///
/// # Guarantees
///
/// - If the transaction commits, its task runs, as if it had been [spawned](DurableClient::spawn) then. If it does not, there is no task.
///   Once the task is moved, it is as durable as the other tasks of the store: see [`Durability`](super::Durability).
/// - A relay removes a row only after the store has acknowledged the task. If the relay dies between the two steps, another one stores the
///   task again under the same id, which changes nothing as long as the store has the task or its end. So the ends of these tasks are kept
///   for at least 24 hours, even if their [retention](SpawnOptions::retention) is shorter. A task could run twice if a relay died between
///   the two steps, and no other relay removed the row within that time. The same could happen if the end of the task was removed sooner,
///   for instance because the store keeps [only so many](super::Retention).
/// - Rows are moved roughly in the order in which they were made. The [delay](SpawnOptions::delay) of a task begins when it is moved.
/// - If the store is full or cannot be reached, the rows stay in the outbox, and the relay tries again. The same applies if the database
///   cannot be reached.
/// - A row that cannot be read becomes a task of the type `throng.unreadable-outbox-row`, which no worker knows. Its payload is the body of
///   the row. A row that was made by a later version of this crate stays in the outbox until a relay of that version moves it. Neither
///   delays other rows. Both are reported through `tracing`, with the feature of that name, and so are failures.
///
/// Until a task is moved, only its row exists: the store knows nothing of the task, so it can be neither cancelled nor signalled.
///
/// # Costs
///
/// A relay has a thread and a connection. When [`committed`](Self::committed) is called, it moves the row at once, or in its turn if there
/// are many. It looks for other rows once a second in PostgreSQL, and every 100 ms in SQLite, where it reads only a number as long as the
/// file has not changed. In SQLite, it locks the file against writers only to remove rows, and not while it waits for the store. Give your
/// own connections a timeout for locks, such as `busy_timeout`. The ends of tasks need room in the store for at least a day.
///
/// The database of the outbox must not contain a store, since the engines of that store would move the rows into it. In PostgreSQL, this
/// concerns only the schema `throng`.
///
/// # Examples
///
/// The order is in PostgreSQL, and the task in Redis:
///
/// ```no_run
/// # #![allow(dead_code)]
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::DurableTask;
/// # #[derive(Serialize, Deserialize)] struct Ship { order: i64 }
/// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
/// # #[cfg(all(feature = "redis", feature = "tokio-postgres"))]
/// # async fn buy(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use throng::durable::{DurableClient, Outbox, OutboxRelay, RedisStore};
///
/// db.batch_execute(Outbox::CREATE_POSTGRES).await?; // once, in a migration
/// let client = DurableClient::open(RedisStore::open("redis://localhost").await?);
/// let relay = OutboxRelay::postgres(&client, "postgres://app:secret@localhost/app").await?;
///
/// let tx = db.transaction().await?;
/// tx.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
/// let row = relay.spawn_in(&tx, Ship { order: 7 }).await?;
/// tx.commit().await?;
/// let handle = relay.committed(row).await?; // the task is in Redis
/// # drop(handle);
/// # Ok(()) }
/// ```
#[must_use = "it moves rows until it is dropped"]
pub struct OutboxRelay {
    client: DurableClient,
    /// The name of the outbox for messages.
    name: StdArc<str>,
    /// The statement that inserts a row.
    insert: StdArc<str>,
    awaited: mpsc::UnboundedSender<AwaitedRow>,
    stop: DropGuard,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl OutboxRelay {
    /// Opens a relay from the outbox in a PostgreSQL database: the table `outbox` in the schema `throng`, which
    /// [`Outbox::CREATE_POSTGRES`] creates. With the feature `postgres`.
    ///
    /// The address has the form of that of a [`PostgresStore`](super::PostgresStore), and encryption works in the same way. It is the
    /// address of the server itself, or of a pooler in session mode. The user needs `USAGE` on the schema, and `SELECT`, `UPDATE` and
    /// `DELETE` on the table. (The relay updates nothing, but only a user with this right can lock a row.) The user of your transactions,
    /// which may be another one, needs `USAGE` and `INSERT`.
    ///
    /// # Errors
    ///
    /// - The database has no outbox, the outbox has other columns, or its schema contains a store ([`is_unfit`](DurableError::is_unfit)).
    /// - The user may not log in, or lacks a right ([`is_denied`](DurableError::is_denied)). The server is a standby
    ///   ([`is_read_only`](DurableError::is_read_only)).
    /// - The address is invalid, or the database does not exist ([`is_invalid`](DurableError::is_invalid)). The server cannot be reached.
    /// - The client only [observes](DurableError::is_read_only) its store.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the relay is not open.
    ///
    /// # Examples
    ///
    /// See [`OutboxRelay`].
    #[cfg(feature = "postgres")]
    pub async fn postgres(client: &DurableClient, url: &str) -> Result<Self, DurableError> {
        let names = (PostgresOutbox::name(url), Outbox::INSERT_POSTGRES);
        Self::open(client, names, PostgresOutbox::new(url)).await
    }

    /// Opens a relay from the outbox in a SQLite database: the table `throng_outbox`, which [`Outbox::CREATE`] creates. With the feature
    /// `sqlite` or `sqlite-unbundled`.
    ///
    /// The settings of the file, such as its journal mode, stay as they are.
    ///
    /// # Errors
    ///
    /// - The file has no outbox, the outbox has other columns or no row ids, or the file contains a store
    ///   ([`is_unfit`](DurableError::is_unfit)).
    /// - There is no file at `path` ([`is_invalid`](DurableError::is_invalid)), it is no SQLite database
    ///   ([`is_corrupt`](DurableError::is_corrupt)), or it cannot be written ([`is_read_only`](DurableError::is_read_only),
    ///   [`is_denied`](DurableError::is_denied)).
    /// - Others have kept the file locked for five seconds ([`is_busy`](DurableError::is_busy)).
    /// - The client only [observes](DurableError::is_read_only) its store.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the relay is not open.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
    /// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::durable::{Outbox, OutboxRelay, SpawnOptions, Status};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// # let client = DurableClient::open(MemoryStore::new()); // RedisStore::open("redis://localhost").await?
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// db.execute_batch(Outbox::CREATE)?;
    /// let relay = OutboxRelay::sqlite(&client, &path).await?;
    ///
    /// let tx = db.transaction()?;
    /// let row = relay.outbox(Ship { order: 7 }, SpawnOptions::new())?;
    /// tx.execute(row.insert(), (row.id_bytes(), row.body()))?;
    /// tx.commit()?;
    ///
    /// let handle = relay.committed(row).await?;
    /// assert_eq!(handle.status().await?, Status::Waiting);
    /// relay.close().await;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "sqlite-unbundled")]
    pub async fn sqlite(
        client: &DurableClient,
        path: impl AsRef<Path>,
    ) -> Result<Self, DurableError> {
        let path = path.as_ref();
        let names = (SqliteOutbox::name(path), Outbox::INSERT_SQLITE);
        Self::open(client, names, SqliteOutbox::new(path)).await
    }

    /// Encodes a task as a row of the outbox, which you insert in your own transaction. This does the same as [`DurableClient::outbox`],
    /// for the database of the relay.
    ///
    /// # Errors
    ///
    /// - The options have a [key](SpawnOptions::key) ([`is_invalid`](DurableError::is_invalid)). Before your commit, nobody can know which
    ///   task will hold the key. Give the task an [id](SpawnOptions::id) that you [derive](DurableClient::derive_id) instead, or spawn it
    ///   after the commit.
    /// - The task is too large or cannot be encoded, or other options are invalid: as with [`spawn`](DurableClient::spawn).
    ///
    /// # Examples
    ///
    /// See [`sqlite`](Self::sqlite).
    pub fn outbox<T: DurableTask>(
        &self,
        task: T,
        options: SpawnOptions,
    ) -> Result<OutboxRow<T>, DurableError> {
        if options.key.is_some() {
            return Err(self.client.invalid(String::from(
                "a task in the outbox of a relay cannot have a key, since the task that holds it is only known after the commit: give it \
                 an id, for instance with `DurableClient::derive_id`, or spawn it after the commit",
            )));
        }
        let (_, tasks) = self.client.typed_tasks(std::iter::once((task, options)))?;
        let task = &tasks[0];
        let (insert, name) = (StdArc::clone(&self.insert), StdArc::clone(&self.name));
        Ok(OutboxRow::new(task.id, encode_body(task), insert, name))
    }

    /// Inserts a task in a transaction of a driver that this crate knows. This does the same as [`DurableClient::spawn_in`], for the
    /// database of the relay.
    ///
    /// # Errors
    ///
    /// - As [`outbox`](Self::outbox).
    /// - The row cannot be inserted.
    ///
    /// # Cancel safety
    ///
    /// As [`DurableClient::spawn_in`].
    ///
    /// # Examples
    ///
    /// See [`OutboxRelay`].
    pub fn spawn_in<'a, C: OutboxConnection, T: DurableTask>(
        &self,
        connection: &'a C,
        task: T,
    ) -> C::Inserted<'a, T> {
        self.spawn_in_with(connection, task, SpawnOptions::new())
    }

    /// Inserts a task in a transaction, with options.
    ///
    /// # Errors
    ///
    /// As [`spawn_in`](Self::spawn_in).
    ///
    /// # Cancel safety
    ///
    /// As [`DurableClient::spawn_in`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
    /// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
    /// # #[cfg(feature = "rusqlite")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::durable::{Outbox, OutboxRelay, SpawnOptions};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// # let client = DurableClient::open(MemoryStore::new()); // RedisStore::open("redis://localhost").await?
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// db.execute_batch(Outbox::CREATE)?;
    /// let relay = OutboxRelay::sqlite(&client, &path).await?;
    ///
    /// let tx = db.transaction()?;
    /// let options = SpawnOptions::new().queue("parcels");
    /// let row = relay.spawn_in_with(&tx, Ship { order: 7 }, options)?;
    /// tx.commit()?;
    /// let handle = relay.committed(row).await?;
    /// # drop(handle);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "rusqlite"))] fn main() {}
    /// ```
    pub fn spawn_in_with<'a, C: OutboxConnection, T: DurableTask>(
        &self,
        connection: &'a C,
        task: T,
        options: SpawnOptions,
    ) -> C::Inserted<'a, T> {
        connection.insert(self.outbox(task, options))
    }

    /// Has the relay move a task at once after your transaction has committed. Returns the handle of the task when this relay or another
    /// one has moved it.
    ///
    /// Call it only after the commit. If there is no row, for instance because the transaction was rolled back, this returns a handle
    /// nevertheless, but the store has [no record](DurableError::is_expired) of its task. If you do not call this, the task is moved all
    /// the same, usually within a second.
    ///
    /// This waits for as long as the database or the store cannot be reached. To limit the wait, use `tokio::time::timeout`. If you only
    /// want to await the task later, keep its [id](OutboxRow::id), and [attach](DurableClient::attach) a handle then.
    ///
    /// # Errors
    ///
    /// The client was closed ([`is_closed`](DurableError::is_closed)). The row stays in the outbox.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task is moved nevertheless.
    ///
    /// # Examples
    ///
    /// See [`OutboxRelay`].
    pub async fn committed<T: DurableTask>(
        &self,
        row: OutboxRow<T>,
    ) -> Result<DurableHandle<T::Output>, DurableError> {
        let id = row.id();
        let (moved, has_moved) = oneshot::channel();
        self.awaited.send(AwaitedRow { id, moved }).ok();
        match has_moved.await {
            Ok(()) => Ok(self.client.attach::<T>(id)),
            Err(_) => Err(DurableError::closed(self.client.store_name(), Some(id))),
        }
    }

    /// Closes the relay, and returns when it has ended its current transaction. This takes some seconds if the database or the store does
    /// not answer. The rows that are left stay in the outbox. Dropping the relay does the same without waiting.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the relay is closed in the background.
    ///
    /// # Examples
    ///
    /// See [`sqlite`](Self::sqlite).
    pub async fn close(self) {
        drop(self.stop);
        self.ended.await.ok();
    }

    async fn open(
        client: &DurableClient,
        (name, insert): (StdArc<str>, &str),
        outbox: Result<impl RelayedOutbox + 'static, Failure>,
    ) -> Result<Self, DurableError> {
        if let Err(Cause::Observed) = client.engine().store.outbox_insert() {
            let failure = Failure::new(Effect::None, Cause::Observed);
            return Err(DurableError::store(client.store_name(), None, failure));
        }
        let opened = match outbox {
            Ok(outbox) => Self::start(client, &name, insert, Box::new(outbox)).await,
            Err(failure) => Err(failure),
        };
        opened.map_err(|failure| DurableError::store(&name, None, failure))
    }

    async fn start(
        client: &DurableClient,
        name: &StdArc<str>,
        insert: &str,
        outbox: Box<dyn RelayedOutbox>,
    ) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let (awaited, requests) = mpsc::unbounded_channel();
        let mover = RowMover {
            name: StdArc::clone(name),
            outbox,
            engine: StdArc::clone(client.engine()),
            requests,
            stop: stop.clone(),
        };
        let stop = stop.drop_guard();
        let (opened, has_opened) = oneshot::channel();
        let ended = start_thread(mover, opened).map_err(no_thread)?;
        has_opened
            .await
            .unwrap_or_else(|_| Err(Failure::new(Effect::None, Cause::Unavailable)))?;
        Ok(Self {
            client: client.clone(),
            name: StdArc::clone(name),
            insert: insert.into(),
            awaited,
            stop,
            ended,
        })
    }
}

impl fmt::Debug for OutboxRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxRelay")
            .field("outbox", &self.name)
            .field("store", self.client.store_name())
            .finish_non_exhaustive()
    }
}

/// Starts the thread of a relay. Returns a channel that is closed when the thread has ended.
///
/// The database may block this thread, so it is not the thread of the engine, which renews leases.
fn start_thread(
    mover: RowMover,
    opened: oneshot::Sender<Result<(), Failure>>,
) -> Result<oneshot::Receiver<()>, IoError> {
    let (end, ended) = oneshot::channel();
    let thread = thread::Builder::new().name("throng-relay".into());
    thread.spawn(move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(mover.run(opened));
        drop(runtime);
        drop(end);
    })?;
    Ok(ended)
}

fn no_thread(error: IoError) -> Failure {
    Failure::new(Effect::None, Cause::Unavailable).with_source(error)
}
