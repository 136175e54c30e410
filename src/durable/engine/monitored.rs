//! [`MonitoredStore`]: a store that records which kinds of requests fail.

use std::collections::BTreeMap;
use std::sync::Arc as StdArc;
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::durable::failure::{Cause, Failure};
use crate::durable::key::KeyHash;
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, DrainedOutbox, Enqueue,
    Enqueued, Epoch, Event, FoundTask, HandOut, ListTasks, MoveWaiting, MovedPart, NewSession,
    NewStep, OutboxLook, ProgressReport, ProgressState, QueueChange, ReadStats, RenewAnswer,
    ScheduleAnswer, ScheduleChange, SessionId, SignalAnswer, StatReport, StatsPage, StepAnswer,
    StepName, StoredSchedule, StoredStep, TaskState, Turn, TurnAnswer,
};
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::{Mutex, lock};

const STORING: &str = "storing tasks";

/// The time for which a failure counts. The engine repeats its own requests within this time, except that it renews a lease
/// of more than six minutes less often. A request that only a user makes may never be made again.
const FAILURE_RETENTION: Duration = Duration::from_secs(60);

/// A store that records which kinds of requests fail.
pub(super) struct MonitoredStore {
    store: StdArc<dyn Backend>,
    failing: Mutex<BTreeMap<&'static str, Failing>>,
}

/// A kind of requests whose last request has failed.
#[derive(Clone)]
struct Failing {
    since: SystemTime,
    last: Instant,
    error: String,
    failures: u32,
}

impl Failing {
    fn counts(&self) -> bool {
        self.last.elapsed() < FAILURE_RETENTION
    }
}

impl MonitoredStore {
    pub(super) fn new(store: StdArc<dyn Backend>) -> Self {
        Self {
            store,
            failing: Mutex::default(),
        }
    }

    /// Waits for the answer to a request of this kind, and records whether it is a failure.
    fn record<'a, T: 'a>(&'a self, kind: &'static str, answer: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(_) => drop(lock(&self.failing).remove(kind)),
                Err(failure) => self.failed(kind, failure),
            }
            answer
        })
    }

    fn failed(&self, kind: &'static str, failure: &Failure) {
        // A store that does not answer is unreachable, not failing; and a session may end.
        if !failure.by_store || failure.cause == Cause::NoSession {
            return;
        }
        let mut failing = lock(&self.failing);
        failing.retain(|_, it| it.counts());
        let entry = failing.entry(kind).or_insert_with(|| Failing {
            since: SystemTime::now(),
            last: Instant::now(),
            error: String::new(),
            failures: 0,
        });
        entry.last = Instant::now();
        entry.error = format!("{kind}: {failure}");
        entry.failures = entry.failures.saturating_add(1);
    }

    /// Returns the kind that has been failing for the longest time.
    fn failing(&self) -> Option<Failing> {
        let failing = lock(&self.failing);
        let counting = failing.values().filter(|it| it.counts());
        counting.min_by_key(|it| it.since).cloned()
    }
}

/// Returns the worst of these states.
fn worst(health: Health, failing: Option<Failing>, damage: Option<(u64, String)>) -> Health {
    match (health, failing, damage) {
        (unreachable @ Health::Unreachable(_), ..) => unreachable,
        (_, Some(it), _) => Health::Failing {
            since: it.since,
            error: it.error,
            failures: it.failures,
        },
        (_, None, Some((found, last))) => Health::Damaged { found, last },
        (health, None, None) => health,
    }
}

impl Backend for MonitoredStore {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn runtime(&self) -> Option<&Handle> {
        self.store.runtime()
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        self.store.events()
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        if session.set.is_some() {
            let opened = self.store.open_session_with(session);
            return self.record("opening a session", opened);
        }
        // Without a set, it is a step of storing tasks, which succeeds when they are stored.
        Box::pin(async move {
            let opened = self.store.open_session_with(session).await;
            opened.inspect_err(|failure| self.failed(STORING, failure))
        })
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.record("closing a session", self.store.close_session(session))
    }

    fn enqueue(&self, request: StdArc<Enqueue>) -> Answer<'_, Enqueued> {
        self.record(STORING, self.store.enqueue(request))
    }

    fn turn(&self, request: StdArc<Turn>) -> Answer<'_, TurnAnswer> {
        self.record("a worker's turn", self.store.turn(request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.record("renewing leases", self.store.renew(claims))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.record("the status of tasks", self.store.status(ids))
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        self.record("reporting progress", self.store.report_progress(reports))
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.record("the progress of tasks", self.store.progress(ids))
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        self.record("storing steps", self.store.store_steps(steps))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.record("the steps of a task", self.store.steps(id))
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        self.record("a signal", self.store.signal(id, name, value))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.record("cancelling", self.store.cancel(ids))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.record("changing tasks", self.store.change(ids, change))
    }

    fn move_waiting(&self, request: MoveWaiting) -> Answer<'_, Option<MovedPart>> {
        self.record("moving tasks", self.store.move_waiting(request))
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.record(
            "listing dead letters",
            self.store.dead_letters(filter, limit),
        )
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.record("reading a dead letter", self.store.dead_letter_payload(id))
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.record(
            "replaying dead letters",
            self.store.replay_dead_letters(filter),
        )
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.record(
            "removing dead letters",
            self.store.delete_dead_letters(filter),
        )
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        self.record(
            "pausing or resuming a type",
            self.store.set_paused(name, is_paused),
        )
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.record("listing paused types", self.store.paused_types())
    }

    fn suits_parent(&self, id: TaskId, queue: &QueueName, parent: TaskId) -> bool {
        self.store.suits_parent(id, queue, parent)
    }

    fn can_have(&self, id: TaskId, queue: &QueueName, key: Option<KeyHash>) -> bool {
        self.store.can_have(id, queue, key)
    }

    fn is_reachable(&self, id: TaskId) -> bool {
        self.store.is_reachable(id)
    }

    fn tells_all_ticks(&self) -> bool {
        self.store.tells_all_ticks()
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        self.record("handing out schedules", self.store.hand_out(computes))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.record("reading a schedule", self.store.schedule(name))
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.record("listing schedules", self.store.schedules(after, limit))
    }

    fn change_schedule(&self, change: StdArc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        self.record("changing a schedule", self.store.change_schedule(change))
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        self.record("changing a queue", self.store.change_queue(queue, change))
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.record("reading a queue", self.store.queue(queue))
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.record("maintenance", self.store.maintain(budget))
    }

    fn maintain_every(&self, interval: Duration, budget: usize) -> Answer<'_, bool> {
        self.record("maintenance", self.store.maintain_every(interval, budget))
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.record("reading the retention", self.store.retention())
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        let set = self.store.set_retention(retention);
        self.record("changing the retention", set)
    }

    fn close(&self) -> Answer<'_, ()> {
        self.record("closing the store", self.store.close())
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.record("the errors of a task", self.store.errors(id))
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.record("listing tasks", self.store.list(request))
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.record("listing workers", self.store.workers(after, limit))
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.record("reading a worker", self.store.worker(session))
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.record("reading a task", self.store.find(id))
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.record("reading the head of a queue", self.store.head(queue, limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.record("counting", self.store.counts())
    }

    fn record_stats(&self, report: StdArc<StatReport>) -> Answer<'_, ()> {
        self.record("recording statistics", self.store.record_stats(report))
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.record("reading statistics", self.store.stats(request))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.record("reading the overview", self.store.overview())
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.record("diagnosing the store", self.store.diagnose())
    }

    fn health(&self) -> Health {
        worst(self.store.health(), self.failing(), self.damage())
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.store.damage()
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.record("reading the layout", self.store.layout())
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        // Not recorded: a refused upgrade is not a failure of the store.
        self.store.upgrade()
    }

    fn outbox_insert(&self) -> Result<StdArc<str>, Cause> {
        self.store.outbox_insert()
    }

    fn look_into_outbox(&self) -> Answer<'_, OutboxLook> {
        self.record(
            "looking for tasks in the outbox",
            self.store.look_into_outbox(),
        )
    }

    fn drain_outbox(&self) -> Answer<'_, DrainedOutbox> {
        self.record("moving tasks from the outbox", self.store.drain_outbox())
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.record("asking how durable it is", self.store.probe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::failure::Effect;
    use crate::durable::store::Store;
    use crate::durable::store::memory::MemoryStore;

    fn monitored() -> MonitoredStore {
        MonitoredStore::new(Store::from(MemoryStore::new()).0)
    }

    async fn answer(monitored: &MonitoredStore, kind: &'static str, answer: Result<(), Failure>) {
        let answer = monitored.record(kind, Box::pin(async { answer }));
        answer.await.ok();
    }

    fn full() -> Failure {
        Failure::new(Effect::None, Cause::Full).reported_by_store()
    }

    #[tokio::test]
    async fn a_kind_of_request_fails_until_one_of_it_succeeds() {
        let monitored = monitored();
        assert_eq!(monitored.health(), Health::Well);
        answer(&monitored, "one", Err(full())).await;
        answer(&monitored, "other", Err(full())).await;
        answer(&monitored, "other", Ok(())).await;
        answer(&monitored, "one", Err(full())).await;
        let Health::Failing {
            error, failures, ..
        } = monitored.health()
        else {
            panic!("{:?}", monitored.health());
        };
        assert!(error.starts_with("one: there is no room left"), "{error}");
        assert_eq!(failures, 2);
        answer(&monitored, "one", Ok(())).await;
        assert_eq!(monitored.health(), Health::Well);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_is_not_repeated_counts_for_a_minute() {
        let monitored = monitored();
        answer(&monitored, "one", Err(full())).await;
        tokio::time::advance(FAILURE_RETENTION / 2).await;
        answer(&monitored, "one", Err(full())).await;
        tokio::time::advance(FAILURE_RETENTION - Duration::from_millis(1)).await;
        assert!(matches!(
            monitored.health(),
            Health::Failing { failures: 2, .. }
        ));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(monitored.health(), Health::Well);
        answer(&monitored, "one", Err(full())).await;
        assert!(matches!(
            monitored.health(),
            Health::Failing { failures: 1, .. }
        ));
    }

    /// A client that has a session opens no other when the store is well again.
    #[tokio::test]
    async fn a_session_that_was_not_opened_counts_until_tasks_are_stored() {
        let mut answers = [Err(full())].into_iter();
        let answers = Mutex::new(move || answers.next().unwrap_or(Ok(())));
        let before = move |_| -> Answer<'static, ()> {
            let answer = lock(&answers)();
            Box::pin(async { answer })
        };
        let store = MemoryStore::new().within(&Handle::current(), before);
        let monitored = MonitoredStore::new(store.0);
        let fails_once = || {
            let health = monitored.health();
            matches!(health, Health::Failing { failures: 1, error, .. } if error.starts_with(STORING))
        };
        monitored.open_session(None).await.unwrap_err();
        assert!(fails_once());
        let session = monitored.open_session(None).await.unwrap();
        assert!(fails_once());
        let request = StdArc::new(Enqueue {
            session,
            number: 1,
            batch: StdArc::new(Vec::new().into()),
        });
        monitored.enqueue(request).await.unwrap();
        assert_eq!(monitored.health(), Health::Well);
    }

    #[tokio::test]
    async fn no_answer_and_the_end_of_a_session_are_no_failures() {
        let monitored = monitored();
        let lost = Failure::new(Effect::Unknown, Cause::Unavailable);
        answer(&monitored, "one", Err(lost)).await;
        let ended = Failure::new(Effect::None, Cause::NoSession).reported_by_store();
        answer(&monitored, "one", Err(ended)).await;
        assert_eq!(monitored.health(), Health::Well);
    }

    #[test]
    fn the_worst_is_said() {
        let failing = Failing {
            since: SystemTime::UNIX_EPOCH,
            last: Instant::now(),
            error: "full".into(),
            failures: 7,
        };
        let said = Health::Failing {
            since: SystemTime::UNIX_EPOCH,
            error: "full".into(),
            failures: 7,
        };
        let damage = || Some((3, "a row".to_owned()));
        let damaged = Health::Damaged {
            found: 3,
            last: "a row".into(),
        };
        let gone = Health::Unreachable("gone".into());
        let all = worst(gone.clone(), Some(failing.clone()), damage());
        assert_eq!(all, gone);
        assert_eq!(worst(Health::Mute, Some(failing), damage()), said);
        assert_eq!(worst(Health::Mute, None, damage()), damaged);
        assert_eq!(worst(Health::Mute, None, None), Health::Mute);
    }
}
