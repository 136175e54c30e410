//! A worker renews its leases.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::Instant;

use super::state::{InFlight, Worker};
use crate::durable::clock::since_boot;
use crate::durable::executor::message::Message;
use crate::durable::failure::Failure;
use crate::durable::store::{Epoch, RenewAnswer, Verdict};
use crate::durable::{StopReason, report};

impl Worker {
    pub(super) fn send_renewal(&mut self) {
        let now = Instant::now();
        if self.renewal.is_some() || self.next_renewal.is_none_or(|next| now < next) {
            return;
        }
        let sent = since_boot();
        let claims = self.claims.older_than(self.renewed_before(sent));
        self.next_renewal = Some(now + self.settings.lease / 6);
        self.probe_runtime();
        if self.is_stalled() {
            self.release_unstarted();
        } else if !claims.is_empty() {
            let store = StdArc::clone(&self.engine.store);
            self.renewal = Some(InFlight::new(async move { store.renew(claims).await }));
        }
    }

    /// Returns the time such that a renewal sent at `sent` renews all leases last renewed before that time. So the store
    /// hears of a worker that has claims twice in every third of a lease. This is also within the extension of a suspect
    /// claim that the worker does not know, which is a quarter of a lease.
    fn renewed_before(&self, sent: Duration) -> Duration {
        sent.saturating_sub(self.settings.lease / 12)
    }

    /// Spawns a probe on the runtime, unless the last one has not run yet.
    fn probe_runtime(&mut self) {
        if self.probed.is_none() {
            self.probed = Some(since_boot());
            let worker = self.sender.clone();
            drop(
                self.runtime
                    .spawn(async move { worker.send(Message::RuntimeAlive) }),
            );
        }
    }

    /// Returns `true` if the runtime has not run the probe for too long. Then the worker renews no leases, and claims no
    /// tasks.
    pub(super) fn is_stalled(&self) -> bool {
        let silence = self
            .probed
            .map(|probed| since_boot().saturating_sub(probed));
        silence.is_some_and(|silence| silence > self.settings.stall_limit)
    }

    /// Gives back the tasks that the runtime has not started.
    fn release_unstarted(&mut self) {
        for (epoch, id) in self.claims.release_unstarted() {
            self.pending_verdicts.push(epoch, id, Verdict::Release);
        }
        // One of them may have been quarantined, and the sessions have passed over others.
        self.wake(None);
    }

    pub(super) fn renewed(&mut self, answer: Result<RenewAnswer, Failure>) {
        let sent = self.renewal.take();
        let sent = sent.map_or(Duration::ZERO, |renewal| renewal.sent);
        let Ok(answer) = answer else {
            self.tally.failures.add(1);
            return;
        };
        let renewed = self
            .claims
            .older_than(self.renewed_before(sent))
            .into_iter();
        for epoch in renewed.filter(|epoch| !answer.unreached.contains(epoch)) {
            self.claims.renew(epoch, sent);
        }
        self.tally
            .failures
            .add(usize::from(!answer.unreached.is_empty()));
        answer
            .lost
            .into_iter()
            .for_each(|epoch| self.mark_gone(epoch));
        self.claims.stop(&answer.cancelled, StopReason::Cancelled);
    }

    /// Marks a claim whose lease was not renewed in time.
    pub(super) fn mark_late(&mut self, epoch: Epoch) {
        if self.claims.mark_late(epoch) {
            self.tally.leases_lost.add(1);
            report::lease_lost(&self.engine.store_name, epoch);
        }
    }

    /// Marks a claim that the store no longer holds.
    fn mark_gone(&mut self, epoch: Epoch) {
        if self.claims.mark_gone(epoch) {
            self.tally.leases_lost.add(1);
            report::lease_lost(&self.engine.store_name, epoch);
            self.wake(None);
        }
    }
}
