//! [`MemoryStore`]: a store in the memory of a process, for tests.

use std::fmt;
use std::sync::Arc as StdArc;

#[cfg(test)]
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::model::Model;
use super::observer::Observer;
use super::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch, Event,
    FoundTask, HandOut, ListTasks, NewSession, NewStep, ProgressReport, ProgressState, QueueChange,
    ReadStats, RenewAnswer, ScheduleAnswer, ScheduleChange, SessionId, SignalAnswer, StatReport,
    StatsPage, StepAnswer, StepName, Store, StoredSchedule, StoredStep, TaskState, Turn,
    TurnAnswer,
};
use crate::durable::clock::Clock;
use crate::durable::failure::Failure;
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::layouts::Layouts;
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Overview, QueueHead, Retention,
    StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::{Mutex, lock};

mod model;

/// A store in the memory of a process, for tests.
///
/// The tasks are lost when the last clone of the store is dropped. Otherwise, it behaves like the other stores. With
/// [`with_clock`](Self::with_clock), a test controls the time: delays, leases and retention then follow that
/// [`Clock`], whether or not an executor runs.
///
/// A clone refers to the same tasks. Each clone that is converted to a [`Store`] counts as a process of its own: when that
/// `Store` is dropped, the other ones take back the tasks that it was running.
///
/// # Examples
///
/// ```
/// use throng::durable::{DurableClient, MemoryStore};
///
/// let store = MemoryStore::new();
/// let web = DurableClient::open(store.clone());
/// let worker = DurableClient::open(store);
/// # drop((web, worker));
/// ```
#[derive(Clone)]
pub struct MemoryStore(StdArc<Mutex<Model>>);

impl MemoryStore {
    /// Creates an empty store that uses the clocks of the machine.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{DurableClient, MemoryStore};
    ///
    /// let client = DurableClient::open(MemoryStore::new());
    /// # drop(client);
    /// ```
    #[allow(
        clippy::new_without_default,
        reason = "two default stores are not interchangeable"
    )]
    pub fn new() -> Self {
        Self::with_clock(&Clock::machine())
    }

    /// Creates an empty store that uses `clock`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::durable::{Clock, DurableClient, MemoryStore};
    ///
    /// let clock = Clock::manual();
    /// let client = DurableClient::open(MemoryStore::with_clock(&clock));
    /// // Tasks that are delayed by up to an hour become due.
    /// clock.advance(Duration::from_secs(3600));
    /// # drop(client);
    /// ```
    pub fn with_clock(clock: &Clock) -> Self {
        let model = StdArc::new(Mutex::new(Model::new(clock.clone())));
        let watched = StdArc::downgrade(&model);
        clock.watch(move || {
            let model = watched.upgrade();
            model.map(|model| lock(&model).wake_all()).is_some()
        });
        Self(model)
    }

    /// Returns a read-only view of this store. A client of it has no effect on the store, and other processes do not see it. Requests that
    /// would change something fail with an error that [`is_read_only`](crate::durable::DurableError::is_read_only).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{DurableClient, MemoryStore, TaskId};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let observer = DurableClient::open(store.observe());
    /// assert_eq!(observer.counts().await?.waiting, 0);
    /// assert!(observer.cancel(&[TaskId::new()]).await.is_err_and(|error| error.is_read_only()));
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Store {
        Store::new(Observer::new(Connection {
            store: self.clone(),
            endpoint: None,
            #[cfg(test)]
            test: None,
        }))
    }

    /// Connects a process whose engine runs in this runtime. If the runtime is paused, time passes when nothing happens.
    /// Before each request, `before` is called with its name. The request waits for the returned future, and fails with
    /// its error.
    #[cfg(test)]
    pub(crate) fn within(
        &self,
        runtime: &Handle,
        before: impl Fn(&'static str) -> Answer<'static, ()> + Send + Sync + 'static,
    ) -> Store {
        let endpoint = Some(lock(&self.0).connect());
        Store::new(Connection {
            store: self.clone(),
            endpoint,
            test: Some(Test {
                runtime: runtime.clone(),
                before: Box::new(before),
            }),
        })
    }

    /// Sends an event to all processes.
    #[cfg(test)]
    pub(crate) fn send_all(&self, event: &Event) {
        lock(&self.0).send_all(event);
    }

    /// Returns the number of rows in the statistics.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(crate) fn statistics(&self) -> u64 {
        lock(&self.0).statistics()
    }

    /// Returns a text that changes if the contents of the store change.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(crate) fn summary(&self) -> String {
        lock(&self.0).summary()
    }

    /// Returns the number of tasks, claims and sessions, none of which should be left when a test ends.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(crate) fn leftovers(&self) -> u64 {
        lock(&self.0).leftovers()
    }
}

impl From<MemoryStore> for Store {
    fn from(store: MemoryStore) -> Self {
        let endpoint = Some(lock(&store.0).connect());
        Self::new(Connection {
            store,
            endpoint,
            #[cfg(test)]
            test: None,
        })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("counts", &lock(&self.0).counts())
            .finish()
    }
}

/// The connection of one process.
struct Connection {
    store: MemoryStore,
    /// `None` for an observer, which changes nothing and receives no notifications.
    endpoint: Option<usize>,
    #[cfg(test)]
    test: Option<Test>,
}

/// The way in which a test has changed a connection.
#[cfg(test)]
struct Test {
    runtime: Handle,
    before: Box<dyn Fn(&'static str) -> Answer<'static, ()> + Send + Sync>,
}

impl Connection {
    /// Returns the number of the endpoint. No endpoint has the number 0, and no request of an observer uses it.
    fn endpoint(&self) -> usize {
        self.endpoint.unwrap_or_default()
    }

    /// Runs a request, which the model answers immediately.
    #[cfg_attr(not(test), allow(unused_variables, reason = "tests use the name"))]
    fn run<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        request: impl FnOnce(&mut Model, usize) -> Result<T, Failure> + Send + 'a,
    ) -> Answer<'a, T> {
        #[cfg(test)]
        if let Some(test) = &self.test {
            let before = (test.before)(name);
            return Box::pin(async move {
                before.await?;
                request(&mut lock(&self.store.0), self.endpoint())
            });
        }
        let answer = request(&mut lock(&self.store.0), self.endpoint());
        Box::pin(async move { answer })
    }
}

impl Backend for Connection {
    fn name(&self) -> &str {
        "memory"
    }

    #[cfg(test)]
    fn runtime(&self) -> Option<&Handle> {
        self.test.as_ref().map(|test| &test.runtime)
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        lock(&self.store.0).subscribe(self.endpoint())
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.run("open_session", move |model, endpoint| {
            Ok(model.open_session(endpoint, session))
        })
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.run("workers", move |model, _| {
            Ok(model.workers(after.as_deref(), limit))
        })
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.run("worker", move |model, _| Ok(model.find_worker(session)))
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.run("close_session", move |model, _| {
            model.close_session(session);
            Ok(())
        })
    }

    fn enqueue(&self, request: StdArc<Enqueue>) -> Answer<'_, Enqueued> {
        self.run("enqueue", move |model, endpoint| {
            model.enqueue(endpoint, &request)
        })
    }

    fn turn(&self, request: StdArc<Turn>) -> Answer<'_, TurnAnswer> {
        self.run("turn", move |model, _| model.turn(&request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.run("renew", move |model, _| Ok(model.renew(&claims)))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        let watcher = self.endpoint;
        self.run("status", move |model, _| Ok(model.status(watcher, &ids)))
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.run("errors", move |model, _| Ok(model.errors(id)))
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        self.run("report_progress", move |model, _| {
            Ok(model.report_progress(&reports))
        })
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.run("progress", move |model, _| Ok(model.progress(&ids)))
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        self.run("store_steps", move |model, _| Ok(model.store_steps(&steps)))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.run("steps", move |model, _| Ok(model.steps(id)))
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        self.run(
            "signal",
            move |model, _| Ok(model.signal(id, &name, &value)),
        )
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.run("list", move |model, _| Ok(model.list(&request)))
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.run("find", move |model, _| Ok(model.find(id)))
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.run("head", move |model, _| Ok(model.head(&queue, limit)))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.run("cancel", move |model, _| Ok(model.cancel(&ids)))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.run("change", move |model, _| Ok(model.change(&ids, &change)))
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.run("dead_letters", move |model, _| {
            Ok(model.dead_letters(&filter, limit))
        })
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.run("dead_letter_payload", move |model, _| {
            Ok(model.dead_letter_payload(id))
        })
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.run("replay_dead_letters", move |model, _| {
            Ok(model.replay_dead_letters(&filter))
        })
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.run("delete_dead_letters", move |model, _| {
            Ok(model.delete_dead_letters(&filter))
        })
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.run("maintain", move |model, _| Ok(model.maintain(budget)))
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.run("retention", move |model, _| Ok(model.retention()))
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.run("set_retention", move |model, _| {
            model.set_retention(retention);
            Ok(())
        })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.run("counts", move |model, _| Ok(model.counts()))
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        self.run("set_paused", move |model, _| {
            model.set_paused(name, is_paused);
            Ok(())
        })
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.run("paused_types", move |model, _| Ok(model.paused_types()))
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        self.run("change_queue", move |model, _| {
            Ok(model.change_queue(queue, change))
        })
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.run("queue", move |model, _| Ok(model.queue(&queue)))
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        self.run("hand out", move |model, _| Ok(model.hand_out(computes)))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.run("schedule", move |model, _| Ok(model.schedule(&name)))
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.run("schedules", move |model, _| {
            Ok(model.schedules(after.as_ref(), limit))
        })
    }

    fn change_schedule(&self, change: StdArc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        self.run("change_schedule", move |model, endpoint| {
            Ok(model.change_schedule(endpoint, &change))
        })
    }

    fn record_stats(&self, report: StdArc<StatReport>) -> Answer<'_, ()> {
        self.run("record_stats", move |model, _| {
            model.record_stats(&report);
            Ok(())
        })
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.run("stats", move |model, _| Ok(model.stats(&request)))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.run("overview", move |model, _| Ok(model.overview()))
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.run("diagnose", move |model, _| Ok(model.diagnose().into()))
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.run("layout", move |_, _| {
            Ok(StoreLayout {
                current: Layouts::KNOWN.newest,
                newest: Layouts::KNOWN.newest,
                older_processes: Vec::new(),
            })
        })
    }

    /// One process uses the store, so it always has the newest layout.
    fn upgrade(&self) -> Answer<'_, ()> {
        self.run("upgrade", move |_, _| Ok(()))
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.run("probe", move |_, _| Ok(Durability::Memory))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint {
            lock(&self.store.0).disconnect(endpoint);
        }
    }
}
