//! How a worker keeps its leases.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::Instant;

use super::{InFlight, Worker};
use crate::durable::clock::{millis, since_boot};
use crate::durable::error::Failure;
use crate::durable::store::{Beaten, Epoch};
use crate::durable::{StopReason, report};

impl Worker {
    pub(super) fn send_beat(&mut self) {
        let now = Instant::now();
        if self.beat.is_some() || self.next_beat.is_none_or(|next| now < next) {
            return;
        }
        let sent = since_boot();
        let claims = self
            .claims
            .older_than(sent.saturating_sub(self.settings.lease / 3));
        self.next_beat = Some(now + self.settings.lease / 6);
        if claims.is_empty() || !self.runtime_works(sent) {
            return;
        }
        let store = StdArc::clone(&self.engine.store);
        self.beat = Some(InFlight {
            sent,
            answer: Box::pin(async move { store.beat(claims).await }),
        });
    }

    /// Whether the runtime takes up what it is given. One that does not is asked again, and again.
    fn runtime_works(&self, now: Duration) -> bool {
        let alive = StdArc::clone(&self.alive);
        drop(
            self.runtime
                .spawn(async move { alive.set(millis(since_boot()) as usize) }),
        );
        let silence = millis(now).saturating_sub(self.alive.get() as u64);
        silence <= millis(self.settings.stall_limit)
    }

    pub(super) fn beaten(&mut self, answer: Result<Beaten, Failure>) {
        let sent = self.beat.take().map_or(Duration::ZERO, |beat| beat.sent);
        let Ok(beaten) = answer else {
            self.tally.failures.add(1);
            return;
        };
        let renewed = self
            .claims
            .older_than(sent.saturating_sub(self.settings.lease / 3));
        for epoch in renewed {
            self.claims.renew(epoch, sent);
        }
        beaten.lost.into_iter().for_each(|epoch| self.lose(epoch));
        self.claims.stop(&beaten.cancelled, StopReason::Cancelled);
    }

    pub(super) fn lose(&mut self, epoch: Epoch) {
        if self.claims.lose(epoch) {
            self.tally.leases_lost.add(1);
            report::lease_lost(&self.engine.queue, epoch);
        }
    }
}
