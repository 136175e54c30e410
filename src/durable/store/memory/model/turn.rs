//! A worker's turn: applies verdicts, takes back expired claims, makes delayed tasks ready, and claims tasks.

use std::collections::HashSet;
use std::time::Duration;

use super::row::State;
use super::select::Selection;
use super::state::{Lease, Model};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Claim, Epoch, SessionId, Turn, TurnAnswer, Verdict, Verdicts};

/// The number of delayed tasks that a turn makes due, at most.
const MAX_DUE: usize = 256;

impl Model {
    pub(in super::super) fn turn(&mut self, request: &Turn) -> Result<TurnAnswer, Failure> {
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.is_idle = false;
        }
        let is_repeated = self.is_repeated(request.session, request.number)?;
        self.confirm_alive(request.session);
        self.deliver(request.session, request.received);
        let mut turned = match is_repeated {
            true => self.repeat(request.session),
            false => self.take_turn(request),
        };
        let claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
        let quarantined = request.quarantined && !claimed.clone().any(|task| task.quarantined);
        let left = self.first_left(request.session, quarantined);
        turned.next_tick = self.next_hand_out(COMPUTES);
        let queue = self.queue_of(request.session);
        let hold = self.hold_wait(&queue);
        turned.next = self.next_check().into_iter().chain(hold).min();
        let started = turned.claim.as_ref().map_or(0, |claim| claim.tasks.len());
        if left.is_some() && self.room(&queue) == 0 {
            // The session is woken when a task of the queue stops running, or it waits for the rate.
            turned.next = turned.next.into_iter().chain(self.rate_wait(&queue)).min();
        }
        turned.more = left.is_some() && self.room(&queue) > 0;
        // A worker that has got as many tasks as it wanted may have no free permit when the rate lets the next task start.
        let is_full = started >= request.want && self.permits(&queue) > 0;
        let left = left.filter(|_| turned.more || is_full);
        if is_full && hold.is_some() {
            self.freed.insert(queue);
        }
        self.wake(1, |session| left.is_some_and(|kind| session.knows(kind)));
        self.wake_for_new_ready();
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.is_idle = request.go_idle && turned.claim.is_none() && !turned.more;
        }
        Ok(turned)
    }

    fn take_turn(&mut self, request: &Turn) -> TurnAnswer {
        let mut refused = Vec::new();
        for verdicts in &request.verdicts {
            self.deliver(request.session, Some(verdicts.epoch));
            self.apply_all(verdicts, &mut refused);
        }
        let changed = self.reap_dead() | self.reap_late(request.session) | self.make_due();
        self.end_holds(&self.queue_of(request.session));
        self.update_group_turns();
        let claim = self.claim(request);
        // A turn that changes nothing writes nothing.
        if changed || claim.is_some() || !request.verdicts.is_empty() {
            self.record(request, claim.as_ref().map(|claim| claim.epoch));
        }
        TurnAnswer {
            refused,
            claim,
            ..TurnAnswer::default()
        }
    }

    /// Returns the kind of the first waiting task that a session may claim.
    fn first_left(&self, session: SessionId, quarantined: bool) -> Option<Kind> {
        let session = &self.sessions[&session];
        let mut waiting = self.ready_queue.iter().map(|id| &self.tasks[id]);
        let left = waiting.find(|row| {
            let is_claimable = session.knows(row.kind) && !self.is_paused(row);
            let may_start = is_claimable && self.may_start_in_group(row);
            may_start && (quarantined || !row.is_quarantined())
        });
        left.map(|row| row.kind)
    }

    /// Records that a claim of a session has arrived.
    fn deliver(&mut self, session: SessionId, claim: Option<Epoch>) {
        let lease = claim.and_then(|epoch| self.claims.get_mut(&epoch));
        if let Some(lease) = lease.filter(|lease| lease.session == session) {
            lease.is_delivered = true;
        }
    }

    /// Records the turn, so that a repetition is detected.
    fn record(&mut self, request: &Turn, claim: Option<Epoch>) {
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.number = request.number;
            session.claim = claim;
            session.first = None;
        }
    }

    /// Answers a repeated turn with the claim of the session's last turn, as far as it is still held.
    fn repeat(&mut self, session: SessionId) -> TurnAnswer {
        let (now, wall) = (self.boot(), self.wall());
        let epoch = self.sessions[&session].claim.unwrap_or_default();
        let lease = self.claims.get_mut(&epoch);
        let claim = lease.map(|lease| {
            lease.until = now + lease.length;
            lease.suspect = None;
            let held = self.tasks.values().filter(|row| row.is_held(epoch));
            let tasks = held.map(|row| row.claimed(wall)).collect();
            Claim { epoch, tasks }
        });
        TurnAnswer {
            claim,
            ..TurnAnswer::default()
        }
    }

    fn apply_all(&mut self, verdicts: &Verdicts, refused: &mut Vec<TaskId>) {
        let mut released = Vec::new();
        for (id, verdict) in &verdicts.tasks {
            let row = self.tasks.get(id);
            if !row.is_some_and(|row| row.is_held(verdicts.epoch)) {
                refused.push(*id);
            } else if self.apply(*id, verdict) {
                released.push(*id);
            }
        }
        self.push_front(released);
        self.remove_claim_if_empty(verdicts.epoch);
    }

    /// Applies a verdict. Returns `true` if the task is to go to the head of the ready queue.
    fn apply(&mut self, id: TaskId, verdict: &Verdict) -> bool {
        let (now, time) = (self.wall(), self.store_time());
        self.free(id);
        let (verdict, hold) = verdict.split();
        if let Some(wait) = hold {
            self.hold_group(id, wait);
        }
        let Some(row) = self.tasks.get_mut(&id) else {
            return false;
        };
        match verdict {
            Verdict::Done(output) => {
                self.totals.done += 1;
                let until = time + millis(row.task.retention);
                let output = output.clone();
                self.end(id, State::Done { output, until });
            }
            _ if row.cancel => self.end_cancelled(id),
            Verdict::Dead {
                reason,
                error,
                took,
            } => {
                self.totals.died += 1;
                row.failures += u32::from(reason.is_failure());
                self.mark_dead(id, *reason, error.clone(), *took);
            }
            Verdict::Retry { after, error, took } => {
                self.totals.retried += 1;
                row.push_error(now, error, *took);
                row.failures += 1;
                self.delay(id, now + millis(*after));
            }
            Verdict::Snooze { after } => {
                self.totals.snoozed += 1;
                self.delay(id, now + millis(*after));
            }
            Verdict::Suspend {
                after,
                until,
                waits_for,
            } => {
                self.totals.snoozed += 1;
                self.suspend(id, now + millis(*after), *until, waits_for);
            }
            Verdict::Release | Verdict::HoldGroup { .. } => {
                self.totals.released += 1;
                return true;
            }
        }
        false
    }

    fn remove_claim_if_empty(&mut self, epoch: Epoch) {
        let claimed = self.claims.get(&epoch).map(|lease| &lease.tasks);
        let rows = claimed.into_iter().flatten();
        let mut rows = rows.filter_map(|id| self.tasks.get(id));
        if !rows.any(|row| row.is_held(epoch)) {
            self.claims.remove(&epoch);
        }
    }

    fn queue_of(&self, session: SessionId) -> QueueName {
        let set = self.sessions[&session].set.as_ref();
        set.map(|set| set.queue().clone()).unwrap_or_default()
    }

    /// Claims the first tasks in the ready queue that the session may run.
    fn claim(&mut self, request: &Turn) -> Option<Claim> {
        let epoch = self.last_epoch.max(request.floor) + 1;
        let queue = self.queue_of(request.session);
        let Selection {
            tasks,
            turns,
            served,
            ..
        } = self.select(request, &queue);
        self.started(&queue, turns, tasks.len());
        for (priority, group) in served {
            self.group_served(&queue, priority, &group);
        }
        let claimed: HashSet<_> = tasks.iter().map(|task| task.id).collect();
        // Most claims take the first tasks of the queue.
        let mut left = claimed.len();
        self.ready_queue.retain(|id| {
            let is_claimed = left > 0 && claimed.contains(id);
            left -= usize::from(is_claimed);
            !is_claimed
        });
        for task in &tasks {
            if let Some(row) = self.tasks.get_mut(&task.id) {
                row.state = State::Running { epoch };
                // The claim frees a key that is held only until the start.
                row.task.key = row.task.key.filter(|key| !key.is_until_started);
            }
        }
        if tasks.is_empty() {
            return None;
        }
        self.totals.claimed += tasks.len() as u64;
        self.last_epoch = epoch;
        let length = millis(request.lease);
        let lease = Lease {
            session: request.session,
            until: self.boot() + length,
            length,
            claimed_at: self.wall(),
            suspect: None,
            is_delivered: false,
            tasks: tasks.iter().map(|task| task.id).collect(),
        };
        self.claims.insert(epoch, lease);
        Some(Claim { epoch, tasks })
    }

    /// Moves delayed tasks that are due into the ready queue, the earliest first. Returns `true` if there were any.
    fn make_due(&mut self) -> bool {
        let now = self.wall();
        let mut count = 0;
        while let Some(&(due, id)) = self.delayed.first()
            && due <= now
            && count < MAX_DUE
        {
            self.delayed.pop_first();
            if self.is_delayed_until(id, due) {
                self.push_back(id);
                count += 1;
            }
        }
        count > 0
    }

    /// Returns the time until a worker must check again: until a task is due or a lease expires.
    fn next_check(&self) -> Option<Duration> {
        let due = self.earliest_due();
        let due = due.map(|due| due.saturating_sub(self.wall()));
        let late = self.claims.values().map(|lease| lease.until).min();
        let late = late.map(|late| late.saturating_sub(self.boot()));
        due.into_iter().chain(late).min().map(Duration::from_millis)
    }
}
