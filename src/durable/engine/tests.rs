//! The engine on a store that loses requests and answers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc as StdArc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::resend::{STORE_TIMEOUT, resend};
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, Enqueue, Enqueued, Epoch, Event,
    FoundTask, HAND_OUT_INTERVAL, HandOut, ListTasks, MoveWaiting, MovedPart, NewSession, NewStep,
    ProgressReport, ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer,
    ScheduleChange, SessionId, SignalAnswer, StatReport, StatsPage, StepAnswer, StepName, Store,
    StoredSchedule, StoredStep, TaskState, Turn, TurnAnswer,
};
use crate::durable::{
    AttemptError, Clock, Counts, DeadFilter, DeadLetter, Durability, DurableClient,
    DurableExecutor, DurableTask, Every, MemoryStore, Missed, Overlap, Overview, QueueHead,
    Retention, Run, ScheduleOptions, SpawnOptions, StopReason, StoreLayout, TaskContext, TaskError,
    TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::retry::Retry;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

mod replays_tests;
mod spawn_queue_tests;
mod steps_tests;
mod waiters_tests;

/// A store that loses requests and answers, and gets some of them twice.
struct Faulty {
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
struct Held {
    request: StdArc<Enqueue>,
    answer: oneshot::Sender<Result<Enqueued, Failure>>,
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
    fn store(store: &MemoryStore, faults: u32, seed: u64) -> Store {
        Store::new(Self {
            store: Store::from(store.clone()).0,
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            faults,
            turn: Duration::ZERO,
            copies: Mutex::default(),
            holder: None,
            is_away: StdArc::default(),
        })
    }

    /// One that does everything, but takes its time.
    fn slow(store: &MemoryStore, turn: Duration) -> Store {
        Store::new(Self {
            store: Store::from(store.clone()).0,
            random: Mutex::default(),
            faults: 0,
            turn,
            copies: Mutex::default(),
            holder: None,
            is_away: StdArc::default(),
        })
    }

    /// One of which a part is away while the test says so.
    fn divided(store: &MemoryStore) -> (Store, StdArc<AtomicBool>) {
        let is_away = StdArc::new(AtomicBool::new(true));
        let store = Self {
            store: Store::from(store.clone()).0,
            random: Mutex::default(),
            faults: 0,
            turn: Duration::ZERO,
            copies: Mutex::default(),
            holder: None,
            is_away: StdArc::clone(&is_away),
        };
        (Store::new(store), is_away)
    }

    /// One whose part a test plays when something is to be stored.
    fn held(store: &MemoryStore) -> (Store, mpsc::UnboundedReceiver<Held>) {
        let (holder, held) = mpsc::unbounded_channel();
        let store = Self {
            store: Store::from(store.clone()).0,
            random: Mutex::default(),
            faults: 0,
            turn: Duration::ZERO,
            copies: Mutex::default(),
            holder: Some(holder),
            is_away: StdArc::default(),
        };
        (Store::new(store), held)
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

fn lost() -> Failure {
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

/// Fails at its first attempt if its number can be divided by three.
#[derive(Serialize, Deserialize)]
struct Number(u64);

impl DurableTask for Number {
    const NAME: &'static str = "number";
    type Output = u64;
}

/// The number of times that each has succeeded.
type Runs = Mutex<HashMap<u64, u32>>;

impl Run<Runs> for Number {
    async fn run(self, cx: TaskContext<Runs>) -> Result<u64, TaskError> {
        if self.0.is_multiple_of(3) && cx.attempt() == 1 {
            return Err(TaskError::retry("not yet"));
        }
        *lock(cx.app()).entry(self.0).or_default() += 1;
        Ok(self.0 * 2)
    }
}

impl Number {
    fn id(&self) -> TaskId {
        TaskId::derive(Self::NAME, &self.0.to_le_bytes())
    }
}

const TASKS: u64 = 200;

/// Spawns until the store has said that the task is there.
async fn spawn(client: &DurableClient, number: u64) -> TaskId {
    loop {
        let task = Number(number);
        let id = task.id();
        // Leases are lost here, time and again: that is not what is to end a task.
        let options = SpawnOptions::new().id(id).max_crashes(1_000);
        let spawned = client.spawn_with(task, options).await;
        match spawned {
            Ok(handle) => return handle.id(),
            Err(error) => assert!(error.is_unknown() || error.is_busy(), "{error}"),
        }
    }
}

async fn everything_is_stored_and_runs(faults: u32, seed: u64) {
    let memory = MemoryStore::new();
    let producer = DurableClient::open(Faulty::store(&memory, faults, seed));
    let worker = DurableClient::open(Faulty::store(&memory, faults, seed + 1));
    let executor = DurableExecutor::builder(worker)
        .register::<Number>()
        .max_running(16)
        .retry(Retry::exponential().base(Duration::from_millis(1)))
        .lease(Duration::from_millis(400))
        .start(Runs::default())
        .await
        .expect("the store answers in time");
    let spawned = (0..TASKS).map(|number| spawn(&producer, number));
    let ids = futures::future::join_all(spawned).await;
    for (number, &id) in (0..).zip(&ids) {
        let output = producer.attach::<Number>(id).await.expect("it succeeds");
        assert_eq!(output, number * 2);
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let counts = producer.counts().await.expect("it is in memory");
    assert_eq!(counts.stored, TASKS, "{counts:?}");
    let ends = counts.done + counts.retried + counts.released + counts.crashed + counts.lost;
    assert_eq!(counts.claimed, ends, "{counts:?}");
    assert_eq!((counts.done, counts.kept), (TASKS, TASKS), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_by_a_store_that_loses_requests_and_answers() {
    for seed in 0..4 {
        everything_is_stored_and_runs(30, 100 * seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_by_a_store_that_hardly_ever_answers() {
    everything_is_stored_and_runs(70, 7).await;
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(
            std::time::Instant::now() < end,
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_that_have_not_reached_the_store_are_reported_again() {
    let memory = MemoryStore::new();
    let (store, is_away) = Faulty::divided(&memory);
    let client = DurableClient::open(memory.clone());
    let runs = StdArc::new(Runs::default());
    let executor = DurableExecutor::builder(DurableClient::open(store))
        .register::<Tripled>()
        .start(StdArc::clone(&runs))
        .await
        .unwrap();
    let handles = client.spawn_all((0..20).map(Tripled)).await.unwrap();
    eventually("all have run", || lock(&runs).len() == 20).await;
    let turns = executor.metrics().turns;
    eventually("two more turns", || executor.metrics().turns > turns + 2).await;
    assert_eq!(client.counts().await.unwrap().done, 0);
    is_away.store(false, Ordering::Relaxed);
    for (handle, number) in handles.into_iter().zip(0..) {
        assert_eq!(handle.await.unwrap(), 3 * number);
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.done), (20, 20), "{counts:?}");
    assert_eq!(executor.metrics().rejected, 0);
}

#[derive(Serialize, Deserialize)]
struct Tripled(u64);

impl DurableTask for Tripled {
    const NAME: &'static str = "tripled";
    type Output = u64;
}

impl Run<StdArc<Runs>> for Tripled {
    async fn run(self, cx: TaskContext<StdArc<Runs>>) -> Result<u64, TaskError> {
        *lock(cx.app()).entry(self.0).or_default() += 1;
        Ok(self.0 * 3)
    }
}

/// Waits until its lease is lost.
#[derive(Serialize, Deserialize)]
struct Leased;

impl DurableTask for Leased {
    const NAME: &'static str = "leased";
    type Output = ();
}

impl Run<()> for Leased {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        assert_eq!(cx.stopped().await, StopReason::LeaseLost);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_has_not_reached_the_store_is_late() {
    let memory = MemoryStore::new();
    let (store, _) = Faulty::divided(&memory);
    let client = DurableClient::open(memory.clone());
    let executor = DurableExecutor::builder(DurableClient::open(store))
        .register::<Leased>()
        .lease(Duration::from_millis(600))
        .start(())
        .await
        .unwrap();
    client.spawn(Leased).await.unwrap();
    eventually("the lease is lost", || executor.metrics().leases_lost > 0).await;
    executor.shutdown(Duration::ZERO).await;
}

/// Has a large output.
#[derive(Serialize, Deserialize)]
struct Large;

/// With its quotes and its envelope, half of what a request can contain.
const LEN: usize = (1 << 19) - 2 - 3 - Large::NAME.len();

impl DurableTask for Large {
    const NAME: &'static str = "large";
    type Output = String;
}

impl Run<()> for Large {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        Ok("x".repeat(LEN))
    }
}

/// A worker keeps the lease of a task that has ended until the store has its verdict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_slower_than_its_tasks_loses_none() {
    let lease = Duration::from_millis(600);
    let memory = MemoryStore::new();
    let client = DurableClient::open(Faulty::slow(&memory, lease / 6));
    let mut executor = DurableExecutor::builder(client.clone());
    executor.register::<Large>();
    let executor = executor
        .max_running(64)
        .lease(lease)
        .start(())
        .await
        .unwrap();
    // Two in a request: it takes many requests, and several leases.
    let handles = client.spawn_all((0..64).map(|_| Large)).await.unwrap();
    for handle in handles {
        assert_eq!(handle.await.unwrap().len(), LEN);
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.done), (64, 64), "{counts:?}");
    assert_eq!(executor.metrics().leases_lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_busy_store_is_asked_again() {
    let timers = Handle::current();
    let mut answers = vec![
        Ok(7),
        Err(Cause::Busy),
        Err(Cause::Unavailable),
        Err(Cause::Busy),
    ];
    let settled = resend(&timers, || {
        let answer = answers.pop().expect("it is not asked after an answer");
        async { answer.map_err(|cause| Failure::new(Effect::None, cause)) }
    });
    assert_eq!(settled.await.expect("an answer in the end"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_not_asked_again_and_what_is_unknown_stays_so() {
    let timers = Handle::current();
    for (first, effect) in [
        (Effect::None, Effect::None),
        (Effect::Unknown, Effect::Unknown),
    ] {
        let mut failures = vec![
            Failure::new(Effect::None, Cause::Full),
            Failure::new(first, Cause::Unavailable),
        ];
        let settled: Result<(), _> = resend(&timers, || {
            let failure = failures.pop().expect("it is not asked after `Full`");
            async { Err(failure) }
        })
        .await;
        let failure = settled.expect_err("it is full");
        assert_eq!((failure.effect, failure.cause), (effect, Cause::Full));
    }
}

#[tokio::test(start_paused = true)]
async fn patience_ends() {
    let start = tokio::time::Instant::now();
    let settled: Result<(), _> = resend(&Handle::current(), || async { Err(lost()) }).await;
    let failure = settled.expect_err("it never answers");
    assert_eq!(failure.effect, Effect::Unknown);
    assert!(start.elapsed() <= STORE_TIMEOUT, "{:?}", start.elapsed());
    assert!(
        start.elapsed() >= STORE_TIMEOUT / 2,
        "{:?}",
        start.elapsed()
    );
}

/// Counts the runs of its tick.
#[derive(Serialize, Deserialize)]
struct Tick;

impl DurableTask for Tick {
    const NAME: &'static str = "tick";
    type Output = ();
}

impl Run<StdArc<Runs>> for Tick {
    async fn run(self, cx: TaskContext<StdArc<Runs>>) -> Result<(), TaskError> {
        let tick = cx
            .tick()
            .and_then(|tick| tick.duration_since(UNIX_EPOCH).ok());
        let minute = tick.expect("a schedule has stored it").as_secs() / 60;
        *lock(cx.app()).entry(minute).or_default() += 1;
        Ok(())
    }
}

/// The store loses requests for due schedules, changes of schedules, and the answers to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tick_fires_once_on_a_store_that_loses_requests_and_answers() {
    const TICKS: u64 = 60;
    let clock = Clock::manual();
    let memory = MemoryStore::with_clock(&clock);
    let client = DurableClient::open(memory.clone());
    let all = ScheduleOptions::new()
        .missed(Missed::All(64))
        .overlap(Overlap::Allow)
        .spawn(SpawnOptions::new().max_crashes(1_000));
    let minute = Every::new(Duration::from_secs(60));
    client.schedule_with("a", minute, Tick, all).await.unwrap();
    let runs = StdArc::new(Runs::default());
    let worker = DurableClient::open(Faulty::store(&memory, 50, 7));
    let executor = DurableExecutor::builder(worker)
        .register::<Tick>()
        .retry(Retry::exponential().base(Duration::from_millis(1)))
        .start(StdArc::clone(&runs))
        .await
        .expect("the store answers in time");
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let counts = client.counts().await.unwrap();
        if counts.done >= TICKS {
            break;
        }
        assert!(std::time::Instant::now() < end, "{counts:?}");
        // If a worker did not receive a schedule that it was handed, the schedule is handed out again.
        clock.advance(HAND_OUT_INTERVAL);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    executor.shutdown(Duration::from_secs(5)).await;
    let info = client.schedules().get("a").await.unwrap().unwrap();
    let stored = client.counts().await.unwrap().stored;
    assert_eq!((info.started, info.skipped), (stored, 0));
    let runs = lock(&runs);
    let first = *runs.keys().min().expect("some have run");
    for minute in first..first + TICKS {
        assert!(runs.contains_key(&minute), "{}", minute - first);
    }
    let ticks = info
        .last_tick
        .and_then(|tick| tick.duration_since(UNIX_EPOCH).ok());
    assert_eq!(stored, ticks.unwrap().as_secs() / 60 - first + 1);
}

/// A change takes effect, its answer is lost, and the schedule changes before the request is sent again.
#[tokio::test]
async fn a_call_of_fire_now_stores_one_task_at_most() {
    const CALLS: u64 = 30;
    let memory = MemoryStore::new();
    let client = DurableClient::open(Faulty::store(&memory, 60, 3));
    let other = DurableClient::open(memory.clone());
    let options = ScheduleOptions::new().overlap(Overlap::Allow);
    let daily = Every::new(Duration::from_secs(24 * 3600));
    let defined = other.schedule_with("a", daily, Tick, options);
    assert!(defined.await.unwrap());
    let changing = async {
        loop {
            assert!(other.schedules().pause("a").await.unwrap());
            assert!(other.schedules().resume("a").await.unwrap());
            // The store answers at once, so this would not let the other future continue.
            tokio::task::yield_now().await;
        }
    };
    let firing = async {
        let mut succeeded = 0;
        for _ in 0..CALLS {
            succeeded += u64::from(client.schedules().fire_now("a").await.is_ok());
        }
        succeeded
    };
    let succeeded = tokio::select! {
        () = changing => unreachable!(),
        succeeded = firing => succeeded,
    };
    let stored = other.counts().await.unwrap().stored;
    assert!(
        (succeeded..=CALLS).contains(&stored),
        "{succeeded} {stored}"
    );
}
