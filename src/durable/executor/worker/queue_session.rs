//! [`QueueSession`]: the session of a worker that claims the tasks of one queue.

use std::mem;

use tokio::time::Instant;

use crate::durable::store::{
    ClaimPushes, Epoch, NewSession, PushedClaim, SessionId, Turn, TurnAnswer,
};

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
    /// The last turn asks for pushed claims that may be lost.
    is_asking: bool,
    /// A pushed claim has used the last permit that the session offered, so the store no longer counts the session as idle.
    is_full: bool,
    /// A pushed claim has arrived since the answered turn was created. If that turn was sent again, its claim may use the same permits.
    may_exceed_permits: bool,
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
            is_asking: false,
            is_full: false,
            may_exceed_permits: false,
        }
    }

    /// Records that the store has opened another session.
    pub(super) fn opened(&mut self, id: SessionId) {
        (self.id, self.number) = (Some(id), 0);
        (self.last_push, self.may_miss_pushes, self.is_asking) = (None, false, false);
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Records that there may be a task. If the session is not idle, it is not the only session that is woken for the task, and
    /// need not pass the wake-up on.
    pub(super) fn wake(&mut self) {
        // A pushed claim may have set `may_claim`. Then this session may be the only one that is woken.
        self.is_woken |= !self.may_claim || self.is_full;
        self.may_claim = true;
    }

    /// Records that messages may have been lost.
    pub(super) fn miss_messages(&mut self) {
        // A session without a permit asks for lost claims, too, and gives their tasks back.
        (self.may_miss_pushes, self.is_woken) = (true, true);
    }

    /// Records that a message with a pushed claim has arrived. Returns `true` if its tasks are to be started.
    ///
    /// If an earlier message may be lost, this one is ignored, and later turns return both claims in their order.
    pub(super) fn receive_message(&mut self, pushed: &PushedClaim) -> bool {
        if self.may_miss_pushes() {
            self.miss_messages();
            self.wake();
            return false;
        }
        if !pushed.is_idle {
            self.is_full |= !self.may_claim;
            self.may_claim = true;
        }
        self.receive_push(pushed.claim.epoch)
    }

    /// Records that a pushed claim has arrived. Returns `false` if it or a later one had arrived before.
    pub(super) fn receive_push(&mut self, epoch: Epoch) -> bool {
        let is_new = self.last_push.is_none_or(|last| last < epoch);
        if is_new {
            self.last_push = Some(epoch);
        }
        is_new
    }

    /// Returns what the next turn says about pushed claims. The turn asks for those that may have been lost until now.
    pub(super) fn pushes(&mut self, are_accepted: bool) -> ClaimPushes {
        self.is_asking = mem::take(&mut self.may_miss_pushes);
        ClaimPushes {
            are_accepted,
            received: self.last_push,
            may_be_lost: self.is_asking,
        }
    }

    /// Returns `true` if there may be fewer permits than tasks in the claim of the answered turn.
    pub(super) fn may_exceed_permits(&self) -> bool {
        self.may_exceed_permits
    }

    /// Returns `true` if pushed claims may have been lost.
    pub(super) fn may_miss_pushes(&self) -> bool {
        self.may_miss_pushes || self.is_asking
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
        (self.is_woken, self.is_full, self.next_poll) = (false, false, None);
        if want > 0 {
            self.may_claim = false;
        }
    }

    /// Records the answer to a turn.
    ///
    /// After a turn that has claimed tasks, or had no free permit, the session is usually not idle. So it sends another turn as
    /// soon as there is a free permit. If it was woken before the store had this turn, the store has
    /// passed the wake-up on, unless the session is to ask for claims that may be lost.
    pub(super) fn answered(&mut self, request: &Turn, answer: &TurnAnswer, next_poll: Instant) {
        let has_claimed = answer.claim.is_some() && !answer.is_idle;
        let is_idle = request.go_idle && !answer.more && !has_claimed;
        self.may_claim |= !is_idle;
        self.is_woken &= is_idle || self.may_miss_pushes;
        self.is_woken |= answer.passes_on;
        self.may_exceed_permits = self.last_push != request.pushes.received;
        self.next_poll = Some(next_poll);
        let claim = answer.claim.as_ref().map(|claim| claim.epoch);
        self.received = claim.filter(|_| !answer.is_pushed);
        self.is_asking = false;
        if answer.is_pushed {
            // Another one may be lost, too.
            self.may_miss_pushes = true;
            (self.may_claim, self.is_woken) = (true, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::durable::store::Claim;

    fn session() -> QueueSession {
        let again = NewSession {
            set: None,
            card: None,
        };
        QueueSession::new(again, 7)
    }

    fn request(session: &mut QueueSession) -> Turn {
        Turn {
            session: 7,
            number: session.next_number(),
            verdicts: Vec::new(),
            received: None,
            floor: 0,
            want: 1,
            want_bytes: 1,
            quarantined: true,
            lease: Duration::from_secs(9),
            go_idle: true,
            pushes: session.pushes(true),
        }
    }

    fn answer(pushed: Option<Epoch>) -> TurnAnswer {
        TurnAnswer {
            claim: pushed.map(|epoch| Claim {
                epoch,
                tasks: Vec::new(),
            }),
            is_pushed: pushed.is_some(),
            ..TurnAnswer::default()
        }
    }

    fn message(epoch: Epoch) -> PushedClaim {
        PushedClaim {
            session: 7,
            claim: answer(Some(epoch)).claim.unwrap(),
            claimed_at: Duration::ZERO,
            is_idle: true,
        }
    }

    #[test]
    fn a_pushed_claim_arrives_once() {
        let mut session = session();
        assert!(session.receive_message(&message(5)));
        assert!(!session.receive_push(5));
        assert!(!session.receive_message(&message(4)));
        assert!(session.receive_push(6));
        assert!(!session.receive_message(&message(6)));
        assert_eq!(session.pushes(true).received, Some(6));
        session.opened(8);
        assert!(session.receive_message(&message(5)));
    }

    #[test]
    fn lost_claims_are_requested_until_none_is_left() {
        let mut session = session();
        assert!(session.receive_message(&message(4)));
        session.miss_messages();
        let first = request(&mut session);
        assert_eq!(
            (first.pushes.may_be_lost, first.pushes.received),
            (true, Some(4))
        );
        session.answered(&first, &answer(Some(5)), Instant::now());
        assert!(session.receive_push(5));
        assert_eq!((session.received, session.may_claim), (None, true));
        assert!(session.is_woken, "a worker without a permit asks, too");
        let second = request(&mut session);
        assert_eq!(
            (second.pushes.may_be_lost, second.pushes.received),
            (true, Some(5))
        );
        session.answered(&second, &answer(None), Instant::now());
        assert!(!request(&mut session).pushes.may_be_lost);
        // The message was under way while the turn returned the claim.
        assert!(!session.receive_message(&message(5)));
    }

    /// Its permits are used, so a turn that claims nothing asks, and the worker gives the tasks back.
    #[test]
    fn a_busy_session_asks_for_lost_claims() {
        let mut session = session();
        assert!(session.may_claim && !session.is_woken);
        session.miss_messages();
        assert!(session.is_woken);
    }

    /// Messages are lost again while a turn is under way.
    #[test]
    fn a_turn_does_not_cover_what_is_lost_after_it() {
        let mut session = session();
        session.miss_messages();
        let first = request(&mut session);
        session.miss_messages();
        session.answered(&first, &answer(None), Instant::now());
        assert!(request(&mut session).pushes.may_be_lost);
    }

    /// An earlier claim may be lost. It would count as having arrived if the later one did.
    #[test]
    fn no_claim_arrives_before_an_earlier_one_that_may_be_lost() {
        let mut session = session();
        session.miss_messages();
        assert!(!session.receive_message(&message(5)));
        let first = request(&mut session);
        assert!(!session.receive_message(&message(6)));
        session.answered(&first, &answer(Some(4)), Instant::now());
        assert!(session.receive_push(4));
        assert!(!session.receive_message(&message(7)));
        let second = request(&mut session);
        assert!(second.pushes.may_be_lost, "6 and 7 are left");
        assert_eq!(second.pushes.received, Some(4));
    }

    /// Messages are lost while a turn is under way that claims as much as the worker can run.
    #[test]
    fn a_session_without_a_permit_asks_for_lost_claims() {
        let mut session = session();
        let first = request(&mut session);
        session.begin_turn(1, Instant::now());
        session.miss_messages();
        session.wake();
        let claim = TurnAnswer {
            is_pushed: false,
            ..answer(Some(3))
        };
        session.answered(&first, &claim, Instant::now());
        assert!(session.is_woken);
    }

    /// A turn is sent again, and a pushed claim arrives meanwhile.
    #[test]
    fn a_claim_that_was_pushed_since_the_turn_was_created_may_use_its_permits() {
        let mut session = session();
        let first = request(&mut session);
        session.answered(&first, &answer(None), Instant::now());
        assert!(!session.may_exceed_permits());
        let second = request(&mut session);
        assert!(session.receive_message(&message(5)));
        session.answered(&second, &answer(None), Instant::now());
        assert!(session.may_exceed_permits());
        let third = request(&mut session);
        session.answered(&third, &answer(None), Instant::now());
        assert!(!session.may_exceed_permits());
    }

    /// It is idle in some partitions, and another queue uses the permits.
    #[test]
    fn a_session_that_is_idle_in_parts_of_a_store_passes_wake_ups_on() {
        let mut session = session();
        let first = request(&mut session);
        session.begin_turn(1, Instant::now());
        let partly_idle = TurnAnswer {
            is_pushed: false,
            more: true,
            passes_on: true,
            ..answer(Some(3))
        };
        session.answered(&first, &partly_idle, Instant::now());
        assert!(session.is_woken && session.may_claim);
    }

    /// A pushed claim uses the last permit, and then a wake-up arrives.
    #[test]
    fn a_full_session_passes_a_wake_up_on() {
        let mut session = session();
        session.may_claim = false;
        let mut last = message(5);
        last.is_idle = false;
        assert!(session.receive_message(&last));
        assert!(session.may_claim && !session.is_woken);
        session.wake();
        assert!(session.is_woken);
    }
}
