//! [`Observer`]: a store that is opened read-only.

use std::sync::Arc as StdArc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch, Event,
    FoundTask, HandOut, ListTasks, MoveWaiting, MovedPart, NewSession, NewStep, ProgressReport,
    ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer, ScheduleChange, SessionId,
    SignalAnswer, StatReport, StatsPage, StepAnswer, StepName, StoredSchedule, StoredStep,
    TaskState, Turn, TurnAnswer,
};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::key::KeyHash;
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};

/// A store that is opened read-only: it passes on the requests that read, and refuses all others.
///
/// This is the only place that decides which requests an observer may make. To answer them, the store must write nothing, not even a record
/// of the observer.
pub(crate) struct Observer<B>(B);

impl<B: Backend> Observer<B> {
    pub(crate) fn new(store: B) -> Self {
        Self(store)
    }
}

/// Refuses a request that would change the store.
fn refuse<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(async { Err(Failure::new(Effect::None, Cause::Observed)) })
}

impl<B: Backend> Backend for Observer<B> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn runtime(&self) -> Option<&Handle> {
        self.0.runtime()
    }

    /// An observer receives no events, since it would have to register for them. Its handles poll.
    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        mpsc::unbounded_channel().1
    }

    fn suits_parent(&self, id: TaskId, queue: &QueueName, parent: TaskId) -> bool {
        self.0.suits_parent(id, queue, parent)
    }

    fn can_have(&self, id: TaskId, queue: &QueueName, key: Option<KeyHash>) -> bool {
        self.0.can_have(id, queue, key)
    }

    // ===== Requests that are passed on =====

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.0.status(ids)
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.0.errors(id)
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.0.progress(ids)
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.0.steps(id)
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.0.list(request)
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.0.find(id)
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.0.layout()
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.0.head(queue, limit)
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.0.dead_letters(filter, limit)
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.0.dead_letter_payload(id)
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.0.paused_types()
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.0.queue(queue)
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.0.schedule(name)
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.0.schedules(after, limit)
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.0.workers(after, limit)
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.0.worker(session)
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.0.counts()
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.0.stats(request)
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.0.overview()
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.0.diagnose()
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.0.retention()
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.0.probe()
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.0.damage()
    }

    /// An observer without notifications is healthy, since it needs none.
    fn health(&self) -> Health {
        match self.0.health() {
            Health::Mute => Health::Well,
            health => health,
        }
    }

    fn close(&self) -> Answer<'_, ()> {
        self.0.close()
    }

    // ===== Requests that are refused =====

    fn open_session_with(&self, _: NewSession) -> Answer<'_, SessionId> {
        refuse()
    }

    fn close_session(&self, _: SessionId) -> Answer<'_, ()> {
        refuse()
    }

    fn enqueue(&self, _: StdArc<Enqueue>) -> Answer<'_, Enqueued> {
        refuse()
    }

    fn turn(&self, _: StdArc<Turn>) -> Answer<'_, TurnAnswer> {
        refuse()
    }

    fn renew(&self, _: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        refuse()
    }

    fn report_progress(&self, _: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        refuse()
    }

    fn store_steps(&self, _: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        refuse()
    }

    fn signal(&self, _: TaskId, _: StepName, _: Vec<u8>) -> Answer<'_, SignalAnswer> {
        refuse()
    }

    fn change(&self, _: Vec<TaskId>, _: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        refuse()
    }

    fn move_waiting(&self, _: MoveWaiting) -> Answer<'_, Option<MovedPart>> {
        refuse()
    }

    fn cancel(&self, _: Vec<TaskId>) -> Answer<'_, u64> {
        refuse()
    }

    fn replay_dead_letters(&self, _: DeadFilter) -> Answer<'_, u64> {
        refuse()
    }

    fn delete_dead_letters(&self, _: DeadFilter) -> Answer<'_, u64> {
        refuse()
    }

    fn set_paused(&self, _: String, _: bool) -> Answer<'_, ()> {
        refuse()
    }

    fn change_queue(&self, _: QueueName, _: QueueChange) -> Answer<'_, bool> {
        refuse()
    }

    fn hand_out(&self, _: u8) -> Answer<'_, HandOut> {
        refuse()
    }

    fn outbox_insert(&self) -> Result<StdArc<str>, Cause> {
        Err(Cause::Observed)
    }

    fn change_schedule(&self, _: StdArc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        refuse()
    }

    fn record_stats(&self, _: StdArc<StatReport>) -> Answer<'_, ()> {
        refuse()
    }

    fn maintain(&self, _: usize) -> Answer<'_, bool> {
        refuse()
    }

    fn set_retention(&self, _: Retention) -> Answer<'_, ()> {
        refuse()
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        refuse()
    }
}
