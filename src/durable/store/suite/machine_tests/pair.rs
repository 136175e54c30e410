//! [`Pair`]: the model and a store, which get the same requests.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::requests::{self, Ids, Request, TurnRequest};
use super::{Choice, Memory, Step, Types};
use crate::durable::failure::Failure;
use crate::durable::queue::QueueSettings;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::baseline_tests::adds_up;
use crate::durable::store::suite::process::id;
use crate::durable::store::{
    Epoch, Event, MAX_STORE_TIME_STEP, NewSession, QueueChange, ScheduleChange, SessionId, Store,
    WorkerCard,
};
use crate::durable::{Counts, TaskId};

mod changes;
mod dead_letters;
mod details;
mod diagnosis;
mod leases;
mod lists;
mod moves;
mod numbered;
mod overview;
mod progress;
mod queues;
mod retention;
mod schedules;
mod stats;
mod steps;
mod workers;

/// The number of passes after which maintenance must be finished.
const MANY_ROUNDS: usize = 200;

pub(super) struct Pair<H> {
    model: Memory,
    tested: H,
    processes: Vec<Process>,
    /// The sessions of live processes. Closed ones stay, and must be refused.
    sessions: Vec<Session>,
    /// The epochs of all claims, by the model and by the store under test.
    epochs: [Vec<Epoch>; 2],
    /// All tasks that were ever claimed.
    claimed: Vec<Claimed>,
    ids: Ids,
    /// The last change of a schedule.
    schedule_change: Option<Arc<ScheduleChange>>,
    /// The number of verdicts so far.
    marks: u64,
    /// The number of processes that were started.
    started: usize,
    /// The processes that ever had a session.
    opened: BTreeSet<usize>,
    /// Tasks and sessions may be in the named queue, and tasks may have other priorities than the normal one.
    has_queues: bool,
    /// The maximum number of tasks of the named queue that may run after a claim.
    limit: Option<u64>,
    /// Some type has been paused. Without pauses, a list drains before the next claim.
    was_paused: bool,
    /// An upper bound of the time since the last maintenance.
    unmaintained: Duration,
}

struct Process {
    number: usize,
    stores: [Store; 2],
    /// Kept open. The events are not compared.
    _events: [mpsc::UnboundedReceiver<Event>; 2],
}

struct Session {
    /// The number of its process.
    process: usize,
    ids: [SessionId; 2],
    /// Its tasks are in the named queue.
    is_queued: bool,
    number: u64,
    closed: bool,
    sent: Vec<(u64, Request)>,
}

#[derive(Clone, Copy, PartialEq)]
struct Claimed {
    claim: usize,
    task: TaskId,
    /// The number of the process that claimed it.
    process: usize,
}

type Outcome = Result<(), String>;

impl<H: Harness> Pair<H> {
    pub(super) async fn new(model: Memory, tested: H, processes: u8, has_queues: bool) -> Self {
        let mut pair = Self {
            model,
            tested,
            processes: Vec::new(),
            sessions: Vec::new(),
            epochs: [Vec::new(), Vec::new()],
            claimed: Vec::new(),
            ids: Ids::default(),
            schedule_change: None,
            marks: 0,
            started: 0,
            opened: BTreeSet::new(),
            has_queues,
            limit: None,
            was_paused: false,
            unmaintained: Duration::ZERO,
        };
        for process in 0..processes {
            pair.connect();
            pair.open(process, Types::All, false).await;
        }
        pair
    }

    pub(super) async fn take(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Enqueue {
                session,
                tasks,
                is_keyed,
            } => {
                let session = self.session(*session).await;
                let (has_types, has_queues) = (self.tested.knows_types(), self.has_queues);
                let ids = &mut self.ids;
                let tasks = tasks
                    .iter()
                    .map(|new| new.task(ids, has_types, has_queues, *is_keyed));
                let tasks = tasks.collect();
                self.sessions[session].number += 1;
                self.send(session, Request::Enqueue(tasks)).await
            }
            Step::Turn(turn) => self.turn(turn).await,
            Step::Again { session } => self.again(*session, 0).await,
            Step::Late { session, back } => self.again(*session, usize::from(*back)).await,
            Step::Renew { claims } => self.renew(claims).await,
            Step::Cancel { .. } | Step::Change { .. } | Step::MoveWaiting(_) => {
                let before = self.waiting_in_model().await?;
                self.take_waiting(step).await?;
                match self.was_paused {
                    true => self.cancel_rest_of_groups(&before).await,
                    false => Ok(()),
                }
            }
            Step::Status { process, tasks } => self.status(*process, self.ids.of_all(tasks)).await,
            Step::Find { process, tasks } => self.find(*process, &self.ids.of_all(tasks)).await,
            Step::Head { process, is_queued } => self.head(*process, *is_queued).await,
            Step::ReportProgress { tasks, number } => self.report_progress(tasks, *number).await,
            Step::StoreSteps { tasks, name, len } => self.store_steps(tasks, *name, *len).await,
            Step::Signal { task, name } => self.signal(*task, *name).await,
            Step::RecordStats(step) => self.record_stats(step).await,
            Step::ReadStats(step) => self.stats(step).await,
            Step::Pass(time) => self.pass(*time).await,
            Step::Age(time) => {
                self.age(*time);
                Ok(())
            }
            Step::Connect => {
                self.connect();
                Ok(())
            }
            Step::Kill { process } => {
                self.kill(*process);
                Ok(())
            }
            Step::Open {
                process,
                types,
                is_queued,
            } => {
                self.open(*process, *types, *is_queued).await;
                Ok(())
            }
            Step::Close { session } => self.close(*session).await,
            Step::List(step) => self.list(step).await,
            Step::Counts { process } => self.counts(*process).await,
            Step::Pause { other, is_paused } => self.pause(*other, *is_paused).await,
            Step::ChangeQueue(change) => self.change_queue(*change).await,
            Step::ChangeSchedule(step) => self.change_schedule(step).await,
            Step::HandOut(computes) => self.hand_out(*computes).await,
            Step::ChangeScheduleAgain => self.send_schedule_change().await,
            Step::ListSchedules { after, limit } => self.list_schedules(*after, *limit).await,
            Step::Maintain { budget } => self.maintain(*budget).await,
            Step::SetRetention(retention) => self.set_retention(*retention).await,
            Step::Dead { choice, limit } => self.dead_letters(choice, *limit).await,
            Step::Replay { choice } => self.replay(choice).await,
            Step::Delete { choice } => self.delete(choice).await,
        }
    }

    /// Takes a step after which some tasks may not wait any more.
    async fn take_waiting(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Cancel { tasks } => self.cancel(self.ids.of_all(tasks)).await,
            Step::Change { task, change } => self.change(*task, *change).await,
            Step::MoveWaiting(step) => self.move_waiting(step).await,
            _ => Ok(()),
        }
    }

    /// Checks the invariants of the rows of the store.
    pub(super) fn check(&self) -> Outcome {
        let broken = self.tested.broken_invariants();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(format!("invariants are broken: {broken:?}")),
        }
    }

    /// Compares everything that can be observed, and claims everything that is left.
    pub(super) async fn finish(&mut self) -> Outcome {
        let ids: Vec<_> = (0..12).map(id).collect();
        self.counts(0).await?;
        self.status(0, ids.clone()).await?;
        self.list_schedules(None, 9).await?;
        self.all_stats().await?;
        self.dead_letters(&Choice::All, 100).await?;
        for other in [false, true] {
            self.pause(other, false).await?;
        }
        let unlimited = QueueSettings::new().revision(u32::MAX);
        self.change_queue(QueueChange::Settings(unlimited)).await?;
        self.change_queue(QueueChange::Paused(false)).await?;
        // Compares the order in which the remaining tasks are claimed, after all leases and delays.
        let sessions = [
            self.open(0, Types::All, false).await,
            self.open(0, Types::All, true).await,
        ];
        for _ in 0..3 {
            self.pass(Duration::from_secs(60)).await?;
            for session in sessions {
                self.sessions[session].number += 1;
                self.send(session, Request::Turn(all())).await?;
            }
        }
        self.status(0, ids).await?;
        self.maintain(5).await?;
        self.counts(0).await
    }

    // ===== Time =====

    /// Advances the clock. A pass of maintenance comes first if more than a minute would pass without one, since store time
    /// would then fall behind.
    async fn pass(&mut self, time: Duration) -> Outcome {
        self.unmaintained += time;
        if self.unmaintained > MAX_STORE_TIME_STEP {
            for store in self.stores(0) {
                let aged = store.0.maintain(0).await;
                aged.map_err(|failure| failure.to_string())?;
            }
            self.unmaintained = time;
        }
        self.model.clock().advance(time);
        self.tested.clock().advance(time);
        Ok(())
    }

    fn age(&mut self, time: Duration) {
        self.model.age(time);
        self.tested.age(time);
        self.unmaintained = Duration::ZERO;
    }

    // ===== Processes and sessions =====

    fn connect(&mut self) {
        let stores = [self.model.connect(), self.tested.connect()];
        let events = [stores[0].0.events(), stores[1].0.events()];
        self.started += 1;
        self.processes.push(Process {
            number: self.started,
            stores,
            _events: events,
        });
    }

    fn process(&mut self, choice: u8) -> usize {
        if self.processes.is_empty() {
            self.connect();
        }
        usize::from(choice) % self.processes.len()
    }

    fn stores(&mut self, choice: u8) -> &[Store; 2] {
        let process = self.process(choice);
        &self.processes[process].stores
    }

    fn kill(&mut self, choice: u8) {
        let process = self.process(choice);
        let Process { number, stores, .. } = self.processes.remove(process);
        let [model, tested] = stores;
        self.model.kill(model);
        self.tested.kill(tested);
        self.sessions.retain(|session| session.process != number);
    }

    async fn open(&mut self, choice: u8, types: Types, is_queued: bool) -> usize {
        let process = self.process(choice);
        let Process { number, stores, .. } = &self.processes[process];
        let set = match types {
            _ if !self.tested.knows_types() => TypeSet::of_tests(),
            types => Some(types.set()),
        };
        let is_queued = is_queued && self.has_queues;
        let set = set.map(|set| set.in_queue(requests::queue(is_queued)));
        let queue = requests::queue(is_queued);
        // The number of permits distinguishes the workers.
        let card = WorkerCard::new(&queue, self.sessions.len(), []);
        let card = set.is_some().then_some(card);
        let new = NewSession { set, card };
        let model = stores[0].0.open_session_with(new.clone()).await.unwrap();
        let tested = stores[1].0.open_session_with(new).await.unwrap();
        self.opened.insert(*number);
        self.sessions.push(Session {
            process: *number,
            ids: [model, tested],
            is_queued,
            number: 0,
            closed: false,
            sent: Vec::new(),
        });
        self.sessions.len() - 1
    }

    /// Chooses one of the sessions. Opens one if there is none.
    async fn session(&mut self, choice: u8) -> usize {
        let sessions = self.sessions.iter().enumerate();
        let open: Vec<_> = sessions
            .filter(|(_, it)| !it.closed)
            .map(|(at, _)| at)
            .collect();
        match open.len() {
            0 => self.open(choice, Types::All, false).await,
            len => open[usize::from(choice) % len],
        }
    }

    async fn close(&mut self, choice: u8) -> Outcome {
        let session = self.session(choice).await;
        self.sessions[session].closed = true;
        let [model, tested] = self.sessions[session].ids;
        let stores = self.stores_of(session);
        let closed = stores[0].0.close_session(model).await;
        same((closed, stores[1].0.close_session(tested).await))
    }

    fn stores_of(&self, session: usize) -> &[Store; 2] {
        let number = self.sessions[session].process;
        let process = self
            .processes
            .iter()
            .find(|process| process.number == number);
        &process.expect("sessions go with their process").stores
    }

    // ===== Other requests =====

    async fn cancel(&mut self, ids: Vec<TaskId>) -> Outcome {
        let [model, tested] = self.stores(0);
        let cancelled = model.0.cancel(ids.clone()).await;
        same((cancelled, tested.0.cancel(ids).await))
    }

    async fn status(&mut self, process: u8, ids: Vec<TaskId>) -> Outcome {
        let [model, tested] = self.stores(process);
        for &id in &ids {
            same((model.0.errors(id).await, tested.0.errors(id).await))?;
            let payload = model.0.dead_letter_payload(id).await;
            same((payload, tested.0.dead_letter_payload(id).await))?;
        }
        let seen = model.0.status(ids.clone()).await;
        same((seen, tested.0.status(ids.clone()).await))?;
        self.progress(process, ids.clone()).await?;
        self.steps(process, &ids).await
    }

    async fn pause(&mut self, other: bool, is_paused: bool) -> Outcome {
        self.was_paused |= is_paused;
        let name = requests::name(other).to_owned();
        let [model, tested] = self.stores(0);
        let paused = model.0.set_paused(name.clone(), is_paused).await;
        same((paused, tested.0.set_paused(name, is_paused).await))?;
        same((model.0.paused_types().await, tested.0.paused_types().await))
    }

    async fn counts(&mut self, process: u8) -> Outcome {
        self.queue(process).await?;
        self.workers(process).await?;
        self.diagnose(process).await?;
        self.overview(process).await?;
        let [model, tested] = self.stores(process);
        let (expected, answered) = (model.0.counts().await, tested.0.counts().await);
        if let Some(counts) = answered.as_ref().ok().filter(|counts| !adds_up(counts)) {
            return Err(format!("the totals do not add up: {counts:?}"));
        }
        same((expected, answered))
    }

    /// Runs maintenance until it is finished, since its order depends on the store.
    async fn maintain(&mut self, budget: usize) -> Outcome {
        for store in self.stores(0) {
            let mut rounds = 0;
            while store
                .0
                .maintain(budget)
                .await
                .map_err(|failure| failure.to_string())?
            {
                rounds += 1;
                if rounds > MANY_ROUNDS {
                    return Err("maintenance comes to no end".to_owned());
                }
            }
        }
        let counts: [Result<Counts, Failure>; 2] = {
            let [model, tested] = self.stores(0);
            [model.0.counts().await, tested.0.counts().await]
        };
        same(counts.into())
    }
}

/// A turn that claims everything.
fn all() -> TurnRequest {
    TurnRequest {
        verdicts: Vec::new(),
        received: None,
        floor: None,
        want: 100,
        want_bytes: 10_000,
        lease: Duration::from_secs(30),
        quarantined: true,
        go_idle: false,
    }
}

/// Returns the part of a failure that is the same in all stores.
fn refusal(failure: Failure) -> String {
    format!("{:?}, effect {:?}", failure.cause, failure.effect)
}

fn same<T: Debug + PartialEq>(
    (expected, answered): (Result<T, Failure>, Result<T, Failure>),
) -> Outcome {
    equal("it", &expected.map_err(refusal), &answered.map_err(refusal))
}

fn equal<T: Debug + PartialEq>(what: &str, expected: &T, answered: &T) -> Outcome {
    match expected == answered {
        true => Ok(()),
        false => Err(format!(
            "{what} is answered otherwise:\n  model: {expected:?}\n  store: {answered:?}"
        )),
    }
}
