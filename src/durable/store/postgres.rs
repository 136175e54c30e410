//! [`PostgresStore`]: a store in a PostgreSQL database.
//!
//! One connection writes, another one reads, and a third one receives the notifications of other processes. The writer runs requests that
//! arrive together in one transaction. The requests that run most often share the store, and rely on the locks of rows; all others have it for
//! themselves while they run: see `transaction.rs`.
//!
//! The files, from top to bottom: `session`, `enqueue`, `turn`, `cancel` and `queries` are the requests; `verdicts`, `claim`, `reap`, `renew`,
//! `idle` and `next_check` are their parts; `task` has the steps of a task; `line`, `claims`, `queues`, `groups`, `keys`, `steps`, `totals` and
//! `meta` each read and write one or two tables; `notices` chooses whom to notify. `schema.sql` describes the tables.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::connection::Server;
use self::idle::Idle;
use self::reader::Reader;
use self::shared::Shared;
pub(crate) use self::time::Time;
use self::writer::Writer;
use super::layouts::Layouts;
use super::observer::Observer;
use super::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch, Event,
    FoundTask, HandOut, ListTasks, NewSession, NewStep, ProgressReport, ProgressState, QueueChange,
    ReadStats, RenewAnswer, ScheduleAnswer, ScheduleChange, SessionId, SignalAnswer, StatReport,
    StatsPage, StepAnswer, StepName, Store, StoredSchedule, StoredStep, TaskState, Turn,
    TurnAnswer,
};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, DurableError, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::{Mutex, lock, thread};

mod cancel;
mod claim;
mod claims;
mod connection;
mod enqueue;
mod error;
mod groups;
mod idle;
mod keys;
mod kinds;
mod line;
mod listener;
mod meta;
mod migrate;
mod next_check;
mod notices;
mod queries;
mod queues;
mod reader;
mod reap;
mod renew;
mod schedules;
mod session;
mod shared;
mod state;
mod steps;
mod task;
#[cfg(test)]
pub(in crate::durable::store) mod tests;
mod text;
mod time;
mod totals;
mod transaction;
mod turn;
mod verdicts;
mod view;
mod writer;

/// A store in a PostgreSQL database, version 13 or later, for the processes of any number of machines.
///
/// The tables are in a schema of their own, `throng` by default, which is created when the store is opened for the first time.
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

/// Configures and opens a store in PostgreSQL. [`PostgresStore::builder`] creates one.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct PostgresStoreBuilder {
    url: String,
    schema: String,
    connect_timeout: Duration,
    layouts: Layouts,
}

impl PostgresStore {
    /// Opens the store at `url`: `postgres://user:password@host:port/database`.
    ///
    /// # Errors
    ///
    /// - if `url` is not a valid address ([`is_invalid`](DurableError::is_invalid));
    /// - if the server cannot be reached;
    /// - if the user may not log in or create the tables ([`is_denied`](DurableError::is_denied)).
    pub async fn open(url: &str) -> Result<Self, DurableError> {
        Self::builder(url).open().await
    }

    /// Returns a builder, which configures and opens a store.
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder {
            url: url.to_owned(),
            schema: String::from("throng"),
            connect_timeout: Duration::from_secs(5),
            layouts: Layouts::KNOWN,
        }
    }

    /// Opens the store with a source of time.
    pub(crate) async fn open_as(
        builder: &PostgresStoreBuilder,
        time: Time,
    ) -> Result<Self, DurableError> {
        let name = builder.name();
        let opened = Self::try_open(builder, &name, time).await;
        opened.map_err(|failure| DurableError::store(&name, None, failure))
    }

    /// Observes the store with a source of time.
    pub(crate) async fn observe_as(
        builder: &PostgresStoreBuilder,
        time: Time,
    ) -> Result<Store, DurableError> {
        let name = builder.name();
        let observed = Self::try_observe(builder, &name, time).await;
        let store = observed.map_err(|failure| DurableError::store(&name, None, failure))?;
        Ok(Store::new(Observer::new(store)))
    }

    async fn try_open(
        builder: &PostgresStoreBuilder,
        name: &Arc<str>,
        time: Time,
    ) -> Result<Self, Failure> {
        let store = Self::start(builder, name, time, false)?;
        // The writer creates the tables when it connects.
        store.write((), |_, ()| Box::pin(async { Ok(()) })).await?;
        let (sender, events) = mpsc::unbounded_channel();
        store.shared.time.watch(&sender);
        let listener = listener::listen(Arc::clone(&store.shared), sender);
        store.runtime.spawn(listener);
        *lock(&store.events) = Some(events);
        Ok(store)
    }

    async fn try_observe(
        builder: &PostgresStoreBuilder,
        name: &Arc<str>,
        time: Time,
    ) -> Result<Self, Failure> {
        let store = Self::start(builder, name, time, true)?;
        store.read((), |_, ()| Box::pin(async { Ok(()) })).await?;
        Ok(store)
    }

    fn start(
        builder: &PostgresStoreBuilder,
        name: &Arc<str>,
        time: Time,
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
    fn write<R, T>(&self, request: R, run: writer::Run<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.writer.run(request, false, run)
    }

    /// Runs a request whose transaction has the store for itself.
    fn write_alone<R, T>(&self, request: R, run: writer::Run<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.writer.run(request, true, run)
    }

    /// Runs a request that writes nothing.
    fn read<R, T>(&self, request: R, query: reader::Query<R, T>) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.reader.read(request, query)
    }

    async fn read_status(&self, ids: Vec<TaskId>) -> Result<Vec<TaskState>, Failure> {
        let watch = self.reader.work(ids.clone(), |db, shared, ids| {
            Box::pin(queries::watch(db, shared, ids))
        });
        watch.await?;
        self.read(ids, |view, ids| Box::pin(queries::status(view, ids)))
            .await
    }

    async fn take_turn(&self, request: Arc<Turn>) -> Result<TurnAnswer, Failure> {
        let set = lock(&self.shared.sets)
            .get(&request.session)
            .cloned()
            .flatten();
        // A queue with limits is served by one turn at a time.
        let is_alone = set.as_ref().is_some_and(|set| !set.queue().is_default());
        let turn = Arc::clone(&request);
        let turn = self
            .writer
            .run(turn, is_alone, |tx, turn| Box::pin(turn::turn(tx, turn)));
        let mut turned = turn.await?;
        let has_nothing = turned.claim.is_none() && !turned.more;
        if let Some(set) = set.filter(|_| request.go_idle && has_nothing) {
            let idle = Idle {
                session: request.session,
                set,
                quarantined: request.quarantined,
            };
            let looked = self.go_idle(idle).await;
            // If this fails, the session looks again soon.
            turned.next = looked.map_or(Some(next_check::UNREACHABLE_CHECK_INTERVAL), |it| it.next);
        }
        Ok(turned)
    }

    /// Makes a session idle, to be woken when there is something to do.
    async fn go_idle(&self, idle: Idle) -> Result<TurnAnswer, Failure> {
        let park = self.reader.work(idle.clone(), |db, shared, idle| {
            Box::pin(idle::park(db, shared, idle))
        });
        park.await?;
        self.read(idle, |view, idle| {
            Box::pin(idle::look_once_more(view, idle))
        })
        .await
    }

    /// Returns the id by which other processes notify this one.
    #[cfg(test)]
    pub(crate) fn endpoint(&self) -> i64 {
        self.shared.endpoint
    }
}

impl PostgresStoreBuilder {
    /// Sets the schema of the tables, which separates the store from others in the same database. The default is `throng`.
    pub fn schema(&mut self, schema: impl Into<String>) -> &mut Self {
        self.schema = schema.into();
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// The same as those of [`PostgresStore::open`].
    pub async fn open(&self) -> Result<PostgresStore, DurableError> {
        PostgresStore::open_as(self, Time::server()).await
    }

    /// Opens the store read-only. A client of it has no effect on the store.
    ///
    /// # Errors
    ///
    /// The same as those of [`PostgresStore::open`], and if the schema contains no store ([`is_invalid`](DurableError::is_invalid)).
    pub async fn observe(&self) -> Result<Store, DurableError> {
        PostgresStore::observe_as(self, Time::server()).await
    }

    fn server(&self) -> Result<Server, Failure> {
        let config: Result<Config, _> = self.url.parse();
        let invalid = |error| {
            let text = String::from("use postgres://user:password@host:port/database");
            Failure::new(Effect::None, Cause::Invalid(text)).with_source(error)
        };
        let mut config = config.map_err(invalid)?;
        if config.get_application_name().is_none() {
            config.application_name("throng");
        }
        config.tcp_user_timeout(Duration::from_secs(15));
        Ok(Server {
            config,
            schema: self.schema.as_str().into(),
            connect_timeout: self.connect_timeout,
        })
    }

    /// Returns the name of the store in messages. It does not contain the password.
    fn name(&self) -> Arc<str> {
        let config: Config = self.url.parse().unwrap_or_default();
        let host = config.get_hosts().first().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        });
        let database = config.get_dbname().unwrap_or("postgres");
        let host = host.unwrap_or_default();
        format!("postgres://{host}/{database} ({})", self.schema).into()
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

/// Answers a request that is not written yet.
fn unwritten<T: Send + 'static>(what: &'static str) -> Answer<'static, T> {
    Box::pin(async move { Err(error::unwritten(what).failure(Effect::None)) })
}

impl Backend for PostgresStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.write_alone(session, |tx, new| Box::pin(session::open(tx, new)))
    }

    fn workers(&self, _after: Option<Vec<u8>>, _limit: usize) -> Answer<'_, Option<WorkersPage>> {
        unwritten("workers")
    }

    fn worker(&self, _session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        unwritten("worker")
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.write_alone(session, |tx, session| {
            Box::pin(session::close(tx, *session))
        })
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued> {
        let batch = Arc::clone(&request.batch);
        let stored = self.write(request, |tx, it| Box::pin(enqueue::enqueue(tx, it)));
        Box::pin(async move {
            stored
                .await
                .inspect(|enqueued| batch.notify_stored(enqueued))
        })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        Box::pin(self.take_turn(request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.write(claims, |tx, claims| Box::pin(renew::renew(tx, claims)))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        Box::pin(self.read_status(ids))
    }

    fn report_progress(&self, _reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        unwritten("report_progress")
    }

    fn progress(&self, _ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        unwritten("progress")
    }

    fn store_steps(&self, _steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        unwritten("store_steps")
    }

    fn steps(&self, _id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        unwritten("steps")
    }

    fn signal(&self, _id: TaskId, _name: StepName, _value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        unwritten("signal")
    }

    fn list(&self, _request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        unwritten("list")
    }

    fn find(&self, _id: TaskId) -> Answer<'_, Option<FoundTask>> {
        unwritten("find")
    }

    fn head(&self, _queue: QueueName, _limit: usize) -> Answer<'_, QueueHead> {
        unwritten("head")
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.write_alone(ids, |tx, ids| Box::pin(cancel::cancel(tx, ids)))
    }

    fn change(&self, _ids: Vec<TaskId>, _change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        unwritten("change")
    }

    fn dead_letters(&self, _filter: DeadFilter, _limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        unwritten("dead_letters")
    }

    fn dead_letter_payload(&self, _id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        unwritten("dead_letter_payload")
    }

    fn replay_dead_letters(&self, _filter: DeadFilter) -> Answer<'_, u64> {
        unwritten("replay_dead_letters")
    }

    fn delete_dead_letters(&self, _filter: DeadFilter) -> Answer<'_, u64> {
        unwritten("delete_dead_letters")
    }

    fn set_paused(&self, _name: String, _is_paused: bool) -> Answer<'_, ()> {
        unwritten("set_paused")
    }

    fn change_queue(&self, _queue: QueueName, _change: QueueChange) -> Answer<'_, bool> {
        unwritten("change_queue")
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.read(queue, |view, queue| Box::pin(queries::queue(view, queue)))
    }

    fn hand_out(&self, _computes: u8) -> Answer<'_, HandOut> {
        unwritten("hand_out")
    }

    fn schedule(&self, _name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        unwritten("schedule")
    }

    fn schedules(
        &self,
        _after: Option<ScheduleName>,
        _limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        unwritten("schedules")
    }

    fn change_schedule(&self, _change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        unwritten("change_schedule")
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.read((), |view, it| Box::pin(queries::paused_types(view, it)))
    }

    fn maintain(&self, _budget: usize) -> Answer<'_, bool> {
        unwritten("maintain")
    }

    fn close(&self) -> Answer<'_, ()> {
        self.write_alone((), |tx, ()| Box::pin(session::close_all(tx)))
    }

    fn errors(&self, _id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        unwritten("errors")
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read((), |view, it| Box::pin(queries::counts(view, it)))
    }

    fn record_stats(&self, _report: Arc<StatReport>) -> Answer<'_, ()> {
        unwritten("record_stats")
    }

    fn stats(&self, _request: ReadStats) -> Answer<'_, StatsPage> {
        unwritten("stats")
    }

    fn overview(&self) -> Answer<'_, Overview> {
        unwritten("overview")
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        unwritten("diagnose")
    }

    fn retention(&self) -> Answer<'_, Retention> {
        unwritten("retention")
    }

    fn set_retention(&self, _retention: Retention) -> Answer<'_, ()> {
        unwritten("set_retention")
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.read((), |view, ()| Box::pin(session::layout(view)))
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        self.write_alone((), |tx, ()| Box::pin(session::upgrade(tx)))
    }

    fn probe(&self) -> Answer<'_, Durability> {
        unwritten("probe")
    }
}
