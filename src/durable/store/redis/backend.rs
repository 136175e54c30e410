//! Passes each request of a store to the module that answers it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{
    RedisStore, admin, changes, diagnosis, enqueue, find_task, list_tasks, maintenance,
    move_waiting, overview, probe, progress, queues, renew, retention, routing, schedules,
    sessions, stats, steps, turns, workers,
};
use crate::durable::key::KeyHash;
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch, Event,
    FoundTask, HandOut, ListTasks, MoveWaiting, MovedPart, NewSession, NewStep, ProgressReport,
    ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer, ScheduleChange, SessionId,
    SignalAnswer, StatReport, StatsPage, StepAnswer, StepName, StoredSchedule, StoredStep,
    TaskState, Turn, TurnAnswer,
};
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::lock;

impl Backend for RedisStore {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.request(|inner| async move { sessions::open_session(&inner, session).await })
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.request(move |inner| async move { workers::list(&inner, after, limit).await })
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.request(move |inner| async move { workers::find(&inner, session).await })
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.request(move |inner| async move { sessions::close_session(&inner, session).await })
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued> {
        self.request(move |inner| async move { enqueue::enqueue(&inner, &request).await })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        self.request(move |inner| async move { turns::turn(&inner, &request).await })
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.request(move |inner| async move { renew::renew(&inner, claims).await })
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.request(move |inner| async move { admin::status(&inner, &ids).await })
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        self.request(move |inner| async move { progress::report(&inner, reports).await })
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.request(move |inner| async move { progress::read(&inner, &ids).await })
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        self.request(move |inner| async move { steps::store(&inner, &steps).await })
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.request(move |inner| async move { steps::read(&inner, id).await })
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        self.request(move |inner| async move { steps::signal(&inner, id, &name, &value).await })
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.request(move |inner| async move { admin::cancel(&inner, &ids).await })
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.request(move |inner| async move { changes::change(&inner, &ids, &change).await })
    }

    fn move_waiting(&self, request: MoveWaiting) -> Answer<'_, Option<MovedPart>> {
        self.request(move |inner| async move { move_waiting::move_waiting(&inner, &request).await })
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.request(move |inner| async move { admin::dead_letters(&inner, &filter, limit).await })
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.request(move |inner| async move { admin::dead_letter_payload(&inner, id).await })
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.request(move |inner| async move { admin::replay(&inner, &filter).await })
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.request(move |inner| async move { admin::delete(&inner, &filter).await })
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.maintain_every(Duration::ZERO, budget)
    }

    fn maintain_every(&self, interval: Duration, budget: usize) -> Answer<'_, bool> {
        self.request(
            move |inner| async move { maintenance::maintain(&inner, interval, budget).await },
        )
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        self.request(
            move |inner| async move { routing::set_paused(&inner, &name, is_paused).await },
        )
    }

    fn suits_parent(&self, id: TaskId, queue: &QueueName, parent: TaskId) -> bool {
        let partitions = self.inner.partitions;
        let fixed_partition = partitions.of_queue_or_key(queue, None);
        partitions.of_task(id) == fixed_partition.unwrap_or_else(|| partitions.of_task(parent))
    }

    fn can_have(&self, id: TaskId, queue: &QueueName, key: Option<KeyHash>) -> bool {
        let fixed_partition = self.inner.partitions.of_queue_or_key(queue, key);
        fixed_partition
            .is_none_or(|fixed_partition| fixed_partition == self.inner.partitions.of_task(id))
    }

    fn is_reachable(&self, id: TaskId) -> bool {
        let partition = self.inner.partitions.of_task(id);
        self.inner.nodes.is_reachable(partition)
    }

    /// If there are several partitions, a turn may pass over some of them.
    fn tells_all_ticks(&self) -> bool {
        self.inner.partitions.count() == 1
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        self.request(move |inner| async move { queues::change(&inner, &queue, change).await })
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.request(move |inner| async move { queues::read(&inner, &queue).await })
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        self.request(move |inner| async move { schedules::hand_out(inner, computes).await })
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.request(move |inner| async move { schedules::get(&inner, &name).await })
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.request(
            move |inner| async move { schedules::list(&inner, after.as_ref(), limit).await },
        )
    }

    fn change_schedule(&self, change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        self.request(move |inner| async move { schedules::change(&inner, &change).await })
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.request(|inner| async move { routing::paused_types(&inner).await })
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.request(move |inner| async move { list_tasks::list(&inner, &request).await })
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.request(move |inner| async move { find_task::find(&inner, id).await })
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.request(move |inner| async move { find_task::head(&inner, &queue, limit).await })
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.request(move |inner| async move { admin::errors(&inner, id).await })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.request(|inner| async move { admin::counts(&inner).await })
    }

    fn record_stats(&self, report: Arc<StatReport>) -> Answer<'_, ()> {
        self.request(move |inner| async move { stats::record(&inner, &report).await })
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.request(move |inner| stats::read(inner, request))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.request(overview::overview)
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.request(diagnosis::diagnose)
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.request(|inner| async move { retention::read(&inner).await })
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.request(move |inner| async move { retention::change(&inner, retention).await })
    }

    fn health(&self) -> Health {
        match self.inner.nodes.failure() {
            Some(failure) => Health::Unreachable(failure),
            None if self.inner.is_subscribed() => Health::Well,
            None => Health::Mute,
        }
    }

    fn damage(&self) -> Option<(u64, String)> {
        maintenance::damage(&self.inner)
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.request(|inner| async move { sessions::layout(&inner).await })
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        self.request(|inner| async move { sessions::upgrade(&inner).await })
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.request(|inner| async move { Ok(probe::report(&inner).await?.durability) })
    }
}
