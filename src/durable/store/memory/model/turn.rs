//! What a worker does with a store: verdicts, claims and leases.

use std::collections::BTreeSet;
use std::time::Duration;

use super::row::{Row, State};
use super::{Heard, Lease, MAX_DUE, Model};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::durable::store::kind::Kind;
use crate::durable::store::{
    Claim, DeadReason, Epoch, RenewAnswer, SessionId, Turn, TurnAnswer, Verdict, Verdicts,
    is_dead_letter,
};

impl Model {
    pub(in super::super) fn turn(&mut self, request: &Turn) -> Result<TurnAnswer, Failure> {
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.idle = false;
        }
        let is_replay = self.is_replay(request.session, request.number)?;
        self.hear(request.session);
        self.deliver(request.session, request.received);
        let mut turned = match is_replay {
            true => self.repeat(request.session),
            false => self.take_turn(request),
        };
        let claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
        let quarantined = request.quarantined && !claimed.clone().any(|task| task.quarantined);
        let left = self.first_left(request.session, quarantined);
        turned.more = left.is_some();
        turned.next = self.next_look();
        self.wake(1, |session| left.is_some_and(|kind| session.knows(kind)));
        self.wake_for_pushed();
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.idle = request.park && turned.claim.is_none() && !turned.more;
        }
        Ok(turned)
    }

    fn take_turn(&mut self, request: &Turn) -> TurnAnswer {
        let mut refused = Vec::new();
        for verdicts in &request.verdicts {
            self.deliver(request.session, Some(verdicts.epoch));
            self.settle(verdicts, &mut refused);
        }
        let changed = self.reap_dead() | self.reap_late(request.session) | self.make_due();
        let claim = self.claim(request);
        // A turn that changes nothing is not written down.
        if changed || claim.is_some() || !request.verdicts.is_empty() {
            self.record(request, claim.as_ref().map(|claim| claim.epoch));
        }
        TurnAnswer {
            refused,
            claim,
            ..TurnAnswer::default()
        }
    }

    /// The kind of the first waiting task that a session may claim.
    fn first_left(&self, session: SessionId, quarantined: bool) -> Option<Kind> {
        let session = &self.sessions[&session];
        let mut waiting = self.line.iter().map(|id| &self.tasks[id]);
        let left =
            waiting.find(|row| session.knows(row.kind) && (quarantined || !row.is_quarantined()));
        left.map(|row| row.kind)
    }

    /// The worker of a session lives: what it does not renew, it does not have.
    fn hear(&mut self, session: SessionId) {
        for lease in self.claims.values_mut() {
            if lease.session == session {
                lease.suspect = lease.suspect.map(|_| Heard::Yes);
            }
        }
    }

    /// A claim of a session has arrived.
    fn deliver(&mut self, session: SessionId, claim: Option<Epoch>) {
        let lease = claim.and_then(|epoch| self.claims.get_mut(&epoch));
        if let Some(lease) = lease.filter(|lease| lease.session == session) {
            lease.delivered = true;
        }
    }

    /// Remembers the turn.
    fn record(&mut self, request: &Turn, claim: Option<Epoch>) {
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.number = request.number;
            session.claim = claim;
            session.fingerprint = None;
        }
    }

    /// The claim of the session's last turn, as far as it is still held, in the order of ids.
    fn repeat(&mut self, session: SessionId) -> TurnAnswer {
        let now = self.boot();
        let epoch = self.sessions[&session].claim.unwrap_or_default();
        let lease = self.claims.get_mut(&epoch);
        let claim = lease.map(|lease| {
            lease.until = now + lease.length;
            lease.suspect = None;
            let held = self.tasks.values().filter(|row| row.is_held(epoch));
            let tasks = held.map(Row::claimed).collect();
            Claim { epoch, tasks }
        });
        TurnAnswer {
            claim,
            ..TurnAnswer::default()
        }
    }

    fn settle(&mut self, verdicts: &Verdicts, refused: &mut Vec<TaskId>) {
        let mut released = Vec::new();
        for (id, verdict) in &verdicts.tasks {
            let row = self.tasks.get(id);
            if !row.is_some_and(|row| row.is_held(verdicts.epoch)) {
                refused.push(*id);
            } else if self.apply(*id, verdict) {
                released.push(*id);
            }
        }
        self.put_first(released);
        self.drop_claim_if_empty(verdicts.epoch);
    }

    /// Applies a verdict; whether the task goes to the head of the line.
    fn apply(&mut self, id: TaskId, verdict: &Verdict) -> bool {
        let (now, time) = (self.wall(), self.store_time());
        let Some(row) = self.tasks.get_mut(&id) else {
            return false;
        };
        match verdict {
            Verdict::Done(output) => {
                self.ledger.done += 1;
                let until = time + millis(row.task.retention);
                let output = output.clone();
                self.end(id, State::Done { output, until });
            }
            _ if row.cancel => self.end_cancelled(id),
            Verdict::Dead { reason, error } => {
                self.ledger.died += 1;
                row.failures += u32::from(reason.is_failure());
                self.die(id, *reason, error.clone());
            }
            Verdict::Retry { after, error } => {
                self.ledger.retried += 1;
                row.keep_error(now, error);
                row.failures += 1;
                row.state = State::Delayed {
                    due: now + millis(*after),
                };
            }
            Verdict::Snooze { after } => {
                self.ledger.snoozed += 1;
                row.state = State::Delayed {
                    due: now + millis(*after),
                };
            }
            Verdict::Release => {
                self.ledger.released += 1;
                return true;
            }
        }
        false
    }

    fn claim(&mut self, request: &Turn) -> Option<Claim> {
        let epoch = self.last_epoch.max(request.floor) + 1;
        let (mut tasks, mut bytes, mut quarantined) = (Vec::new(), 0, request.quarantined);
        let (mut looked_at, mut passed) = (0, Vec::new());
        let session = &self.sessions[&request.session];
        for id in &self.line {
            let row = &self.tasks[id];
            if !session.knows(row.kind) || row.is_quarantined() && !quarantined {
                passed.push(*id);
                looked_at += 1;
                continue;
            }
            bytes += row.task.payload.len();
            let is_full = bytes > request.want_bytes && !tasks.is_empty();
            if tasks.len() == request.want || is_full {
                break;
            }
            quarantined &= !row.is_quarantined();
            tasks.push(row.claimed());
            looked_at += 1;
        }
        // Those that are passed over stay first.
        self.line.drain(..looked_at);
        passed.iter().rev().for_each(|&id| self.line.push_front(id));
        for task in &tasks {
            if let Some(row) = self.tasks.get_mut(&task.id) {
                row.state = State::Running { epoch };
            }
        }
        if tasks.is_empty() {
            return None;
        }
        self.ledger.claimed += tasks.len() as u64;
        self.last_epoch = epoch;
        let length = millis(request.lease);
        let lease = Lease {
            session: request.session,
            until: self.boot() + length,
            length,
            suspect: None,
            delivered: false,
            tasks: tasks.iter().map(|task| task.id).collect(),
        };
        self.claims.insert(epoch, lease);
        Some(Claim { epoch, tasks })
    }

    pub(in super::super) fn renew(&mut self, claims: &[Epoch]) -> RenewAnswer {
        let now = self.boot();
        let mut beaten = RenewAnswer::default();
        for &epoch in claims {
            let Some(lease) = self.claims.get_mut(&epoch) else {
                beaten.lost.push(epoch);
                continue;
            };
            lease.until = now + lease.length;
            lease.suspect = None;
            lease.delivered = true;
            let session = lease.session;
            self.hear(session);
            let held = self.tasks.values().filter(|row| row.is_held(epoch));
            let cancelled = held.filter(|row| row.cancel).map(|row| row.task.id);
            beaten.cancelled.extend(cancelled);
        }
        beaten
    }

    // ===== What happens by itself =====

    /// Takes back what the dead have claimed; whether there was anything.
    pub(super) fn reap_dead(&mut self) -> bool {
        let is_dead = |lease: &Lease| {
            let session = self.sessions.get(&lease.session);
            session.is_none_or(|session| session.dead)
        };
        let claims = self.claims.iter().filter(|(_, lease)| is_dead(lease));
        let dead: Vec<_> = claims.map(|(&epoch, _)| epoch).collect();
        dead.iter().for_each(|&epoch| self.reap(epoch, false));
        self.sessions.retain(|_, session| !session.dead);
        !dead.is_empty()
    }

    /// Suspects claims whose lease is over, and takes back those that are suspected already.
    fn reap_late(&mut self, by: SessionId) -> bool {
        let now = self.boot();
        let late = self
            .claims
            .iter_mut()
            .filter(|(_, lease)| lease.until <= now);
        let (mut found, mut over) = (false, Vec::new());
        for (&epoch, lease) in late {
            found = true;
            if let Some(heard) = lease.suspect {
                over.push((epoch, heard == Heard::Yes));
            }
            let is_own = lease.session == by;
            lease.suspect = Some(if is_own { Heard::Yes } else { Heard::No });
            lease.until = now + lease.length / 3;
        }
        for (epoch, is_abandoned) in over {
            self.reap(epoch, is_abandoned);
        }
        found
    }

    /// Takes a claim back. It is abandoned if its worker lives: then its tasks have cost nothing.
    fn reap(&mut self, epoch: Epoch, is_abandoned: bool) {
        let crashed = self.claims[&epoch].delivered && !is_abandoned;
        let held = self.tasks.values().filter(|row| row.is_held(epoch));
        let held: Vec<_> = held.map(|row| row.task.id).collect();
        let mut back = Vec::new();
        for id in held {
            let Some(row) = self.tasks.get_mut(&id) else {
                continue;
            };
            if row.cancel {
                self.end_cancelled(id);
                continue;
            }
            if crashed {
                row.crashes += 1;
                self.ledger.crashed += 1;
            } else {
                row.lost += u32::from(!is_abandoned);
                self.ledger.lost += 1;
            }
            match !is_abandoned && is_dead_letter(row.crashes, row.lost, row.task.max_crashes) {
                true => self.die(id, DeadReason::Crashes, String::new()),
                false => back.push(id),
            }
        }
        self.put_first(back);
        self.claims.remove(&epoch);
    }

    /// Lets wait what was delayed, the earliest first; whether there was anything.
    fn make_due(&mut self) -> bool {
        let now = self.wall();
        let due = self.tasks.iter().filter_map(|(&id, row)| match row.state {
            State::Delayed { due } if due <= now => Some((due, id)),
            _ => None,
        });
        let due: BTreeSet<_> = due.collect();
        for &(_, id) in due.iter().take(MAX_DUE) {
            if let Some(row) = self.tasks.get_mut(&id) {
                row.state = State::Waiting;
                self.pushed.push(row.kind);
                self.line.push_back(id);
            }
        }
        !due.is_empty()
    }

    fn next_look(&self) -> Option<Duration> {
        let due = self.earliest_due();
        let due = due.map(|due| due.saturating_sub(self.wall()));
        let late = self.claims.values().map(|lease| lease.until).min();
        let late = late.map(|late| late.saturating_sub(self.boot()));
        due.into_iter().chain(late).min().map(Duration::from_millis)
    }

    pub(super) fn earliest_due(&self) -> Option<u64> {
        let due = self.tasks.values().filter_map(|row| match row.state {
            State::Delayed { due } => Some(due),
            _ => None,
        });
        due.min()
    }
}
