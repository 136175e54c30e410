//! How a worker keeps its leases.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::Instant;

use super::{InFlight, Message, Worker};
use crate::durable::clock::since_boot;
use crate::durable::failure::Failure;
use crate::durable::store::{Epoch, RenewAnswer, Verdict};
use crate::durable::{StopReason, report};

impl Worker {
    pub(super) fn send_beat(&mut self) {
        let now = Instant::now();
        if self.beat.is_some() || self.next_beat.is_none_or(|next| now < next) {
            return;
        }
        let sent = since_boot();
        let claims = self.claims.older_than(self.renewed_before(sent));
        self.next_beat = Some(now + self.settings.lease / 6);
        self.feel_pulse();
        if self.is_stalled() {
            self.release_unbegun();
        } else if !claims.is_empty() {
            let store = StdArc::clone(&self.engine.store);
            self.beat = Some(InFlight::new(async move { store.renew(claims).await }));
        }
    }

    /// Returns the time such that a beat sent at `sent` renews all leases last renewed before it. So a worker
    /// that has claims is heard twice in every third of a lease, and thereby within the second chance of a
    /// claim that it does not know, which is a quarter of a lease.
    fn renewed_before(&self, sent: Duration) -> Duration {
        sent.saturating_sub(self.settings.lease / 12)
    }

    /// Asks the runtime whether it takes up what it is given, unless it was asked and has not
    /// answered.
    fn feel_pulse(&mut self) {
        if self.asked.is_none() {
            self.asked = Some(since_boot());
            let worker = self.sender.clone();
            drop(
                self.runtime
                    .spawn(async move { worker.send(Message::Pulse) }),
            );
        }
    }

    /// Whether the runtime has not answered for too long: its tasks may go to others, and it gets no
    /// more.
    pub(super) fn is_stalled(&self) -> bool {
        let silence = self.asked.map(|asked| since_boot().saturating_sub(asked));
        silence.is_some_and(|silence| silence > self.settings.stall_limit)
    }

    /// Gives back what the runtime has not begun.
    fn release_unbegun(&mut self) {
        for (epoch, id) in self.claims.give_up_unbegun() {
            self.pending_verdicts.push(epoch, id, Verdict::Release);
        }
    }

    pub(super) fn beaten(&mut self, answer: Result<RenewAnswer, Failure>) {
        let sent = self.beat.take().map_or(Duration::ZERO, |beat| beat.sent);
        let Ok(beaten) = answer else {
            self.tally.failures.add(1);
            return;
        };
        let renewed = self.claims.older_than(self.renewed_before(sent));
        for epoch in renewed {
            self.claims.renew(epoch, sent);
        }
        beaten.lost.into_iter().for_each(|epoch| self.lose(epoch));
        self.claims.stop(&beaten.cancelled, StopReason::Cancelled);
    }

    /// A lease was not renewed in time.
    pub(super) fn late(&mut self, epoch: Epoch) {
        if self.claims.late(epoch) {
            self.tally.leases_lost.add(1);
            report::lease_lost(&self.engine.queue, epoch);
        }
    }

    /// The store says that a claim is not ours.
    fn lose(&mut self, epoch: Epoch) {
        if self.claims.lose(epoch) {
            self.tally.leases_lost.add(1);
            report::lease_lost(&self.engine.queue, epoch);
        }
    }
}
