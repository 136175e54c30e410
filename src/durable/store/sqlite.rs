//! [`SqliteStore`]: a store in a SQLite database.
//!
//! One thread writes, and another one reads. The writer collects requests until it has to wait for the disk, and
//! waits once for all of them. The reader answers requests that write nothing, which include turns that find
//! nothing to do.
//!
//! Several processes on one machine may have the file open. Each is an [endpoint] in a folder beside the file.
//! Through this folder, the processes wake one another, and detect which of them have died.
//!
//! A request runs in a [`Transaction`](transaction::Transaction), which changes the tables in these files, from top to bottom: `backend`
//! lists the requests, and `session`, `enqueue`, `turn` and `admin` implement the main ones; `verdicts`, `claim`, `reap`, `renew` and
//! `routing` are their parts; `task` has the steps of a task; `ready_queue`, `claims`, `payload`, `progress`, `queues` and `meta` each read
//! and write one table, and `steps` two.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use self::endpoint::file_name;
use self::reader::Reader;
use self::shared::Shared;
use self::writer::Writer;
use super::{Event, Store};
use crate::durable::DurableError;
use crate::durable::clock::Clock;
use crate::durable::failure::Failure;
use crate::durable::store::layouts::Layouts;
use crate::sync::Mutex;

mod admin;
mod backend;
mod changes;
mod claim;
mod claimed_tasks;
mod claims;
mod damage;
mod diagnosis;
mod drain;
mod endpoint;
mod enqueue;
mod error;
mod files;
mod find;
mod groups;
mod head;
mod idle;
mod keys;
mod list;
mod list_sizes;
mod lock_holder;
mod meta;
mod next_check;
mod notices;
mod observe;
mod observed_file;
mod other_claims;
mod outbox;
#[cfg(feature = "rusqlite")]
mod outbox_connection;
mod overview;
mod payload;
mod progress;
mod queries;
mod queues;
mod reader;
mod ready_queue;
mod reap;
mod renew;
mod repair;
mod replay_from;
mod retention;
mod ring;
mod route_cache;
mod routing;
mod schedules;
mod schema;
mod session;
mod shared;
mod state;
mod stats;
mod steps;
mod task;
#[cfg(test)]
mod tests;
mod time;
mod transaction;
mod turn;
mod unserved;
mod verdicts;
mod workers;
mod writer;

#[cfg(not(unix))]
compile_error!("the feature `sqlite` needs Unix for now");

/// A store in a SQLite database, for the processes of one machine.
///
/// The database file is created if it does not exist. It may be a database that the program
/// already uses: the names of all tables begin with `throng_`. The processes that have the file open find one another in
/// a folder beside it, which has the same name with `-throng` appended. Both must be on a local disk, not on a network
/// file system.
///
/// # Guarantees
///
/// - An acknowledged write is on the disk: SQLite is used with a write-ahead log and `synchronous=FULL`.
/// - When a process exits, for any reason, the other processes detect it. A busy worker takes its tasks back
///   within milliseconds, and an idle worker within seconds. The process itself does so when it is started
///   again. A process that hangs loses its tasks when their lease expires.
/// - Your own transactions in the same file can store tasks: see [`Outbox`](crate::durable::Outbox).
/// - A worker that waits for tasks writes nothing, and does not keep other processes from writing. While results or
///   dead letters are retained, each executor writes a few bytes every 15 to 45 seconds.
/// - If no space is left on the disk, requests fail immediately with an error that [`is_full`](DurableError::is_full),
///   and have no effect. A worker keeps the outputs of its tasks, and stores them once there is space. Until then,
///   [`health`](crate::durable::DurableClient::health) reports that the store fails. The same applies to quotas and to the
///   maximum size of a file. If the process has a limit for the size of files, it must ignore
///   `SIGXFSZ`, or the system kills it.
/// - A file with a layout that this version of the crate does not know is left unchanged. See also
///   [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade).
/// - When the last client is [closed](crate::durable::DurableClient::close), the file contains all data, and
///   no other files are left beside it.
///
/// # Failures
///
/// - **A frozen process.** If a process is stopped within a write, for instance by a signal or a debugger, no other process
///   can write until it continues or dies. This cannot be prevented, but it rarely happens: a write waits only for the
///   disk, and ends after 20 ms unless one request takes longer. Requests of other processes fail after
///   ten seconds with an error that [`is_busy`](DurableError::is_busy), and `open`, if it has to write, after five.
///   On Linux, the message names the process and says that it is stopped. Nothing is lost, whether the process
///   continues or dies.
/// - **A damaged file.** If a page or a row cannot be read, only the tasks whose data it contains are affected. They become
///   dead letters ([`Damaged`](crate::durable::DeadReason::Damaged)), and all other tasks continue. If a lost row was
///   the only record that a task waits for a signal, the task is due after six hours at the latest, and then looks for the signal.
///   [`health`](crate::durable::DurableClient::health) reports the damage for an hour. A table with an unreadable
///   page is rebuilt, which takes longer the more rows it has. The old table stays in the file, with a
///   name that begins with `throng_damaged_`. If the first pages of the file or the row about the whole store are lost,
///   or after the twentieth such table, requests fail with an error that [`is_corrupt`](DurableError::is_corrupt).
///   To recover, stop all processes that have the file open, remove the files beside it that end in `-wal` and
///   `-shm`, and replace the file with a backup.
/// - **A removed or replaced file.** If this happens while the file is open, requests fail with an error that
///   [`is_replaced`](DurableError::is_replaced), including a request that is being written at that time.
///   Requests succeed again when the same file, or a copy of it, is put back.
///
/// # Clocks
///
/// Delays and the rates of queues follow the wall clock of the machine. If it is set, delayed tasks start earlier or later. A queue
/// whose rate is used up may wait for one more interval, or may start a burst early. Nothing else depends on the wall clock. Leases
/// and the retention of results and dead letters are measured by the time since the machine was started. For results and dead
/// letters, this time counts only while an executor runs, and for a minute after that.
///
/// # Other users of SQLite in the program
///
/// A program links one version of SQLite, so all its dependencies must agree on one version of
/// `libsqlite3-sys`. This crate accepts any `rusqlite` from 0.28 to 0.41, and Cargo chooses a version that suits
/// the other dependencies: `sqlx` 0.8 and 0.9, `sea-orm` 1.1 and 2, `diesel` 2.3, `deadpool-sqlite` 0.8 to 0.14,
/// and `tokio-rusqlite` 0.5 to 0.8 all work beside this crate. If Cargo has already locked a newer `rusqlite`,
/// select an older one with `cargo update -p rusqlite --precise`.
///
/// The feature `sqlite` compiles SQLite in. Use `sqlite-unbundled` to link the system's library.
///
/// # Examples
///
/// ```
/// use throng::durable::{DurableClient, SqliteStore};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tasks.db");
/// let store = SqliteStore::open(path).await?;
/// let client = DurableClient::open(store);
/// # drop(client);
/// # Ok(()) }
/// ```
pub struct SqliteStore {
    writer: Writer,
    reader: Reader,
    shared: Arc<Shared>,
    name: Arc<str>,
    events: Mutex<Option<mpsc::UnboundedReceiver<Event>>>,
}

impl SqliteStore {
    /// Opens the store in the file at `path`. Creates the file if it does not exist.
    ///
    /// # Errors
    ///
    /// - if `path` cannot be the path of a file: its folder does not exist, or the path has a special meaning for SQLite,
    ///   such as `:memory:` ([`is_invalid`](DurableError::is_invalid));
    /// - if the file cannot be opened, created or written ([`is_read_only`](DurableError::is_read_only),
    ///   [`is_denied`](DurableError::is_denied), [`is_full`](DurableError::is_full));
    /// - if the file is not a SQLite database ([`is_corrupt`](DurableError::is_corrupt));
    /// - if it has a layout that this version of the crate does not know
    ///   ([`is_newer_layout`](DurableError::is_newer_layout),
    ///   [`is_older_layout`](DurableError::is_older_layout));
    /// - if other processes have kept the file locked for five seconds ([`is_busy`](DurableError::is_busy)).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::SqliteStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("tasks.db");
    /// let store = SqliteStore::open(path).await?;
    /// # drop(store);
    ///
    /// // The folder of this path does not exist.
    /// let error = SqliteStore::open("no/such/folder/tasks.db").await.unwrap_err();
    /// assert!(error.is_invalid());
    /// # Ok(()) }
    /// ```
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, DurableError> {
        Self::open_with(path.as_ref(), Clock::machine()).await
    }

    /// Opens the store with another clock.
    pub(crate) async fn open_with(path: &Path, clock: Clock) -> Result<Self, DurableError> {
        Self::open_as(path, clock, Layouts::KNOWN).await
    }

    /// Opens the store as a process that knows these layouts.
    async fn open_as(path: &Path, clock: Clock, layouts: Layouts) -> Result<Self, DurableError> {
        let name: Arc<str> = path.to_string_lossy().into();
        let opened = match files::checked(path, &name) {
            Ok(path) => Self::try_open(path, Arc::clone(&name), clock, layouts).await,
            Err(failure) => Err(failure),
        };
        opened.map_err(|failure| DurableError::store(&name, None, failure))
    }

    async fn try_open(
        path: PathBuf,
        name: Arc<str>,
        clock: Clock,
        layouts: Layouts,
    ) -> Result<Self, Failure> {
        let (sender, events) = mpsc::unbounded_channel();
        sender.send(Event::Ready).ok();
        #[cfg(any(test, feature = "test-util"))]
        {
            let sender = sender.clone();
            clock.watch(move || sender.send(Event::Wake(None)).is_ok());
        }
        let (writer, opened) = Writer::start(path, layouts, clock.clone(), sender).await?;
        if !opened.shared.endpoint.dead().is_empty() {
            // Programs that exit without closing their store leave files behind. The first sweep removes their
            // sessions, and the second the files that no session refers to. Nothing waits for this.
            drop([0; 2].map(|_| writer.run(0, admin::sweep)));
        }
        let reader = Reader::start(opened.files, Arc::clone(&opened.shared), clock).await?;
        Ok(Self {
            writer,
            reader,
            shared: opened.shared,
            name,
            events: Mutex::new(Some(events)),
        })
    }

    /// Makes other processes take this one for dead, as after `kill -9`. The store still answers requests.
    #[cfg(test)]
    pub(crate) fn simulate_crash(&self) {
        self.shared.endpoint.simulate_crash();
    }
}

impl From<SqliteStore> for Store {
    fn from(store: SqliteStore) -> Self {
        Self::new(store)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.name)
            .field("endpoint", &file_name(self.shared.endpoint.id, ""))
            .finish_non_exhaustive()
    }
}
