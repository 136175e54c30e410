//! The methods of [`DurableClient`] that store tasks in a user's transactions.

use std::iter;
use std::sync::Arc as StdArc;

use super::failure::{Effect, Failure};
use super::outbox::body::encode_body;
use super::{
    DurableClient, DurableError, DurableHandle, DurableTask, OutboxConnection, OutboxRow,
    SpawnOptions,
};

impl DurableClient {
    /// Encodes a task as a row of the [outbox](super::Outbox), which you insert in your own transaction: the task is stored if this
    /// transaction commits, and not otherwise. This method sends nothing to the store.
    ///
    /// The transaction must be in the database of the store. Any driver can insert the row; with `rusqlite` and `tokio_postgres`,
    /// [`spawn_in`](Self::spawn_in) both encodes and inserts it. After the commit, pass the row to [`committed`](Self::committed).
    ///
    /// The options are those of [`spawn_with`](Self::spawn_with). Soon after the commit, the task is moved from the outbox into the store,
    /// by any client of the store that has made a row or has an executor. Only then does its [delay](SpawnOptions::delay) begin, and only
    /// then does the store check whether another task holds its [key](SpawnOptions::key): see [`committed`](Self::committed). Rows are
    /// moved in roughly the order in which they were made.
    ///
    /// # Errors
    ///
    /// - The store has [no outbox](DurableError::is_unfit), or is [only observed](DurableError::is_read_only). Stores in SQLite and
    ///   PostgreSQL have an outbox.
    /// - The task is too large or cannot be encoded, or the options are invalid: as with [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// With `sqlx`, the row is inserted by
    /// `sqlx::query(Outbox::INSERT_POSTGRES).bind(row.id_bytes()).bind(row.body()).execute(&mut *tx)`, and with `diesel` by
    /// `sql_query(Outbox::INSERT_POSTGRES).bind::<Binary, _>(row.id_bytes()).bind::<Binary, _>(row.body()).execute(db)`. With `rusqlite`:
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask};
    /// # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
    /// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
    /// # #[cfg(feature = "sqlite-unbundled")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::durable::{Outbox, SpawnOptions, SqliteStore, Status};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// let client = DurableClient::open(SqliteStore::open(&path).await?);
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// db.execute_batch(Outbox::CREATE)?;
    /// db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?;
    ///
    /// let tx = db.transaction()?;
    /// tx.execute("INSERT INTO orders (id) VALUES (7)", [])?;
    /// let row = client.outbox(Ship { order: 7 }, SpawnOptions::new())?;
    /// tx.execute(row.insert(), (row.id_bytes(), row.body()))?;
    /// tx.commit()?;
    ///
    /// let handle = client.committed(row);
    /// assert_eq!(handle.status().await?, Status::Waiting);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "sqlite-unbundled"))] fn main() {}
    /// ```
    pub fn outbox<T: DurableTask>(
        &self,
        task: T,
        options: SpawnOptions,
    ) -> Result<OutboxRow<T>, DurableError> {
        let insert = self.engine().store.outbox_insert();
        let insert = insert.map_err(|cause| {
            let failure = Failure::new(Effect::None, cause);
            DurableError::store(self.store_name(), None, failure)
        })?;
        let (_, tasks) = self.typed_tasks(iter::once((task, options)))?;
        self.engine().outbox.start_looking();
        let task = &tasks[0];
        Ok(OutboxRow::new(
            task.id,
            encode_body(task),
            insert,
            StdArc::clone(self.store_name()),
        ))
    }

    /// Reports that your transaction has committed, so that the store moves the task at once, and returns the handle of the task.
    ///
    /// Call this only after the commit: until then, the handle reports that the store has [no record](DurableError::is_expired) of the
    /// task. If you never call it, the task is moved nevertheless, within about a second if an executor of the store is running.
    ///
    /// Until the task is moved from the outbox into the store, it [waits](super::Status::Waiting). If another task holds its key when it is
    /// moved, the handle becomes that of the other task when you await it ([`was_joined`](DurableHandle::was_joined),
    /// [`has_replaced`](DurableHandle::has_replaced)). Until you await it, [`status`](DurableHandle::status) and
    /// [`cancel`](DurableHandle::cancel) concern the other task, and the other methods this one, which has ended. If the key
    /// [rejects](super::Key::reject) new tasks, the handle resolves with an error that [`is_conflict`](DurableError::is_conflict), and
    /// the task counts as [cancelled](super::Status::Cancelled).
    ///
    /// # Examples
    ///
    /// See [`outbox`](Self::outbox).
    pub fn committed<T: DurableTask>(&self, row: OutboxRow<T>) -> DurableHandle<T::Output> {
        self.engine().outbox.committed();
        self.attach::<T>(row.id())
    }

    /// Stores a task in a transaction of a driver that this crate supports: `rusqlite`, with the feature of that name, or
    /// `tokio_postgres`, with the feature `tokio-postgres`. This executes one statement, which inserts the row that
    /// [`outbox`](Self::outbox) returns.
    ///
    /// With `rusqlite`, this returns a `Result`. With `tokio_postgres`, it returns a future, which you await.
    ///
    /// # Errors
    ///
    /// - As [`outbox`](Self::outbox).
    /// - The row cannot be inserted. If the database has no [outbox](super::Outbox), the error [`is_unfit`](DurableError::is_unfit). In
    ///   PostgreSQL, a failed insertion aborts the transaction, which can then only be rolled back.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the row may or may not be part of the transaction.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask};
    /// # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
    /// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
    /// # #[cfg(feature = "rusqlite")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::durable::{Outbox, SqliteStore};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// let client = DurableClient::open(SqliteStore::open(&path).await?);
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// db.execute_batch(Outbox::CREATE)?;
    ///
    /// let tx = db.transaction()?;
    /// let row = client.spawn_in(&tx, Ship { order: 7 })?;
    /// tx.commit()?;
    /// let handle = client.committed(row);
    /// # drop(handle);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "rusqlite"))] fn main() {}
    /// ```
    pub fn spawn_in<'a, C: OutboxConnection, T: DurableTask>(
        &self,
        connection: &'a C,
        task: T,
    ) -> C::Inserted<'a, T> {
        self.spawn_in_with(connection, task, SpawnOptions::new())
    }

    /// Stores a task in a transaction, with options.
    ///
    /// # Errors
    ///
    /// As [`spawn_in`](Self::spawn_in).
    ///
    /// # Cancel safety
    ///
    /// As [`spawn_in`](Self::spawn_in).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask};
    /// # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
    /// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
    /// # #[cfg(feature = "rusqlite")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::durable::{Outbox, SpawnOptions, SqliteStore};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// let client = DurableClient::open(SqliteStore::open(&path).await?);
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// db.execute_batch(Outbox::CREATE)?;
    ///
    /// let tx = db.transaction()?;
    /// let options = SpawnOptions::new().queue("parcels");
    /// let row = client.spawn_in_with(&tx, Ship { order: 7 }, options)?;
    /// tx.commit()?;
    /// let handle = client.committed(row);
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
}
