//! [`SqliteStore`]: a store in a SQLite database.
//!
//! One thread writes, and another one reads. The writer collects requests until it has to wait for the disk, and
//! waits once for all of them. The reader answers requests that write nothing, which include turns that find
//! nothing to do.
//!
//! Several processes on one machine may have the file open. Each is an [endpoint] in a folder beside the file.
//! Through this folder, the processes wake one another, and detect which of them have died.
//!
//! A request runs in a [`Transaction`], which changes the tables in these files, from top to bottom: `session`, `enqueue`,
//! `turn` and `admin` are the requests; `verdicts`, `claim`, `reap`, `renew` and `routing` are their parts; `task` has
//! the steps of a task; `ready_queue`, `claims`, `payload`, `progress`, `queues` and `meta` each read and write one table, and `steps` two.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use self::endpoint::file_name;
use self::error::Fault;
use self::next_check::UNREACHABLE_CHECK_INTERVAL;
use self::reader::{ReadConnection, Reader};
use self::shared::Shared;
use self::transaction::Transaction;
use self::writer::Writer;
use super::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, DrainedOutbox, Enqueue,
    Enqueued, Epoch, Event, FoundTask, HandOut, ListTasks, MAX_BATCH_BYTES, NewSession, NewStep,
    OutboxLook, ProgressReport, ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer,
    ScheduleChange, SessionId, SignalAnswer, StatReport, StatsPage, StepAnswer, StepName, Store,
    StoredSchedule, StoredStep, TaskState, Turn, TurnAnswer,
};
use crate::durable::clock::Clock;
use crate::durable::failure::{Cause, Failure};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::layouts::Layouts;
use crate::durable::task::bytes_of;
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, DurableError, Outbox, Overview,
    QueueHead, Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::{Mutex, lock};

mod admin;
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
/// - Transactions of yours in the same file can store tasks: see [`Outbox`](crate::durable::Outbox).
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

    /// Runs a query. If the data cannot be read, repairs the store and runs the query again.
    fn read<'a, T: Send + 'static>(
        &'a self,
        query: impl Fn(&ReadConnection) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Answer<'a, T> {
        let query = Arc::new(query);
        let run = move || {
            let query = Arc::clone(&query);
            self.reader.run(move |reader| query(reader))
        };
        Box::pin(async move {
            let repairs = self.shared.damage.repairs();
            match run().await {
                Err(failure) if failure.cause == Cause::Corrupt && self.writer.is_open() => {
                    self.writer.repair(repairs).await?;
                    run().await
                }
                answer => answer,
            }
        })
    }

    async fn hand_out_due(&self, computes: u8) -> Result<HandOut, Failure> {
        let next = self.read(move |reader| schedules::next_hand_out(reader, computes));
        match next.await? {
            Some(Duration::ZERO) => {
                let hand_out = move |tx: &mut Transaction<'_>| schedules::hand_out(tx, computes);
                self.writer.run(0, hand_out).await
            }
            // Nothing is due, so nothing is written.
            next => Ok(HandOut {
                due: Vec::new(),
                next,
            }),
        }
    }

    async fn take_turn(&self, request: Arc<Turn>) -> Result<TurnAnswer, Failure> {
        // A session that was woken is likely to find a task, so it does not check first.
        if request.verdicts.is_empty() && !self.shared.endpoint.was_woken(request.session) {
            let turn = Arc::clone(&request);
            let idle = self
                .reader
                .run(move |reader| idle::idle_turn(reader, &turn));
            // If the reader has failed, the writer reports the same failure, or repairs the store.
            if let Ok(Some(turned)) = idle.await {
                return Ok(turned);
            }
        }
        let turn = Arc::clone(&request);
        let bytes = turn::output_bytes(&request);
        let turned = self.writer.run(bytes, move |tx| turn::turn(tx, &turn));
        let mut turned = turned.await?;
        if request.go_idle && turned.claim.is_none() && !turned.more {
            let turned_idle = self
                .reader
                .run(move |reader| idle::go_idle(reader, &request));
            match turned_idle.await {
                Ok(Some(idle)) => turned.next = idle.next,
                // Meanwhile, there is something to do.
                Ok(None) => turned.next = Some(Duration::ZERO),
                Err(_) => turned.next = Some(UNREACHABLE_CHECK_INTERVAL),
            }
        }
        Ok(turned)
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

impl Backend for SqliteStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.writer.run(0, move |tx| session::open(tx, &session))
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.read(move |reader| workers::list(reader, after.as_deref(), limit))
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.read(move |reader| workers::find(reader, session))
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.writer.run(0, move |tx| session::close(tx, session))
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued> {
        let batch = Arc::clone(&request.batch);
        let run = move |tx: &mut Transaction<'_>| enqueue::enqueue(tx, &request);
        // The size is the maximum, since the tasks are only determined when they are written.
        self.writer.run_then(MAX_BATCH_BYTES, run, move |answer| {
            if let Ok(enqueued) = answer {
                batch.notify_stored(enqueued);
            }
        })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        Box::pin(self.take_turn(request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.writer.run(0, move |tx| renew::renew(tx, &claims))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.read(move |reader| queries::status(reader, &ids))
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        let bytes = reports.iter().map(|it| it.progress.bytes.len()).sum();
        self.writer
            .run(bytes, move |tx| progress::report(tx, &reports))
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.read(move |reader| progress::read(reader, &ids))
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        let bytes = steps.iter().map(NewStep::size).sum();
        self.writer.run(bytes, move |tx| steps::store(tx, &steps))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.read(move |reader| steps::read(reader, id))
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        let bytes = value.len();
        self.writer
            .run(bytes, move |tx| steps::signal(tx, id, &name, &value))
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.read(move |reader| list::list(reader, &request))
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.read(move |reader| find::find(reader, id))
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.read(move |reader| head::head(reader, &queue, limit))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.writer.run(0, move |tx| admin::cancel(tx, &ids))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.writer
            .run(0, move |tx| changes::change(tx, &ids, &change))
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.read(move |reader| queries::dead_letters(reader, &filter, limit))
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.read(move |reader| queries::dead_letter_payload(reader, id))
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.writer
            .run(0, move |tx| admin::replay_dead_letters(tx, &filter))
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.writer
            .run(0, move |tx| admin::delete_dead_letters(tx, &filter))
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        let set = move |tx: &mut Transaction<'_>| tx.set_paused(&name, is_paused);
        self.writer.run(0, set)
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        let change = move |tx: &mut Transaction<'_>| admin::change_queue(tx, &queue, change);
        self.writer.run(0, change)
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.read(move |reader| queries::queue(reader, &queue))
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        Box::pin(self.hand_out_due(computes))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.read(move |reader| schedules::get(reader, &name))
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.read(move |reader| schedules::list(reader, after.as_ref(), limit))
    }

    fn change_schedule(&self, change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        let bytes = bytes_of(&change.tasks);
        let run = move |tx: &mut Transaction<'_>| schedules::change(tx, &change);
        self.writer.run(bytes, run)
    }

    fn outbox_insert(&self) -> Result<Arc<str>, Cause> {
        Ok(Outbox::INSERT_SQLITE.into())
    }

    fn look_into_outbox(&self) -> Answer<'_, OutboxLook> {
        self.read(outbox::look)
    }

    fn drain_outbox(&self) -> Answer<'_, DrainedOutbox> {
        self.writer.run(MAX_BATCH_BYTES, outbox::drain)
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.read(queries::paused_types)
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.writer.run(0, move |tx| admin::maintain(tx, budget))
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            for _ in 0..2 {
                // If this fails, the next process removes the sessions.
                self.writer.run(0, session::close_all).await.ok();
            }
            self.reader.close().await;
            let closed = self.writer.close().await;
            self.shared.endpoint.close();
            closed
        })
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.read(move |reader| queries::errors(reader, id))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read(queries::counts)
    }

    fn record_stats(&self, report: Arc<StatReport>) -> Answer<'_, ()> {
        self.writer.run(0, move |tx| stats::record(tx, &report))
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.read(move |reader| stats::read(reader, &request))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.read(overview::overview)
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.read(diagnosis::diagnose)
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.read(retention::read)
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.writer.run(0, move |tx| {
            retention::change(tx, retention);
            Ok(())
        })
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.shared.damage.recent().map(|it| (it.rows, it.last))
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.read(session::layout)
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        self.writer.run(0, session::upgrade)
    }

    fn probe(&self) -> Answer<'_, Durability> {
        if !self.writer.is_open() {
            // Each connection that writes to a store waits for the disk.
            return Box::pin(async { Ok(Durability::Synced) });
        }
        self.writer.run(0, |tx| {
            // With `FULL` (2) and above, a commit of this connection waits for the disk.
            let synchronous = tx.number("PRAGMA synchronous", [])?;
            Ok(match synchronous {
                Some(2..) => Durability::Synced,
                _ => Durability::Process,
            })
        })
    }
}
