//! The time for which ended tasks are kept, and their number.

use super::row::{Expiry, State};
use super::state::Model;
use crate::durable::clock::millis;
use crate::durable::{DeadFilter, Retention, TaskId};

impl Model {
    pub(in super::super) fn retention(&self) -> Retention {
        self.retention
    }

    /// Changes the retention. Dead letters that have expired do not come back.
    pub(in super::super) fn set_retention(&mut self, retention: Retention) {
        self.dead_until = self.expiry().dead_until;
        self.retention = retention;
    }

    /// Returns the times up to which ended tasks have expired.
    pub(super) fn expiry(&self) -> Expiry {
        let time = self.store_time();
        let dead_until = time.checked_sub(millis(self.retention.dead_for));
        Expiry {
            time,
            dead_until: self.dead_until.max(dead_until),
        }
    }

    /// Returns the tasks that maintenance removes: those that have expired, and those in excess of the maxima.
    pub(super) fn removable(&self) -> Vec<TaskId> {
        let expiry = self.expiry();
        let expired = self.tasks.values().filter(|row| row.is_expired(expiry));
        let mut found: Vec<_> = expired.map(|row| row.task.id).collect();
        found.extend(self.excess_dead());
        found.extend(self.excess_kept());
        found
    }

    /// Returns the dead letters in excess of the maximum, which are the oldest.
    fn excess_dead(&self) -> impl Iterator<Item = TaskId> {
        let dead_letters = self.dead_letters(&DeadFilter::all(), usize::MAX);
        let most = self.retention.dead_most as usize;
        dead_letters
            .into_iter()
            .skip(most)
            .map(|dead_letter| dead_letter.id)
    }

    /// Returns the other ends in excess of the maximum, which expire first.
    fn excess_kept(&self) -> impl Iterator<Item = TaskId> {
        let expiry = self.expiry();
        let rows = self.tasks.values().filter(|row| !row.is_expired(expiry));
        let mut kept: Vec<_> = rows
            .filter_map(|row| match row.state {
                State::Done { until, .. } | State::Cancelled { until } => {
                    Some((until, row.task.id))
                }
                _ => None,
            })
            .collect();
        kept.sort_unstable();
        let most = self.retention.kept_most.unwrap_or(u64::MAX);
        let excess = kept.len().saturating_sub(most as usize);
        kept.into_iter().take(excess).map(|(_, id)| id)
    }
}
