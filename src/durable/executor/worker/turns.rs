//! A worker claims tasks, and reports how they ended.

use std::collections::HashSet;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::Instant;

use super::progress::store_last;
use super::queue_session::QueueSession;
use super::state::{InFlight, Worker};
use crate::durable::clock::since_boot;
use crate::durable::failure::{Cause, Failure};
use crate::durable::resend::BACKOFF;
use crate::durable::store::{
    self, Claim, MAX_BATCH_BYTES, MAX_BATCH_TASKS, PushedClaim, SessionId, TaskState, Turn,
    TurnAnswer, Verdict, Verdicts,
};
use crate::durable::{TaskId, report};

impl Worker {
    pub(super) fn send_turn(&mut self) {
        let now = Instant::now();
        if self.is_busy() || self.pause.is_some_and(|pause| now < pause) {
            return;
        }
        let Some(next) = self.next_session(now) else {
            return;
        };
        (self.pause, self.current) = (None, next);
        let Some(session) = self.sessions[next].id else {
            return self.open_session();
        };
        let request = self.next_request(session);
        self.unanswered = Some(StdArc::clone(&request));
        let store = StdArc::clone(&self.engine.store);
        let reports = self.progress.last();
        self.turn = Some(InFlight::new(async move {
            store_last(&*store, &reports).await;
            store.turn(request).await
        }));
    }

    /// Returns `true` while the worker must not send a turn, because it waits for an answer to an earlier request.
    fn is_busy(&self) -> bool {
        self.turn.is_some() || self.opening.is_some() || self.confirming.is_some()
    }

    /// Returns the session of the next turn, unless there is no reason to send one.
    fn next_session(&mut self, now: Instant) -> Option<usize> {
        if self.unanswered.is_some() {
            return Some(self.current);
        }
        let stuck = self.next_stuck(now);
        let claiming = || self.next_claiming(now);
        stuck.or_else(claiming).or_else(|| self.next_reporting())
    }

    /// Returns a session that must let the store wake another one, since it cannot claim the tasks for which it was woken, or that
    /// have become due.
    fn next_stuck(&self, now: Instant) -> Option<usize> {
        let sessions = self.sessions.iter().enumerate();
        let mut stuck = sessions.filter(|&(queue, _)| !self.can_claim(queue));
        stuck
            .find(|(_, session)| session.is_woken || self.checks() && session.is_late(now))
            .map(|(queue, _)| queue)
    }

    /// Returns `true` if the worker checks at given times. While its runtime is stuck, it leaves that to others, which also decide
    /// on its leases. A worker that claims no more tasks still checks, since others may rely on one of its sessions.
    pub(super) fn checks(&self) -> bool {
        !self.is_stalled()
    }

    /// Returns `true` if a task of a queue could run now. The pending verdicts go with the turn.
    pub(super) fn can_claim(&self, queue: usize) -> bool {
        self.free(0) > 0 && self.claims.permits().room(queue) > 0
    }

    /// Returns the session that claims next, of those that may have tasks and whose queues can use permits.
    fn next_claiming(&mut self, now: Instant) -> Option<usize> {
        if self.free(0) == 0 {
            return None;
        }
        let (sessions, permits) = (&self.sessions, self.claims.permits());
        self.shares
            .next(|queue| sessions[queue].is_due(now) && permits.room(queue) > 0)
    }

    /// Returns the session that reports the pending verdicts, although it is not known to have tasks to claim. It is the session
    /// of the first verdict: if its queue has a limit, the verdict may let another task start.
    fn next_reporting(&self) -> Option<usize> {
        let epoch = self.pending_verdicts.first_claim()?;
        Some(self.claims.queue_of(epoch).unwrap_or(self.current))
    }

    fn next_request(&mut self, session: SessionId) -> StdArc<Turn> {
        self.resent = self.unanswered.is_some();
        match self.unanswered.take() {
            Some(request) if request.session == session => request,
            // The store has ended the session. In the new session, it refuses the verdicts that it may have accepted before.
            Some(request) => {
                let request = StdArc::unwrap_or_clone(request);
                StdArc::new(Turn {
                    session,
                    number: self.sessions[self.current].next_number(),
                    ..request
                })
            }
            None => StdArc::new(self.new_turn(session)),
        }
    }

    fn new_turn(&mut self, session: SessionId) -> Turn {
        let verdicts = self.pending_verdicts.take();
        let room = self.claims.permits().room(self.current);
        let want = self.free(self.unstored()).min(room).min(MAX_BATCH_TASKS);
        // Claims that are pushed to several sessions might use the same permits.
        let are_pushes_accepted = self.sessions.len() == 1;
        let lease = self.store_lease();
        let current = &mut self.sessions[self.current];
        current.begin_turn(want, Instant::now());
        Turn {
            session,
            number: current.next_number(),
            verdicts,
            received: current.received.take(),
            floor: self.engine.floor(),
            want,
            want_bytes: MAX_BATCH_BYTES,
            quarantined: !self.claims.has_quarantined(),
            lease,
            go_idle: want > 0,
            pushes: current.pushes(are_pushes_accepted),
        }
    }

    /// Returns the lease that is requested from the store. The store extends the lease of a suspect by a third, which
    /// completes the worker's lease.
    ///
    /// An idle worker polls within that time, unless [many workers are idle](store::rest). It gets no messages about the claims of others,
    /// so it polls to see their leases before they can expire.
    fn store_lease(&self) -> Duration {
        self.settings.lease * 3 / 4
    }

    /// Opens a session for the queue of the next turn, since the store has ended the previous one.
    fn open_session(&mut self) {
        let store = StdArc::clone(&self.engine.store);
        let again = self.sessions[self.current].again.clone();
        self.opening = Some(InFlight::new(async move {
            store.open_session_with(again).await
        }));
    }

    pub(super) fn opened(&mut self, answer: Result<SessionId, Failure>) {
        self.opening = None;
        match answer {
            Ok(session) => self.sessions[self.current].opened(session),
            Err(failure) => self.failed(&failure),
        }
    }

    pub(super) fn turned(&mut self, answer: Result<TurnAnswer, Failure>) {
        let sent = self.turn.take().map_or_else(since_boot, |turn| turn.sent);
        match answer {
            Ok(answer) => {
                self.failures = 0;
                self.tally.turns.add(1);
                if let Some(request) = self.unanswered.take() {
                    self.note_answer(&request, &answer);
                    self.note_schedules(&request, &answer);
                    self.verdicts_accepted(&request, sent, &answer);
                }
                match answer.claim {
                    Some(claim) if answer.is_pushed => self.returned(claim, sent),
                    Some(claim) => {
                        self.engine.received(claim.epoch);
                        self.start_claim(claim, sent);
                    }
                    None => {}
                }
                self.forget_early_cancels();
            }
            Err(failure) => {
                if failure.cause == Cause::NoSession {
                    self.sessions[self.current].id = None;
                }
                self.failed(&failure);
            }
        }
    }

    /// Handles a pushed claim in an answer, unless its message has arrived meanwhile.
    fn returned(&mut self, claim: Claim, sent: Duration) {
        let queue = self.current;
        self.engine.received(claim.epoch);
        if self.sessions[queue].receive_push(claim.epoch) {
            self.start_pushed(queue, claim, sent);
        }
    }

    /// Handles a message with a claim for an idle session. Ignores a session of another worker.
    pub(super) fn pushed(&mut self, pushed: &PushedClaim) {
        let is_meant = |it: &QueueSession| it.id == Some(pushed.session);
        if let Some(queue) = self.sessions.iter().position(is_meant)
            && self.sessions[queue].receive_message(pushed)
        {
            self.start_pushed(queue, pushed.claim.clone(), pushed.claimed_at);
        }
    }

    /// Records what an answer says about the queue of its session.
    fn note_answer(&mut self, request: &Turn, answer: &TurnAnswer) {
        let rest = store::rest(self.store_lease(), answer.idle_sessions);
        let next_poll = Instant::now() + answer.next.map_or(rest, |next| next.min(rest));
        let session = &mut self.sessions[self.current];
        session.answered(request, answer, next_poll);
        if request.want > 0 {
            let started = answer.claim.as_ref().map_or(0, |claim| claim.tasks.len());
            let is_drained = !session.may_claim || started < request.want && !answer.more;
            self.shares.started(self.current, started, is_drained);
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.tally.failures.add(1);
        self.failures = self.failures.saturating_add(1);
        report::store_failed(&self.engine.store_name, failure, self.failures);
        let pause = BACKOFF.delay(self.failures).unwrap_or_default();
        self.pause = Some(Instant::now() + pause);
    }

    /// Records that the store has accepted the verdicts of a turn that was sent at this time, except for those that it has refused, and
    /// those that have not reached it.
    fn verdicts_accepted(&mut self, request: &Turn, sent: Duration, answer: &TurnAnswer) {
        let is_unreached = |it: &&Verdicts| answer.unreached.contains(&it.epoch);
        let (unreached, reached) = request.verdicts.iter().partition::<Vec<_>, _>(is_unreached);
        for verdicts in unreached {
            self.pending_verdicts.defer(verdicts, Instant::now());
        }
        for verdicts in &reached {
            self.claims.confirmed(verdicts.epoch, verdicts.tasks.len());
            self.progress.confirmed(verdicts);
        }
        let refused: HashSet<_> = answer.refused.iter().collect();
        for (id, verdict) in reached.iter().flat_map(|verdicts| &verdicts.tasks) {
            if refused.contains(id) {
                self.refused(*id);
                continue;
            }
            self.tally.count(verdict);
            match verdict.split().0 {
                Verdict::Done(_) if self.resent => self.engine.waiters.check([*id]),
                // The waiters of this process need not ask the store.
                Verdict::Done(output) => {
                    let end = || Ok(TaskState::Done(output.clone()));
                    self.engine.waiters.resolve_earlier(*id, sent, end);
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
            self.tally.rejected.add(1);
            report::refused(&self.engine.store_name, id);
        }
        self.engine.waiters.check([id]);
    }

    /// Returns `true` if a session may have tasks to claim.
    pub(super) fn may_claim(&self) -> bool {
        self.sessions.iter().any(|it| it.may_claim)
    }

    /// Returns the time of the next turn that is sent even if nothing has happened.
    pub(super) fn next_poll(&self) -> Option<Instant> {
        if self.is_busy() || !self.checks() {
            return None;
        }
        let is_free = self.free(self.unstored()) > 0;
        let sessions = self.sessions.iter().enumerate();
        let due = sessions.filter(|&(queue, session)| {
            session.is_relied_on() || is_free && self.claims.permits().room(queue) > 0
        });
        due.filter_map(|(_, session)| session.next_poll).min()
    }

    /// Returns the number of ended tasks whose verdicts are not stored yet. They count as running, so that a worker does not
    /// accumulate large outputs.
    fn unstored(&self) -> usize {
        let unanswered = self.unanswered.iter().flat_map(|turn| &turn.verdicts);
        let unanswered: usize = unanswered.map(|verdicts| verdicts.tasks.len()).sum();
        self.pending_verdicts.len() + unanswered
    }

    /// Returns how many more tasks can run if this many verdicts are not stored.
    fn free(&self, unstored: usize) -> usize {
        match self.stopping.is_some() || self.is_stalled() {
            true => 0,
            false => self
                .settings
                .max_running
                .saturating_sub(self.claims.active() + unstored),
        }
    }
}
