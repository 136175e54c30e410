//! [`Model`]: the data of a store, and the steps that several requests share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use tokio::sync::mpsc;

use super::row::{Row, State};
use crate::durable::clock::{Clock, millis};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::key::KeyHash;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::queue::{Priority, QueueSettings};
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{
    DeadReason, Enqueued, Epoch, Event, Resolution, ScheduleRow, SessionId, StatBucket, WorkerCard,
};
use crate::durable::{Counts, Retention, TaskId};

/// The number of endpoints that are woken, at most, for tasks that became ready together.
const MAX_WAKES: usize = 4;

/// The data of a store.
pub(in super::super) struct Model {
    clock: Clock,
    pub(super) tasks: BTreeMap<TaskId, Row>,
    /// The waiting tasks, in the order in which they are to run.
    pub(super) ready_queue: VecDeque<TaskId>,
    /// The delayed tasks, by the time when they are due. Tasks that were delayed until then may be among them.
    pub(super) delayed: BTreeSet<(u64, TaskId)>,
    pub(super) claims: BTreeMap<Epoch, Lease>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) endpoints: BTreeMap<usize, Endpoint>,
    pub(super) last_session: SessionId,
    pub(super) last_epoch: Epoch,
    pub(super) last_endpoint: usize,
    /// The kinds of version 1 of the paused types, by the names of the types. All versions of these types are paused.
    pub(super) paused: BTreeMap<String, Vec<Kind>>,
    pub(super) queues: BTreeMap<QueueName, QueueRow>,
    pub(super) groups: GroupTurns,
    /// `true` if a task with another priority than the normal one has been stored.
    pub(super) uses_priorities: bool,
    /// For each key, the tasks that were stored with it. They need not hold it, or exist, any more.
    pub(super) keyed: BTreeMap<KeyHash, BTreeSet<TaskId>>,
    pub(super) schedules: BTreeMap<ScheduleName, ScheduleState>,
    pub(super) stats: StatsState,
    pub(super) retention: Retention,
    /// The time of death up to which dead letters have expired in any case.
    pub(super) dead_until: Option<u64>,
    /// The queues, kinds and groups of the tasks that the current request has made ready.
    pub(super) new_ready: Vec<(QueueName, Kind, Option<GroupName>)>,
    /// The queues in which the current request may let waiting tasks start.
    pub(super) freed: BTreeSet<QueueName>,
    /// The totals. The numbers of tasks by state are counted on request.
    pub(super) totals: Counts,
}

/// The state of a queue.
#[derive(Default)]
pub(super) struct QueueRow {
    pub(super) settings: QueueSettings,
    pub(super) is_paused: bool,
    /// The time up to which the rate is used, in microseconds since 1970.
    pub(super) used_until: u64,
    pub(super) turns: PriorityTurns,
}

/// The turns of groups.
#[derive(Default)]
pub(super) struct GroupTurns {
    /// For each group and priority of which a task waits and may start: the group with the lowest number is the next to be served.
    pub(super) numbers: BTreeMap<(QueueName, Priority, GroupName), u64>,
    pub(super) last: u64,
    /// `true` if a task with a group has been stored.
    pub(super) are_used: bool,
    /// The times until which groups are held, in milliseconds since 1970.
    pub(super) holds: BTreeMap<(QueueName, GroupName), u64>,
}

/// The state of a schedule.
pub(super) struct ScheduleState {
    pub(super) row: ScheduleRow,
    /// The time at which it is handed out next, in milliseconds since 1970, or `None` while it is paused.
    pub(super) hand_out: Option<u64>,
}

/// The statistics of the store.
#[derive(Default)]
pub(super) struct StatsState {
    /// The buckets of each resolution, by their numbers.
    pub(super) buckets: BTreeMap<(Resolution, u64), StatBucket>,
    /// The number of the last report of each process, and its time, in milliseconds since 1970.
    pub(super) reporters: BTreeMap<u64, (u64, u64)>,
}

/// The lease of a claim.
pub(super) struct Lease {
    pub(super) session: SessionId,
    /// The time when the lease expires, in milliseconds since the machine was started.
    pub(super) until: u64,
    /// The length of the lease, in milliseconds.
    pub(super) length: u64,
    /// The time of the claim, in milliseconds since 1970.
    pub(super) claimed_at: u64,
    /// Set when a worker finds the lease expired.
    pub(super) suspect: Option<Suspect>,
    /// `true` if the claim is known to have arrived.
    pub(super) is_delivered: bool,
    /// The tasks that were claimed. Not all of them may still be held.
    pub(super) tasks: Vec<TaskId>,
}

/// The suspicion against a claim whose lease has expired.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Suspect {
    /// Its session has made no request since the lease expired, so its worker may be dead.
    Silent,
    /// Its session has made a request since. So its worker lives, and does not have the claim.
    Active,
}

pub(super) struct Session {
    pub(super) endpoint: usize,
    /// The types of the tasks that it claims.
    pub(super) set: Option<TypeSet>,
    /// The description of its worker. A session with a card is listed among the workers.
    pub(super) card: Option<WorkerCard>,
    /// The time at which it was opened, in milliseconds since 1970.
    pub(super) opened: u64,
    /// `true` if it waits to be woken.
    pub(super) is_idle: bool,
    pub(super) is_dead: bool,
    /// The number of its last request.
    pub(super) number: u64,
    /// The epoch of the claim that its last turn made.
    pub(super) claim: Option<Epoch>,
    /// The first task of its last enqueue.
    pub(super) first: Option<TaskId>,
    /// The answer to its last enqueue.
    pub(super) enqueued: Enqueued,
}

#[derive(Default)]
pub(super) struct Endpoint {
    pub(super) events: Option<mpsc::UnboundedSender<Event>>,
}

impl Session {
    /// Returns `true` if its turns claim tasks of this kind.
    pub(super) fn knows(&self, kind: Kind) -> bool {
        self.set.as_ref().is_some_and(|set| set.knows(kind))
    }
}

impl Model {
    pub(in super::super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            tasks: BTreeMap::new(),
            ready_queue: VecDeque::new(),
            delayed: BTreeSet::new(),
            claims: BTreeMap::new(),
            sessions: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            last_session: 0,
            last_epoch: 0,
            last_endpoint: 0,
            paused: BTreeMap::new(),
            queues: BTreeMap::new(),
            groups: GroupTurns::default(),
            uses_priorities: false,
            keyed: BTreeMap::new(),
            schedules: BTreeMap::new(),
            stats: StatsState::default(),
            retention: Retention::default(),
            dead_until: None,
            new_ready: Vec::new(),
            freed: BTreeSet::new(),
            totals: Counts::default(),
        }
    }

    /// Returns `true` if `number` is that of the last request of a session, which is repeated. Refuses smaller numbers
    /// and unknown sessions.
    pub(super) fn is_repeated(&self, session: SessionId, number: u64) -> Result<bool, Failure> {
        match self.sessions.get(&session) {
            Some(session) if !session.is_dead && number >= session.number => {
                Ok(number == session.number)
            }
            _ => Err(Failure::new(Effect::None, Cause::NoSession)),
        }
    }

    /// Returns `true` if tasks of the type of this task are not claimed.
    pub(super) fn is_paused(&self, row: &Row) -> bool {
        let mut paused = self.paused.values().flatten();
        paused.any(|&paused| paused == row.of())
    }

    // ===== Time =====

    pub(super) fn wall(&self) -> u64 {
        millis(self.wall_time())
    }

    pub(super) fn wall_time(&self) -> Duration {
        self.clock.wall()
    }

    pub(super) fn boot(&self) -> u64 {
        millis(self.clock.boot())
    }

    /// Returns the time by which the retention of ended tasks is measured. It cannot be set. Stores that outlive a
    /// restart of the machine count it themselves.
    pub(super) fn store_time(&self) -> u64 {
        self.boot()
    }

    /// Returns the time when the first of the delayed tasks is due.
    pub(super) fn earliest_due(&self) -> Option<u64> {
        let mut delayed = self.delayed.iter();
        let first = delayed.find(|&&(due, id)| self.is_delayed_until(id, due));
        first.map(|&(due, _)| due)
    }

    /// Delays a task until `due`.
    pub(super) fn delay(&mut self, id: TaskId, due: u64) {
        if let Some(row) = self.tasks.get_mut(&id) {
            row.state = State::Delayed { due };
            row.ready_at = due;
            row.until = None;
            self.delayed.insert((due, id));
        }
    }

    /// Returns `true` if a member of [`delayed`](Self::delayed) is still delayed until this time.
    pub(super) fn is_delayed_until(&self, id: TaskId, due: u64) -> bool {
        let row = self.tasks.get(&id);
        row.is_some_and(|row| row.is_delayed_until(due))
    }

    // ===== Tasks that become ready =====

    /// Appends a task to the ready queue.
    pub(super) fn push_back(&mut self, id: TaskId) {
        if let Some(row) = self.tasks.get_mut(&id) {
            row.state = State::Waiting;
            self.ready_queue.push_back(id);
            self.note_ready(id);
        }
    }

    /// Puts tasks before those that wait, in the order of their ids.
    pub(super) fn push_front(&mut self, mut ids: Vec<TaskId>) {
        ids.sort();
        for id in ids.into_iter().rev() {
            if let Some(row) = self.tasks.get_mut(&id) {
                row.state = State::Waiting;
                self.ready_queue.push_front(id);
                self.note_ready(id);
            }
        }
    }

    pub(super) fn note_ready(&mut self, id: TaskId) {
        let row = &self.tasks[&id];
        if !self.is_paused(row) {
            let (queue, group) = (row.task.queue.clone(), row.task.group.clone());
            self.new_ready.push((queue, row.kind, group));
        }
    }

    // ===== Tasks that end =====

    pub(super) fn end_cancelled(&mut self, id: TaskId) {
        self.totals.cancelled += 1;
        let retention = self.tasks.get(&id).map(|row| row.task.retention);
        let until = self.store_time() + millis(retention.unwrap_or_default());
        self.end(id, State::Cancelled { until });
    }

    pub(super) fn mark_dead(
        &mut self,
        id: TaskId,
        reason: DeadReason,
        error: String,
        took: Option<Duration>,
    ) {
        let since = self.store_time();
        let state = State::Dead {
            reason,
            error,
            since,
            took,
        };
        self.end(id, state);
    }

    /// Ends a task, and removes it if it has no retention.
    pub(super) fn end(&mut self, id: TaskId, state: State) {
        let expiry = self.expiry();
        let Some(row) = self.tasks.get_mut(&id) else {
            return;
        };
        if !matches!(state, State::Dead { .. }) {
            row.errors.clear();
            row.steps.clear();
        }
        row.progress = None;
        row.state = state;
        let parent = row.task.parent.map(|parent| (parent, row.status()));
        let watchers = mem::take(&mut row.watchers);
        if row.is_expired(expiry) {
            self.tasks.remove(&id);
        }
        for watcher in watchers {
            self.send(watcher, Event::MaybeEnded(vec![id]));
        }
        if let Some((parent, end)) = parent {
            self.tell_parent(parent, id, &end);
        }
    }

    // ===== Claims =====

    /// Takes back the claims of dead sessions. Returns `true` if there were any.
    pub(super) fn reap_dead(&mut self) -> bool {
        let is_dead = |lease: &Lease| {
            let session = self.sessions.get(&lease.session);
            session.is_none_or(|session| session.is_dead)
        };
        let claims = self.claims.iter().filter(|(_, lease)| is_dead(lease));
        let dead: Vec<_> = claims.map(|(&epoch, _)| epoch).collect();
        dead.iter().for_each(|&epoch| self.reap(epoch, false));
        self.sessions.retain(|_, session| !session.is_dead);
        !dead.is_empty()
    }

    /// Takes a claim back. If its worker lives and does not have the claim, nothing is counted against the tasks.
    pub(super) fn reap(&mut self, epoch: Epoch, is_abandoned: bool) {
        let has_crashed = self.claims[&epoch].is_delivered && !is_abandoned;
        let held = self.tasks.values().filter(|row| row.is_held(epoch));
        let held: Vec<_> = held.map(|row| row.task.id).collect();
        let mut ready = Vec::new();
        for id in held {
            self.free(id);
            let Some(row) = self.tasks.get_mut(&id) else {
                continue;
            };
            if row.cancel {
                self.end_cancelled(id);
                continue;
            }
            if has_crashed {
                row.crashes += 1;
                self.totals.crashed += 1;
            } else {
                row.lost += u32::from(!is_abandoned);
                self.totals.lost += 1;
            }
            match !is_abandoned && row.is_dead_letter() {
                true => self.mark_dead(id, DeadReason::Crashes, String::new(), None),
                false => ready.push(id),
            }
        }
        self.push_front(ready);
        self.claims.remove(&epoch);
    }

    // ===== Notices =====

    /// Wakes idle sessions that can run what the current request has made ready, at most one for each task.
    pub(super) fn wake_for_new_ready(&mut self) {
        self.update_group_turns();
        let new_ready = mem::take(&mut self.new_ready).into_iter();
        // A session that is woken for a group that is held learns how long.
        let has_permit = |queue: &QueueName, group: Option<&GroupName>| {
            let of_group = group.map_or(1, |group| self.group_permits(queue, group));
            of_group > 0 && self.permits(queue) > 0
        };
        let can_start = new_ready.filter(|(queue, _, group)| has_permit(queue, group.as_ref()));
        let mut kinds: Vec<_> = can_start.map(|(_, kind, _)| kind).collect();
        kinds.sort_unstable();
        for alike in kinds.chunk_by(PartialEq::eq) {
            self.wake(alike.len(), |session| session.knows(alike[0]));
        }
        self.wake_for_freed();
    }

    /// Wakes up to `limit` of the chosen idle sessions.
    pub(super) fn wake(&mut self, limit: usize, choose: impl Fn(&Session) -> bool) {
        let sessions = self.sessions.iter_mut();
        let idle = sessions.filter(|(_, session)| session.is_idle && choose(session));
        let woken = idle.take(limit.min(MAX_WAKES)).map(|(&id, session)| {
            session.is_idle = false;
            (id, session.endpoint)
        });
        for (id, endpoint) in woken.collect::<Vec<_>>() {
            self.send(endpoint, Event::Wake(Some(id)));
        }
    }

    /// Has all workers check: time has passed, or a process has died.
    pub(in super::super) fn wake_all(&mut self) {
        self.send_all(&Event::Wake(None));
    }

    pub(in super::super) fn send_all(&self, event: &Event) {
        for &endpoint in self.endpoints.keys() {
            self.send(endpoint, event.clone());
        }
    }

    pub(super) fn send(&self, endpoint: usize, event: Event) {
        let endpoint = self.endpoints.get(&endpoint);
        if let Some(events) = endpoint.and_then(|endpoint| endpoint.events.as_ref()) {
            events.send(event).ok();
        }
    }
}
