//! [`ThreadStore`], and the connection of one process to it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use throng::durable::store::{
    Answer, Backend, Change, ChangeAnswer, Clock, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch,
    Event, Failure, FoundTask, HandOut, Layouts, ListTasks, NewSession, NewStep, Observer,
    ProgressReport, ProgressState, QueueChange, QueueName, ReadStats, RenewAnswer, ScheduleAnswer,
    ScheduleChange, ScheduleName, SessionId, SignalAnswer, StatReport, StatsPage, StepAnswer,
    StepName, Store, StoredSchedule, StoredStep, TaskState, Turn, TurnAnswer,
};
use throng::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Overview, QueueHead, QueueInfo,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::fault::Forgetting;
use crate::model::Model;
use crate::worker::Worker;

/// A store whose data belongs to a thread. A clone refers to the same data, and counts as a process of its own once it is converted to a
/// [`Store`].
#[derive(Clone)]
pub struct ThreadStore {
    worker: Worker,
    forgetting: Forgetting,
}

impl ThreadStore {
    /// Creates an empty store that uses the clocks of the machine.
    #[allow(
        clippy::new_without_default,
        reason = "two default stores are not interchangeable"
    )]
    pub fn new() -> Self {
        Self::with_clock(&Clock::machine())
    }

    /// Creates an empty store that uses `clock`.
    pub fn with_clock(clock: &Clock) -> Self {
        Self {
            worker: Worker::start(clock),
            forgetting: Forgetting::default(),
        }
    }

    /// Returns a store with a defect that the suite must find: it does not remember the number of the last turn of a session, so it
    /// takes a turn that is sent again for a new one.
    pub fn forgetful(self) -> Self {
        Self {
            worker: self.worker,
            forgetting: Forgetting::always(),
        }
    }

    /// Returns a read-only view of this store.
    pub fn observe(&self) -> Store {
        Store::new(Observer::new(Connection {
            store: self.clone(),
            endpoint: Endpoint::default(),
            is_observer: true,
        }))
    }

    #[cfg(test)]
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }
}

impl From<ThreadStore> for Store {
    fn from(store: ThreadStore) -> Self {
        let endpoint = Endpoint::default();
        let connected = endpoint.clone();
        store
            .worker
            .tell(move |model| connected.set(model.connect()));
        Self::new(Connection {
            store,
            endpoint,
            is_observer: false,
        })
    }
}

impl fmt::Debug for ThreadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadStore").finish_non_exhaustive()
    }
}

/// The number of a process, which the thread sets before it runs any other request of the process. That of an observer is never set.
#[derive(Clone, Default)]
struct Endpoint(Arc<OnceLock<usize>>);

impl Endpoint {
    fn set(&self, number: usize) {
        self.0.set(number).ok();
    }

    /// Returns the number, or zero for an observer.
    fn number(&self) -> usize {
        self.0.get().copied().unwrap_or_default()
    }
}

/// The connection of one process.
struct Connection {
    store: ThreadStore,
    endpoint: Endpoint,
    is_observer: bool,
}

impl Connection {
    fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Runs a request on the thread.
    fn run<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Model, usize) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<'static, T> {
        let endpoint = self.endpoint();
        let on_thread = move |model: &mut Model| request(model, endpoint.number());
        self.store.worker.ask(on_thread)
    }
}

/// Passes events on to a client until it is gone.
async fn pass_on(mut events: mpsc::UnboundedReceiver<Event>, client: mpsc::UnboundedSender<Event>) {
    while let Some(event) = events.recv().await {
        if client.send(event).is_err() {
            return;
        }
    }
}

impl Backend for Connection {
    fn name(&self) -> &str {
        "thread"
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(self.store.worker.runtime())
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let endpoint = self.endpoint();
        self.store.worker.tell(move |model| {
            let events = model.subscribe(endpoint.number());
            tokio::spawn(pass_on(events, sender));
        });
        receiver
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.run(move |model, endpoint| Ok(model.open_session(endpoint, session)))
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.run(move |model, _| Ok(model.workers(after.as_deref(), limit)))
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.run(move |model, _| Ok(model.find_worker(session)))
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.run(move |model, _| {
            model.close_session(session);
            Ok(())
        })
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued> {
        let request = self.store.forgetting.widen(request);
        self.run(move |model, endpoint| model.enqueue(endpoint, &request))
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        let request = self.store.forgetting.read(request);
        self.run(move |model, _| model.turn(&request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.run(move |model, _| Ok(model.renew(&claims)))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.run(move |model, endpoint| Ok(model.status(Some(endpoint).filter(|it| *it > 0), &ids)))
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.run(move |model, _| Ok(model.errors(id)))
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        self.run(move |model, _| Ok(model.report_progress(&reports)))
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.run(move |model, _| Ok(model.progress(&ids)))
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        self.run(move |model, _| Ok(model.store_steps(&steps)))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.run(move |model, _| Ok(model.steps(id)))
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        self.run(move |model, _| Ok(model.signal(id, &name, &value)))
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.run(move |model, _| Ok(model.list(&request)))
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.run(move |model, _| Ok(model.find(id)))
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.run(move |model, _| Ok(model.head(&queue, limit)))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.run(move |model, _| Ok(model.cancel(&ids)))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.run(move |model, _| Ok(model.change(&ids, &change)))
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.run(move |model, _| Ok(model.dead_letters(&filter, limit)))
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.run(move |model, _| Ok(model.dead_letter_payload(id)))
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.run(move |model, _| Ok(model.replay_dead_letters(&filter)))
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.run(move |model, _| Ok(model.delete_dead_letters(&filter)))
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.run(move |model, _| Ok(model.maintain(budget)))
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.run(move |model, _| Ok(model.retention()))
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.run(move |model, _| {
            model.set_retention(retention);
            Ok(())
        })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.run(move |model, _| Ok(model.counts()))
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        self.run(move |model, _| {
            model.set_paused(name, is_paused);
            Ok(())
        })
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.run(move |model, _| Ok(model.paused_types()))
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        self.run(move |model, _| Ok(model.change_queue(queue, change)))
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.run(move |model, _| Ok(model.queue(&queue)))
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        self.run(move |model, _| Ok(model.hand_out(computes)))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.run(move |model, _| Ok(model.schedule(&name)))
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.run(move |model, _| Ok(model.schedules(after.as_ref(), limit)))
    }

    fn change_schedule(&self, change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        self.run(move |model, endpoint| Ok(model.change_schedule(endpoint, &change)))
    }

    fn record_stats(&self, report: Arc<StatReport>) -> Answer<'_, ()> {
        self.run(move |model, _| {
            model.record_stats(&report);
            Ok(())
        })
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.run(move |model, _| Ok(model.stats(&request)))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.run(move |model, _| Ok(model.overview()))
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.run(move |model, _| Ok(model.diagnose().into()))
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.run(move |_, _| {
            Ok(StoreLayout {
                current: Layouts::KNOWN.newest,
                newest: Layouts::KNOWN.newest,
                older_processes: Vec::new(),
            })
        })
    }

    /// One process has the store, so it always has the newest layout.
    fn upgrade(&self) -> Answer<'_, ()> {
        self.run(move |_, _| Ok(()))
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.run(move |_, _| Ok(Durability::Memory))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let endpoint = self.endpoint();
        if !self.is_observer {
            let disconnect = move |model: &mut Model| model.disconnect(endpoint.number());
            self.store.worker.tell(disconnect);
        }
    }
}
