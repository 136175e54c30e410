//! A store that loses requests and answers, or takes its time.

use std::collections::VecDeque;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch, Event,
    FoundTask, HandOut, ListTasks, MoveWaiting, MovedPart, NewSession, NewStep, ProgressReport,
    ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer, ScheduleChange, SessionId,
    SignalAnswer, StatReport, StatsPage, StepAnswer, StepName, Store, StoredSchedule, StoredStep,
    TaskState, Turn, TurnAnswer,
};
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, MemoryStore, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// A store that loses requests and answers, and gets some of them twice.
pub(super) struct Faulty {
    store: StdArc<dyn Backend>,
    random: Mutex<fastrand::Rng>,
    /// The number of requests, of 100, that a fault affects.
    faults: u32,
    /// The duration of a turn.
    turn: Duration,
    /// Requests that arrive once more, later.
    copies: Mutex<VecDeque<Again>>,
    /// If there is one, it receives the requests to store tasks, and a test answers them.
    holder: Option<mpsc::UnboundedSender<Held>>,
    /// While this is `true`, verdicts and renewals do not reach their part of the store.
    is_away: StdArc<AtomicBool>,
}

/// A request to store tasks, which a test answers.
pub(super) struct Held {
    pub(super) request: StdArc<Enqueue>,
    pub(super) answer: oneshot::Sender<Result<Enqueued, Failure>>,
}

enum Again {
    Enqueue(StdArc<Enqueue>),
    Turn(StdArc<Turn>),
}

#[derive(Clone, Copy)]
enum Fault {
    None,
    /// The request is not taken, and that is known.
    Refused,
    /// The request is lost.
    Lost,
    /// The answer is lost.
    Unanswered,
    /// The request is answered, and arrives once more before the next.
    Doubled,
    /// The session is ended first.
    Ended,
}

impl Faulty {
    pub(super) fn store(store: &MemoryStore, faults: u32, seed: u64) -> Store {
        Store::new(Self {
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            faults,
            ..Self::without_faults(store)
        })
    }

    /// One that does everything, but takes its time.
    pub(super) fn slow(store: &MemoryStore, turn: Duration) -> Store {
        Store::new(Self {
            turn,
            ..Self::without_faults(store)
        })
    }

    /// One of which a part is away while the test says so.
    pub(super) fn divided(store: &MemoryStore) -> (Store, StdArc<AtomicBool>) {
        let is_away = StdArc::new(AtomicBool::new(true));
        let store = Self {
            is_away: StdArc::clone(&is_away),
            ..Self::without_faults(store)
        };
        (Store::new(store), is_away)
    }

    /// A store that leaves the answers to requests to store tasks to a test.
    pub(super) fn held(store: &MemoryStore) -> (Store, mpsc::UnboundedReceiver<Held>) {
        let (holder, held) = mpsc::unbounded_channel();
        let store = Self {
            holder: Some(holder),
            ..Self::without_faults(store)
        };
        (Store::new(store), held)
    }

    fn without_faults(store: &MemoryStore) -> Self {
        Self {
            store: Store::from(store.clone()).0,
            random: Mutex::default(),
            faults: 0,
            turn: Duration::ZERO,
            copies: Mutex::default(),
            holder: None,
            is_away: StdArc::default(),
        }
    }

    fn fault(&self) -> Fault {
        let mut random = lock(&self.random);
        if random.u32(..100) >= self.faults {
            return Fault::None;
        }
        match random.u32(..9) {
            0 | 1 => Fault::Refused,
            2 | 3 => Fault::Lost,
            4 | 5 => Fault::Unanswered,
            6 | 7 => Fault::Doubled,
            _ => Fault::Ended,
        }
    }

    /// Delivers the second copies of requests that were sent twice. Their answers are discarded.
    async fn deliver_copies(&self) {
        while let Some(copy) = self.next_copy() {
            match copy {
                Again::Enqueue(request) => drop(self.store.enqueue(request).await),
                Again::Turn(request) => drop(self.store.turn(request).await),
            }
        }
    }

    fn next_copy(&self) -> Option<Again> {
        lock(&self.copies).pop_front()
    }

    /// Sends a request through a line that is not reliable.
    async fn send<'a, T>(
        &'a self,
        session: Option<SessionId>,
        copy: Option<Again>,
        request: impl FnOnce() -> Answer<'a, T>,
    ) -> Result<T, Failure> {
        self.deliver_copies().await;
        match self.fault() {
            Fault::Refused => Err(Failure::new(Effect::None, Cause::Busy)),
            Fault::Lost => Err(lost()),
            Fault::Unanswered => {
                drop(request().await);
                Err(lost())
            }
            fault => {
                if let (Fault::Ended, Some(session)) = (fault, session) {
                    self.store.close_session(session).await?;
                }
                let answer = request().await;
                if let (Fault::Doubled, Some(copy)) = (fault, copy) {
                    lock(&self.copies).push_back(copy);
                }
                answer
            }
        }
    }
}

pub(super) fn lost() -> Failure {
    Failure::new(Effect::Unknown, Cause::Unavailable)
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    /// All events are lost, too, but for the first.
    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(Event::Ready).ok();
        receiver
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        Box::pin(self.send(None, None, move || {
            self.store.open_session_with(session.clone())
        }))
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.store.workers(after, limit)
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.store.worker(session)
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.store.close_session(session)
    }

    fn enqueue(&self, request: StdArc<Enqueue>) -> Answer<'_, Enqueued> {
        if let Some(holder) = &self.holder {
            let (answer, answered) = oneshot::channel();
            holder.send(Held { request, answer }).ok();
            return Box::pin(async { answered.await.unwrap_or_else(|_| Err(lost())) });
        }
        let copy = Again::Enqueue(StdArc::clone(&request));
        let session = request.session;
        Box::pin(self.send(Some(session), Some(copy), || self.store.enqueue(request)))
    }

    fn turn(&self, request: StdArc<Turn>) -> Answer<'_, TurnAnswer> {
        if self.is_away.load(Ordering::Relaxed) {
            let mut request = StdArc::unwrap_or_clone(request);
            let verdicts = std::mem::take(&mut request.verdicts);
            let unreached = verdicts.iter().map(|it| it.epoch).collect();
            let turned = self.store.turn(StdArc::new(request));
            return Box::pin(async move {
                let turned = turned.await?;
                Ok(TurnAnswer {
                    unreached,
                    ..turned
                })
            });
        }
        let copy = Again::Turn(StdArc::clone(&request));
        let session = request.session;
        let turn = self.send(Some(session), Some(copy), || self.store.turn(request));
        Box::pin(async {
            tokio::time::sleep(self.turn).await;
            let turned = turn.await?;
            // Nobody is woken here: so look again soon.
            let soon = Duration::from_millis(20);
            let next = Some(turned.next.unwrap_or(soon).min(soon));
            Ok(TurnAnswer { next, ..turned })
        })
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        if self.is_away.load(Ordering::Relaxed) {
            let unreached = claims;
            return Box::pin(async move {
                Ok(RenewAnswer {
                    unreached,
                    ..RenewAnswer::default()
                })
            });
        }
        Box::pin(self.send(None, None, || self.store.renew(claims)))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        Box::pin(self.send(None, None, || self.store.status(ids)))
    }

    /// Loses the request or its answer, or sends the request twice.
    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        let report = move || self.store.report_progress(reports.clone());
        Box::pin(self.send(None, None, report))
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        Box::pin(self.send(None, None, move || self.store.progress(ids.clone())))
    }

    /// Loses the request or its answer, or sends the request twice.
    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        let store = move || self.store.store_steps(steps.clone());
        Box::pin(self.send(None, None, store))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        Box::pin(self.send(None, None, move || self.store.steps(id)))
    }

    /// Loses the request or its answer, or sends the request twice.
    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        let signal = move || self.store.signal(id, name.clone(), value.clone());
        Box::pin(self.send(None, None, signal))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        Box::pin(self.send(None, None, || self.store.cancel(ids)))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        Box::pin(self.send(None, None, || self.store.change(ids, change)))
    }

    fn move_waiting(&self, request: MoveWaiting) -> Answer<'_, Option<MovedPart>> {
        self.store.move_waiting(request)
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.store.dead_letters(filter, limit)
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.store.dead_letter_payload(id)
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.store.replay_dead_letters(filter)
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.store.delete_dead_letters(filter)
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        self.store.set_paused(name, is_paused)
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        self.store.change_queue(queue, change)
    }

    /// Loses the request or its answer, or sends the request twice.
    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        Box::pin(self.send(None, None, move || self.store.hand_out(computes)))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.store.schedule(name)
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.store.schedules(after, limit)
    }

    /// Loses the request or its answer, or sends the request twice.
    fn change_schedule(&self, change: StdArc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        let change = move || self.store.change_schedule(StdArc::clone(&change));
        Box::pin(self.send(None, None, change))
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.store.queue(queue)
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.store.paused_types()
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.store.maintain(budget)
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.store.retention()
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.store.set_retention(retention)
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.store.errors(id)
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.store.list(request)
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.store.find(id)
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.store.head(queue, limit)
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.store.counts()
    }

    /// Loses the request or its answer, or sends the request twice.
    fn record_stats(&self, report: StdArc<StatReport>) -> Answer<'_, ()> {
        let record = move || self.store.record_stats(StdArc::clone(&report));
        Box::pin(self.send(None, None, record))
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.store.stats(request)
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.store.overview()
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.store.diagnose()
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.store.layout()
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        self.store.upgrade()
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.store.probe()
    }
}
