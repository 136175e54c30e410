//! The leases of claims.

use super::state::{Model, Suspect};
use crate::durable::store::{Epoch, RenewAnswer, SessionId};

impl Model {
    /// Renews the leases of claims.
    pub(in super::super) fn renew(&mut self, claims: &[Epoch]) -> RenewAnswer {
        let now = self.boot();
        let mut renewed = RenewAnswer::default();
        for &epoch in claims {
            let Some(lease) = self.claims.get_mut(&epoch) else {
                renewed.lost.push(epoch);
                continue;
            };
            lease.until = now + lease.length;
            lease.suspect = None;
            lease.is_delivered = true;
            let session = lease.session;
            self.confirm_alive(session);
            let held = self.tasks.values().filter(|row| row.is_held(epoch));
            let cancelled = held.filter(|row| row.cancel).map(|row| row.task.id);
            renewed.cancelled.extend(cancelled);
        }
        renewed
    }

    /// Records that the worker of a session lives. If it does not renew a claim, it does not have it.
    pub(super) fn confirm_alive(&mut self, session: SessionId) {
        for lease in self.claims.values_mut() {
            if lease.session == session {
                lease.suspect = lease.suspect.map(|_| Suspect::Active);
            }
        }
    }

    /// Suspects claims whose lease has expired, and takes back those that are suspected already. `session` is the
    /// session that makes this request. Returns `true` if any lease has expired.
    pub(super) fn reap_late(&mut self, session: SessionId) -> bool {
        let now = self.boot();
        let late = self
            .claims
            .iter_mut()
            .filter(|(_, lease)| lease.until <= now);
        let (mut found, mut expired) = (false, Vec::new());
        for (&epoch, lease) in late {
            found = true;
            if let Some(suspect) = lease.suspect {
                expired.push((epoch, suspect == Suspect::Active));
            }
            let is_own = lease.session == session;
            lease.suspect = Some(if is_own {
                Suspect::Active
            } else {
                Suspect::Silent
            });
            lease.until = now + lease.length / 3;
        }
        for (epoch, is_abandoned) in expired {
            self.reap(epoch, is_abandoned);
        }
        found
    }
}
