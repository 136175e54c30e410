//! [`QueueSession`]: the session of a worker that claims the tasks of one queue.

use tokio::time::Instant;

use crate::durable::store::{ClaimPushes, Epoch, NewSession, SessionId, Turn, TurnAnswer};

/// The session of a worker that claims the tasks of one queue.
pub(super) struct QueueSession {
    /// The description of the session, with which the worker opens it again if the store has ended it.
    pub(super) again: NewSession,
    /// This is `None` from the time when the store has ended the session until another one is open.
    pub(super) id: Option<SessionId>,
    /// The number of the last turn of the session.
    number: u64,
    /// There may be a task to claim.
    pub(super) may_claim: bool,
    /// The session was woken, possibly as the only one, and has sent no turn since. If it cannot claim the tasks for which it
    /// was woken, it sends a turn that claims nothing, so that the store wakes another session.
    pub(super) is_woken: bool,
    /// The session has passed a wake-up on, but possibly no other session knows when the next task is due. So it still checks.
    keeps_watch: bool,
    /// The time at which the worker sends a turn even if nothing has happened.
    pub(super) next_poll: Option<Instant>,
    /// The claim in the last answer. The next turn of the session confirms that it has arrived.
    pub(super) received: Option<Epoch>,
    /// The last pushed claim that has arrived, in a message or an answer.
    last_push: Option<Epoch>,
    /// Messages may have been lost, and with them pushed claims.
    may_miss_pushes: bool,
}

impl QueueSession {
    pub(super) fn new(again: NewSession, id: SessionId) -> Self {
        Self {
            again,
            id: Some(id),
            number: 0,
            may_claim: true,
            is_woken: false,
            keeps_watch: false,
            next_poll: None,
            received: None,
            last_push: None,
            may_miss_pushes: false,
        }
    }

    /// Records that the store has opened another session.
    pub(super) fn opened(&mut self, id: SessionId) {
        (self.id, self.number) = (Some(id), 0);
        (self.last_push, self.may_miss_pushes) = (None, false);
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Records that there may be a task. If the session is not idle, it is not the only session that is woken for the task, and
    /// need not pass the wake-up on.
    pub(super) fn wake(&mut self) {
        self.is_woken |= !self.may_claim;
        self.may_claim = true;
    }

    /// Records that messages may have been lost.
    pub(super) fn miss_messages(&mut self) {
        self.may_miss_pushes = true;
    }

    /// Records that a pushed claim has arrived. Returns `false` if it had arrived before.
    pub(super) fn receive_push(&mut self, epoch: Epoch) -> bool {
        let is_new = self.last_push.is_none_or(|last| last < epoch);
        if is_new {
            self.last_push = Some(epoch);
        }
        is_new
    }

    /// Returns what the next turn says about pushed claims.
    pub(super) fn pushes(&self, are_accepted: bool) -> ClaimPushes {
        ClaimPushes {
            are_accepted,
            received: self.last_push,
            may_be_lost: self.may_miss_pushes,
        }
    }

    /// Returns `true` if other sessions may rely on this one to check in time, since it is idle or keeps watch.
    pub(super) fn is_relied_on(&self) -> bool {
        !self.may_claim || self.keeps_watch
    }

    /// Returns `true` if other sessions may rely on this one to have checked by now.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.is_relied_on() && self.next_poll.is_some_and(|next| next <= now)
    }

    /// Returns `true` if the session claims tasks as soon as there is a permit.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.may_claim || self.next_poll.is_some_and(|next| next <= now)
    }

    /// Records that a turn is sent that claims up to `want` tasks.
    pub(super) fn begin_turn(&mut self, want: usize, now: Instant) {
        let passes_on = self.is_woken || self.is_late(now);
        self.keeps_watch = want == 0 && (self.keeps_watch || passes_on);
        (self.is_woken, self.next_poll) = (false, None);
        if want > 0 {
            self.may_claim = false;
        }
    }

    /// Records the answer to a turn.
    ///
    /// After a turn that has claimed tasks, or had no free permit, the session is usually not idle. So it sends another turn as
    /// soon as there is a free permit. If it was woken before the store had this turn, the store has
    /// passed the wake-up on.
    pub(super) fn answered(&mut self, request: &Turn, answer: &TurnAnswer, next_poll: Instant) {
        let has_claimed = answer.claim.is_some() && !answer.is_idle;
        let is_idle = request.go_idle && !answer.more && !has_claimed;
        self.may_claim |= !is_idle;
        self.is_woken &= is_idle;
        self.next_poll = Some(next_poll);
        let claim = answer.claim.as_ref().map(|claim| claim.epoch);
        self.received = claim.filter(|_| !answer.is_pushed);
        // Another pushed claim may be missing.
        self.may_miss_pushes &= answer.is_pushed || !request.pushes.may_be_lost;
    }
}
