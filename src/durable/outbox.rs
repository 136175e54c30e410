//! [`Outbox`]: the table through which a user's transactions store tasks. [`OutboxRow`]: a row of this table.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc as StdArc;

use super::{DurableError, DurableTask, TaskId};
use crate::join::sealed::Sealed;

pub(crate) mod body;

/// The SQL statements for the outbox, the table through which your own transactions store tasks.
///
/// [`DurableClient::outbox`](super::DurableClient::outbox) makes a row of this table. See there for an example.
///
/// The table has two columns, which never change: the id of a task, and a body, which has a version of its own. In SQLite, create the table
/// with [`CREATE`](Self::CREATE) in the file of the store, for instance in a migration. In PostgreSQL, it is created with the store, and a
/// database user that adds rows needs only `INSERT` on the table and `USAGE` on its schema. Such a user can store tasks of all types.
///
/// If the tasks are to be stored elsewhere, such as in Redis, create the table in the database of your rows, and open an `OutboxRelay`. Its
/// documentation has an example.
///
/// # Examples
///
/// ```
/// use throng::durable::Outbox;
///
/// assert!(Outbox::CREATE.contains("throng_outbox"));
/// assert!(Outbox::INSERT_POSTGRES.contains("throng.outbox"));
/// ```
#[derive(Debug)]
pub enum Outbox {}

impl Outbox {
    /// Creates the table in SQLite, if it does not exist. The other processes that use the store notice it within a second.
    pub const CREATE: &'static str =
        "CREATE TABLE IF NOT EXISTS throng_outbox (id BLOB PRIMARY KEY, body BLOB NOT NULL)";

    /// Creates the table for an [`OutboxRelay`](super::OutboxRelay) in PostgreSQL, in the schema `throng`, if it does not exist. Do not use
    /// this if the database has a [store](super::PostgresStore) in this schema, since the store creates the table itself. The user needs
    /// the right `CREATE` on the database or, if the schema exists, on the schema.
    ///
    /// If the database is to contain a store as well, create the store in [another schema](super::PostgresStoreBuilder::schema).
    #[cfg(feature = "postgres")]
    pub const CREATE_POSTGRES: &'static str = "DO $$ BEGIN
    IF to_regnamespace('throng') IS NULL THEN
        CREATE SCHEMA throng;
    END IF;
    CREATE TABLE IF NOT EXISTS throng.outbox (id bytea PRIMARY KEY, body bytea NOT NULL)
        WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
END $$";

    /// Adds a row in SQLite. The parameters are [`OutboxRow::id_bytes`] and [`OutboxRow::body`]. A row with the same id changes nothing
    /// while the first one is in the outbox, or the store keeps its task.
    pub const INSERT_SQLITE: &'static str =
        "INSERT INTO throng_outbox (id, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

    /// Adds a row in PostgreSQL, for a store in the schema `throng`. For a store in another schema, use [`OutboxRow::insert`]. The
    /// parameters are [`OutboxRow::id_bytes`] and [`OutboxRow::body`]. A row with the same id changes nothing while the first one is in the
    /// outbox, or the store keeps its task.
    pub const INSERT_POSTGRES: &'static str =
        "INSERT INTO throng.outbox (id, body) VALUES ($1, $2) ON CONFLICT DO NOTHING";
}

/// A task to store in your own transaction: a row to insert into the [outbox](Outbox). It is returned by
/// [`DurableClient::outbox`](super::DurableClient::outbox). See there for an example.
///
/// The task is not stored until you have inserted the row and committed your transaction. Then pass the row to
/// [`DurableClient::committed`](super::DurableClient::committed), which returns the handle of the task. If the transaction is rolled back,
/// drop the row: there is no task.
#[must_use = "the task is stored only if you insert the row"]
pub struct OutboxRow<T> {
    id: TaskId,
    id_bytes: [u8; 16],
    body: Vec<u8>,
    insert: StdArc<str>,
    store_name: StdArc<str>,
    task: PhantomData<fn() -> T>,
}

impl<T: DurableTask> OutboxRow<T> {
    pub(crate) fn new(
        id: TaskId,
        body: Vec<u8>,
        insert: StdArc<str>,
        store_name: StdArc<str>,
    ) -> Self {
        Self {
            id,
            id_bytes: id.to_bytes(),
            body,
            insert,
            store_name,
            task: PhantomData,
        }
    }
}

impl<T> OutboxRow<T> {
    /// Returns the id of the task, for instance to store it in one of your rows.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the first parameter of the statement that inserts the row: the bytes of the id.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::outbox`](super::DurableClient::outbox).
    pub fn id_bytes(&self) -> &[u8] {
        &self.id_bytes
    }

    /// Returns the second parameter of the statement that inserts the row: the task in an encoded form.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::outbox`](super::DurableClient::outbox).
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the statement that inserts the row into the outbox of the client's store. It is [`Outbox::INSERT_SQLITE`], or
    /// [`Outbox::INSERT_POSTGRES`] with the schema of the store.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::outbox`](super::DurableClient::outbox).
    pub fn insert(&self) -> &str {
        &self.insert
    }

    #[cfg(any(feature = "rusqlite", feature = "tokio-postgres"))]
    pub(crate) fn store_name(&self) -> &StdArc<str> {
        &self.store_name
    }
}

impl<T> Clone for OutboxRow<T> {
    fn clone(&self) -> Self {
        Self {
            body: self.body.clone(),
            insert: StdArc::clone(&self.insert),
            store_name: StdArc::clone(&self.store_name),
            ..*self
        }
    }
}

impl<T> fmt::Debug for OutboxRow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxRow")
            .field("id", &self.id)
            .field("store", &self.store_name)
            .finish_non_exhaustive()
    }
}

/// A connection or a transaction of a database driver, for [`DurableClient::spawn_in`](super::DurableClient::spawn_in).
///
/// With the feature `rusqlite`, `rusqlite::Connection`, `Transaction` and `Savepoint` implement it. With the feature `tokio-postgres`,
/// `tokio_postgres::Transaction` does. No other type can implement it: with another driver, insert the row of
/// [`DurableClient::outbox`](super::DurableClient::outbox) yourself.
pub trait OutboxConnection: Sealed {
    /// The return type of [`spawn_in`](super::DurableClient::spawn_in): `Result<OutboxRow<T>, DurableError>`, or a future of it if the
    /// driver is asynchronous.
    type Inserted<'a, T: DurableTask>
    where
        Self: 'a;

    #[doc(hidden)]
    fn insert<'a, T: DurableTask>(
        &'a self,
        row: Result<OutboxRow<T>, DurableError>,
    ) -> Self::Inserted<'a, T>;
}
