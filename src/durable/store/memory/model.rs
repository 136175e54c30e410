//! [`Model`]: what a store does, in the plainest way.
//!
//! Every other store is held to it: where they differ, one of the two is wrong. Times are whole
//! milliseconds, as in the other stores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::sync::mpsc;

use self::row::{Row, State};
use crate::durable::clock::{Clock, millis};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{
    DeadReason, Enqueue, Epoch, Event, MAX_DEAD_LETTERS, NewTask, SessionId, TaskState,
};
use crate::durable::{AttemptError, Counts, DeadFilter, TaskId};

mod letters;
mod row;
mod turn;

/// How many endpoints are woken for tasks that came together.
const WAKES: usize = 4;
/// How many delayed tasks a turn makes due.
const MAX_DUE: usize = 256;

/// All that a store knows.
pub(super) struct Model {
    clock: Clock,
    tasks: BTreeMap<TaskId, Row>,
    /// Those that wait, the first first.
    line: VecDeque<TaskId>,
    claims: BTreeMap<Epoch, Lease>,
    sessions: BTreeMap<SessionId, Session>,
    endpoints: BTreeMap<usize, Endpoint>,
    last_session: SessionId,
    last_epoch: Epoch,
    last_endpoint: usize,
    /// The kinds of the tasks that this request has made wait.
    pushed: Vec<Kind>,
    /// What has been done; what there is, is counted when somebody asks.
    ledger: Counts,
}

struct Lease {
    session: SessionId,
    /// In milliseconds since the machine was started.
    until: u64,
    length: u64,
    /// Set when a look found the lease over: records whether its session was heard at that time or later.
    suspect: Option<Heard>,
    /// Whether the claim is known to have arrived.
    delivered: bool,
    /// What was claimed.
    tasks: Vec<TaskId>,
}

#[derive(Clone, Copy, PartialEq)]
enum Heard {
    No,
    Yes,
}

struct Session {
    endpoint: usize,
    /// The types that it claims.
    set: Option<TypeSet>,
    /// Whether it waits to be woken.
    idle: bool,
    dead: bool,
    number: u64,
    /// What its last turn claimed.
    claim: Option<Epoch>,
    /// The first task of its last enqueue.
    fingerprint: Option<TaskId>,
}

#[derive(Default)]
struct Endpoint {
    events: Option<mpsc::UnboundedSender<Event>>,
}

impl Session {
    /// Returns `true` if its turns claim tasks of this kind.
    fn knows(&self, kind: Kind) -> bool {
        self.set.as_ref().is_some_and(|set| set.knows(kind))
    }
}

impl Model {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            tasks: BTreeMap::new(),
            line: VecDeque::new(),
            claims: BTreeMap::new(),
            sessions: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            last_session: 0,
            last_epoch: 0,
            last_endpoint: 0,
            pushed: Vec::new(),
            ledger: Counts::default(),
        }
    }

    // ===== Processes and their sessions =====

    pub(super) fn connect(&mut self) -> usize {
        self.last_endpoint += 1;
        self.endpoints
            .insert(self.last_endpoint, Endpoint::default());
        self.last_endpoint
    }

    /// A process goes, and with it its sessions.
    pub(super) fn disconnect(&mut self, endpoint: usize) {
        self.endpoints.remove(&endpoint);
        for session in self.sessions.values_mut() {
            session.dead |= session.endpoint == endpoint;
        }
        self.wake_all();
    }

    pub(super) fn subscribe(&mut self, endpoint: usize) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(Event::Ready).ok();
        self.endpoints.entry(endpoint).or_default().events = Some(sender);
        receiver
    }

    pub(super) fn open_session(&mut self, endpoint: usize, set: Option<TypeSet>) -> SessionId {
        self.last_session += 1;
        let session = Session {
            endpoint,
            set,
            idle: false,
            dead: false,
            number: 0,
            claim: None,
            fingerprint: None,
        };
        self.sessions.insert(self.last_session, session);
        self.reap_dead();
        self.wake_for_pushed();
        self.last_session
    }

    pub(super) fn close_session(&mut self, session: SessionId) {
        self.kill(session);
        let endpoint = self.sessions.get(&session).map(|session| session.endpoint);
        self.reap_dead();
        self.sessions.remove(&session);
        // Others of its process look again.
        if let Some(endpoint) = endpoint {
            self.tell(endpoint, Event::Wake);
        }
        self.wake_for_pushed();
    }

    pub(super) fn kill(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.dead = true;
        }
        self.wake_all();
    }

    /// Whether `number` is the last one of a session; an error if it is older, or there is no such
    /// session.
    fn is_replay(&self, session: SessionId, number: u64) -> Result<bool, Failure> {
        match self.sessions.get(&session) {
            Some(session) if !session.dead && number >= session.number => {
                Ok(number == session.number)
            }
            _ => Err(Failure::new(Effect::None, Cause::NoSession)),
        }
    }

    // ===== Into the store =====

    pub(super) fn enqueue(&mut self, endpoint: usize, request: &Enqueue) -> Result<(), Failure> {
        let tasks = request.batch.close();
        let first = tasks.first().map(|task| task.id);
        if self.is_replay(request.session, request.number)? {
            // The same number with other tasks: two processes believe that they are this one.
            return match self.sessions[&request.session].fingerprint == first {
                true => Ok(()),
                false => Err(Failure::new(Effect::None, Cause::NoSession)),
            };
        }
        if first.is_none() {
            return Ok(());
        }
        let earliest = self.earliest_due();
        for task in tasks {
            self.store(endpoint, task);
        }
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.number = request.number;
            session.claim = None;
            session.fingerprint = first;
        }
        let is_earlier = self.earliest_due().unwrap_or(u64::MAX) < earliest.unwrap_or(u64::MAX);
        match self.pushed.is_empty() && is_earlier {
            // The worker that makes it due need not be able to run it.
            true => self.wake(1, |_| true),
            false => self.wake_for_pushed(),
        }
        Ok(())
    }

    fn store(&mut self, endpoint: usize, task: &NewTask) {
        self.forget_if_over(task.id);
        if self.tasks.contains_key(&task.id) {
            return;
        }
        let now = self.wall();
        let state = match millis(task.delay) {
            0 => State::Waiting,
            delay => State::Delayed { due: now + delay },
        };
        let kind = task.kind();
        if state == State::Waiting {
            self.line.push_back(task.id);
            self.pushed.push(kind);
        }
        let row = Row {
            task: task.clone(),
            kind,
            state,
            failures: 0,
            crashes: 0,
            lost: 0,
            cancel: false,
            errors: VecDeque::new(),
            watchers: BTreeSet::from([endpoint]),
        };
        self.tasks.insert(task.id, row);
        self.ledger.stored += 1;
    }

    // ===== From outside =====

    pub(super) fn status(&mut self, endpoint: usize, ids: &[TaskId]) -> Vec<TaskState> {
        let time = self.store_time();
        let seen = ids.iter().map(|id| match self.tasks.get_mut(id) {
            Some(row) if !row.is_over(time) => {
                row.watchers.insert(endpoint);
                row.seen()
            }
            _ => TaskState::Absent,
        });
        seen.collect()
    }

    pub(super) fn errors(&self, id: TaskId) -> Vec<AttemptError> {
        let time = self.store_time();
        let row = self.tasks.get(&id).filter(|row| !row.is_over(time));
        row.map(|row| row.errors(self.wall())).unwrap_or_default()
    }

    pub(super) fn cancel(&mut self, ids: &[TaskId]) -> u64 {
        ids.iter().filter(|&&id| self.cancel_one(id)).count() as u64
    }

    fn cancel_one(&mut self, id: TaskId) -> bool {
        let time = self.store_time();
        let Some(row) = self.tasks.get_mut(&id) else {
            return false;
        };
        let until = time + millis(row.task.retention);
        match row.state {
            State::Waiting => {
                self.line.retain(|&other| other != id);
                self.end(id, State::Cancelled { until });
            }
            State::Delayed { .. } => self.end(id, State::Cancelled { until }),
            State::Running { epoch } => {
                row.cancel = true;
                let session = self.claims.get(&epoch).map(|lease| lease.session);
                let session = session.and_then(|session| self.sessions.get(&session));
                if let Some(endpoint) = session.map(|session| session.endpoint) {
                    self.tell(endpoint, Event::Cancel(vec![id]));
                }
            }
            State::Done { .. } | State::Cancelled { .. } | State::Dead { .. } => return false,
        }
        true
    }

    pub(super) fn maintain(&mut self, budget: usize) -> bool {
        let time = self.store_time();
        let over = self.tasks.values().filter(|row| row.is_over(time));
        let mut remove: Vec<_> = over.map(|row| row.task.id).collect();
        let letters = self.dead_letters(&DeadFilter::all(), usize::MAX);
        let surplus = letters.iter().skip(MAX_DEAD_LETTERS as usize);
        remove.extend(surplus.map(|letter| letter.id));
        let more = remove.len() > budget;
        for id in remove.into_iter().take(budget) {
            self.tasks.remove(&id);
        }
        more
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.ledger;
        for row in self.tasks.values() {
            counts.unserved += u64::from(self.is_unserved(row));
            *match row.state {
                State::Waiting => &mut counts.waiting,
                State::Delayed { .. } => &mut counts.delayed,
                State::Running { .. } => &mut counts.running,
                State::Done { .. } | State::Cancelled { .. } => &mut counts.kept,
                State::Dead { .. } => &mut counts.dead,
            } += 1;
        }
        counts
    }

    /// Returns `true` if a task waits that no live session may claim.
    fn is_unserved(&self, row: &Row) -> bool {
        let mut sessions = self.sessions.values();
        let is_served = sessions.any(|session| !session.dead && session.knows(row.kind));
        row.state == State::Waiting && !is_served
    }

    #[cfg(test)]
    pub(super) fn leftovers(&self) -> u64 {
        let held = self.tasks.len() + self.line.len() + self.claims.len();
        (held + self.sessions.len()) as u64
    }

    // ===== Steps =====

    /// Puts tasks before those that wait, in the order of their ids.
    fn put_first(&mut self, mut ids: Vec<TaskId>) {
        ids.sort();
        for id in ids.into_iter().rev() {
            if let Some(row) = self.tasks.get_mut(&id) {
                row.state = State::Waiting;
                self.pushed.push(row.kind);
                self.line.push_front(id);
            }
        }
    }

    fn end_cancelled(&mut self, id: TaskId) {
        self.ledger.cancelled += 1;
        let retention = self.tasks.get(&id).map(|row| row.task.retention);
        let until = self.store_time() + millis(retention.unwrap_or_default());
        self.end(id, State::Cancelled { until });
    }

    fn die(&mut self, id: TaskId, reason: DeadReason, error: String) {
        let since = self.store_time();
        let state = State::Dead {
            reason,
            error,
            since,
        };
        self.end(id, state);
    }

    /// A task ends; one that is not kept is gone.
    fn end(&mut self, id: TaskId, state: State) {
        let time = self.store_time();
        let Some(row) = self.tasks.get_mut(&id) else {
            return;
        };
        if !matches!(state, State::Dead { .. }) {
            row.errors.clear();
        }
        row.state = state;
        let watchers = std::mem::take(&mut row.watchers);
        if row.is_over(time) {
            self.tasks.remove(&id);
        }
        for watcher in watchers {
            self.tell(watcher, Event::MaybeEnded(vec![id]));
        }
    }

    fn forget_if_over(&mut self, id: TaskId) {
        let time = self.store_time();
        if self.tasks.get(&id).is_some_and(|row| row.is_over(time)) {
            self.tasks.remove(&id);
        }
    }

    fn drop_claim_if_empty(&mut self, epoch: Epoch) {
        let claimed = self.claims.get(&epoch).map(|lease| &lease.tasks);
        let mut rows = claimed
            .into_iter()
            .flatten()
            .filter_map(|id| self.tasks.get(id));
        if !rows.any(|row| row.is_held(epoch)) {
            self.claims.remove(&epoch);
        }
    }

    /// Wakes idle sessions that can run what this request has made wait, at most one for each task.
    fn wake_for_pushed(&mut self) {
        let pushed = std::mem::take(&mut self.pushed);
        self.wake(pushed.len(), |session| {
            pushed.iter().any(|&kind| session.knows(kind))
        });
    }

    /// Wakes some of the idle sessions that are chosen.
    fn wake(&mut self, most: usize, choose: impl Fn(&Session) -> bool) {
        let sessions = self.sessions.values_mut();
        let idle = sessions.filter(|session| session.idle && choose(session));
        let woken = idle.take(most.min(WAKES)).map(|session| {
            session.idle = false;
            session.endpoint
        });
        for endpoint in woken.collect::<Vec<_>>() {
            self.tell(endpoint, Event::Wake);
        }
    }

    /// Has everybody look: time has passed, or somebody has died.
    pub(super) fn wake_all(&mut self) {
        self.send_all(&Event::Wake);
    }

    pub(super) fn send_all(&self, event: &Event) {
        for &endpoint in self.endpoints.keys() {
            self.tell(endpoint, event.clone());
        }
    }

    fn tell(&self, endpoint: usize, event: Event) {
        let endpoint = self.endpoints.get(&endpoint);
        if let Some(events) = endpoint.and_then(|endpoint| endpoint.events.as_ref()) {
            events.send(event).ok();
        }
    }

    fn wall(&self) -> u64 {
        millis(self.clock.wall())
    }

    fn boot(&self) -> u64 {
        millis(self.clock.boot())
    }

    /// The time that decides how long ends are kept. Nobody sets it. Stores that outlive a restart of the machine count
    /// it themselves.
    fn store_time(&self) -> u64 {
        self.boot()
    }
}
