//! How a worker claims tasks, and reports how they ended.

use std::collections::HashSet;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::Instant;

use super::state::{InFlight, Worker};
use crate::durable::clock::since_boot;
use crate::durable::failure::{Cause, Failure};
use crate::durable::resend::BACKOFF;
use crate::durable::store::{
    MAX_BATCH_BYTES, MAX_BATCH_TASKS, SessionId, TaskState, Turn, TurnAnswer, Verdict,
};
use crate::durable::{TaskId, report};

/// The maximum time between two turns of an idle worker, which is also at most a lease. An idle worker is woken by messages;
/// but a wake-up may be lost with the process that owed it, and timers stand still while the machine sleeps.
const MAX_REST: Duration = Duration::from_secs(60);

impl Worker {
    pub(super) fn send_turn(&mut self) {
        let now = Instant::now();
        let is_busy = self.turn.is_some() || self.opening.is_some() || self.confirming.is_some();
        if is_busy || self.pause.is_some_and(|pause| now < pause) || !self.has_reason(now) {
            return;
        }
        self.pause = None;
        let Some(session) = self.session else {
            return self.open_session();
        };
        let request = self.next_request(session);
        self.unanswered = Some(StdArc::clone(&request));
        let store = StdArc::clone(&self.engine.store);
        self.turn = Some(InFlight::new(async move { store.turn(request).await }));
    }

    /// Returns `true` if there is a reason to send a turn.
    fn has_reason(&self, now: Instant) -> bool {
        self.unanswered.is_some() || !self.pending_verdicts.is_empty() || self.polls(now)
    }

    fn next_request(&mut self, session: SessionId) -> StdArc<Turn> {
        self.resent = self.unanswered.is_some();
        match self.unanswered.take() {
            Some(request) if request.session == session => request,
            // The store has ended the session. In the new session, it refuses the verdicts that it may have accepted before.
            Some(request) => {
                let request = StdArc::unwrap_or_clone(request);
                self.number += 1;
                StdArc::new(Turn {
                    session,
                    number: self.number,
                    ..request
                })
            }
            None => StdArc::new(self.new_turn(session)),
        }
    }

    fn new_turn(&mut self, session: SessionId) -> Turn {
        let verdicts = self.pending_verdicts.take();
        let want = self.free().min(MAX_BATCH_TASKS);
        if want > 0 {
            self.may_claim = false;
            self.next_poll = None;
        }
        self.number += 1;
        Turn {
            session,
            number: self.number,
            verdicts,
            received: self.received.take(),
            floor: self.engine.floor(),
            want,
            want_bytes: MAX_BATCH_BYTES,
            quarantined: !self.claims.has_quarantined(),
            lease: self.store_lease(),
            go_idle: want > 0,
        }
    }

    /// Returns the lease that is requested from the store. The store extends the lease of a suspect by a third, which
    /// completes the worker's lease.
    ///
    /// An idle worker polls within that time. It gets no message about the claims of others, but so it sees their leases
    /// before they can expire.
    fn store_lease(&self) -> Duration {
        self.settings.lease * 3 / 4
    }

    /// Opens a session, since the store has ended the last one.
    fn open_session(&mut self) {
        let store = StdArc::clone(&self.engine.store);
        let set = self.app.runner().set().clone();
        self.opening = Some(InFlight::new(
            async move { store.open_session(Some(set)).await },
        ));
    }

    pub(super) fn opened(&mut self, answer: Result<SessionId, Failure>) {
        self.opening = None;
        match answer {
            Ok(session) => (self.session, self.number) = (Some(session), 0),
            Err(failure) => self.failed(&failure),
        }
    }

    pub(super) fn turned(&mut self, answer: Result<TurnAnswer, Failure>) {
        let sent = self.turn.take().map_or_else(since_boot, |turn| turn.sent);
        match answer {
            Ok(answer) => {
                self.failures = 0;
                self.tally.turns.add(1);
                // After a turn that has claimed tasks, or had no free permit, the worker is usually not idle. So it sends
                // another turn as soon as it has a free permit.
                self.may_claim |= answer.more || answer.claim.is_some() && !answer.is_idle;
                if let Some(request) = self.unanswered.take() {
                    self.may_claim |= !request.go_idle;
                    self.confirm(&request, &answer.refused);
                }
                let next = answer.next.map_or(MAX_REST, |next| next.min(MAX_REST));
                self.next_poll = Some(Instant::now() + next.min(self.store_lease()));
                self.received = answer.claim.as_ref().map(|claim| claim.epoch);
                match answer.claim {
                    Some(claim) => {
                        self.engine.received(claim.epoch);
                        self.start_claim(claim, sent);
                    }
                    None => self.early_cancels.clear(),
                }
            }
            Err(failure) => {
                if failure.cause == Cause::NoSession {
                    self.session = None;
                }
                self.failed(&failure);
            }
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.tally.failures.add(1);
        self.failures = self.failures.saturating_add(1);
        report::store_failed(&self.engine.store_name, failure, self.failures);
        let pause = BACKOFF.delay(self.failures).unwrap_or_default();
        self.pause = Some(Instant::now() + pause);
    }

    /// Records that the store has accepted the verdicts of a turn, except for those that it has refused.
    fn confirm(&mut self, request: &Turn, refused: &[TaskId]) {
        for verdicts in &request.verdicts {
            self.claims.confirmed(verdicts.epoch, verdicts.tasks.len());
        }
        let refused: HashSet<_> = refused.iter().collect();
        for (id, verdict) in request.verdicts.iter().flat_map(|verdicts| &verdicts.tasks) {
            if refused.contains(id) {
                self.refused(*id);
                continue;
            }
            self.tally.count(verdict);
            match verdict {
                Verdict::Done(_) if self.resent => self.engine.waiters.check([*id]),
                // The waiters of this process need not ask the store.
                Verdict::Done(output) => {
                    let end = || Ok(TaskState::Done(output.clone()));
                    self.engine.waiters.resolve(*id, end);
                }
                Verdict::Retry { error, .. } => {
                    report::retried(&self.engine.store_name, *id, error)
                }
                Verdict::Dead { error, .. } => report::died(&self.engine.store_name, *id, error),
                _ => {}
            }
        }
    }

    /// Handles a verdict that the store has refused: another worker has the task, or the turn was sent more than once and
    /// the store has accepted the verdict the first time.
    fn refused(&self, id: TaskId) {
        if !self.resent {
            self.tally.refused.add(1);
            report::refused(&self.engine.store_name, id);
        }
        self.engine.waiters.check([id]);
    }

    /// Returns `true` if the worker sends a turn even if it has nothing to report.
    fn polls(&self, now: Instant) -> bool {
        let is_due = self.next_poll.is_some_and(|next| next <= now);
        self.free() > 0 && (self.may_claim || is_due)
    }

    /// Returns the number of ended tasks whose verdicts are not stored yet. They count as running, so that a worker does not
    /// accumulate large outputs.
    fn unstored(&self) -> usize {
        let unanswered = self.unanswered.iter().flat_map(|turn| &turn.verdicts);
        let unanswered: usize = unanswered.map(|verdicts| verdicts.tasks.len()).sum();
        self.pending_verdicts.len() + unanswered
    }

    /// Returns how many more tasks can run.
    pub(super) fn free(&self) -> usize {
        match self.stopping.is_some() || self.is_stalled() {
            true => 0,
            false => self
                .settings
                .max_running
                .saturating_sub(self.claims.active() + self.unstored()),
        }
    }
}
