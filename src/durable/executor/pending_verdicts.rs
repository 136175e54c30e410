//! [`PendingVerdicts`]: the verdicts that no request contains yet.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::durable::TaskId;
use crate::durable::store::{Epoch, MAX_BATCH_BYTES, MAX_BATCH_TASKS, Verdict, Verdicts};

/// The time after which verdicts are reported again that a part of the store has not stored because it does not answer.
const DEFERRAL: Duration = Duration::from_millis(500);

/// The verdicts that no request contains yet, in the order in which they arrived.
#[derive(Default)]
pub(crate) struct PendingVerdicts {
    pending: VecDeque<PendingVerdict>,
    /// Verdicts that are not to be reported before a time, since the part of the store that has their tasks does not answer.
    deferred: Vec<PendingVerdict>,
    resume_at: Option<Instant>,
}

type PendingVerdict = (Epoch, TaskId, Verdict);

impl PendingVerdicts {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.deferred.len()
    }

    /// Returns the claim of the oldest verdict that is not deferred.
    pub(crate) fn first_claim(&self) -> Option<Epoch> {
        self.pending.front().map(|(epoch, _, _)| *epoch)
    }

    pub(crate) fn push(&mut self, epoch: Epoch, id: TaskId, verdict: Verdict) {
        self.pending.push_back((epoch, id, verdict));
    }

    /// Has verdicts be reported again after a while.
    pub(crate) fn defer(&mut self, verdicts: &Verdicts, now: Instant) {
        let tasks = verdicts.tasks.iter().cloned();
        self.deferred
            .extend(tasks.map(|(id, verdict)| (verdicts.epoch, id, verdict)));
        self.resume_at.get_or_insert(now + DEFERRAL);
    }

    /// Returns the time at which deferred verdicts are reported again.
    pub(crate) fn resume_at(&self) -> Option<Instant> {
        self.resume_at
    }

    /// Defers verdicts no longer whose time has come. They are behind the others, so a part that does not answer delays no other.
    pub(crate) fn resume(&mut self, now: Instant) {
        if self.resume_at.is_some_and(|time| time <= now) {
            self.pending.extend(self.deferred.drain(..));
            self.resume_at = None;
        }
    }

    /// Takes the oldest verdicts that fit into one request, grouped by claim.
    pub(crate) fn take(&mut self) -> Vec<Verdicts> {
        let (mut count, mut bytes) = (0, 0);
        let fits = self.pending.iter().take_while(|(_, _, verdict)| {
            count += 1;
            bytes += size(verdict);
            count == 1 || count <= MAX_BATCH_TASKS && bytes <= MAX_BATCH_BYTES
        });
        let fits = fits.count();
        let mut groups: Vec<Verdicts> = Vec::new();
        for (epoch, id, verdict) in self.pending.drain(..fits) {
            let group = groups.iter_mut().find(|group| group.epoch == epoch);
            match group {
                Some(group) => group.tasks.push((id, verdict)),
                None => groups.push(Verdicts {
                    epoch,
                    tasks: vec![(id, verdict)],
                }),
            }
        }
        groups
    }
}

/// Returns the size of a verdict in a request, in bytes.
fn size(verdict: &Verdict) -> usize {
    match verdict.split().0 {
        Verdict::Done(output) => output.len(),
        Verdict::Retry { error, .. } | Verdict::Dead { error, .. } => error.len(),
        Verdict::Suspend { waits_for, .. } => waits_for.len(),
        Verdict::Snooze { .. } | Verdict::Release | Verdict::HoldGroup { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::store::DeadReason;

    fn suspend(bytes: usize) -> Verdict {
        Verdict::Suspend {
            after: Duration::ZERO,
            until: Some(1),
            waits_for: "x".repeat(bytes),
        }
    }

    fn hold(then: Verdict) -> Verdict {
        Verdict::HoldGroup {
            wait: Duration::ZERO,
            then: Box::new(then),
        }
    }

    /// Returns the numbers of verdicts in each request.
    fn requests(verdicts: impl IntoIterator<Item = Verdict>) -> Vec<usize> {
        let mut pending = PendingVerdicts::default();
        for verdict in verdicts {
            pending.push(1, TaskId::new(), verdict);
        }
        let mut requests = Vec::new();
        while !pending.is_empty() {
            requests.push(pending.take().iter().map(|group| group.tasks.len()).sum());
        }
        requests
    }

    #[test]
    fn a_request_has_a_limited_size() {
        let half = MAX_BATCH_BYTES / 2;
        let error = |bytes| "x".repeat(bytes);
        let dead = |bytes| Verdict::Dead {
            reason: DeadReason::Fatal,
            error: error(bytes),
            took: None,
        };
        let kinds: [&dyn Fn(usize) -> Verdict; 4] = [
            &suspend,
            &|bytes| hold(suspend(bytes)),
            &|bytes| Verdict::Done(vec![0; bytes]),
            &dead,
        ];
        for kind in kinds {
            assert_eq!(requests([kind(half), kind(half)]), [2]);
            assert_eq!(requests([kind(half), kind(half + 1)]), [1, 1]);
            // The first verdict of a request is in it in any case.
            assert_eq!(requests([kind(3 * half), kind(0)]), [1, 1]);
        }
    }

    #[test]
    fn deferred_verdicts_are_reported_behind_the_others() {
        let (mut pending, now) = (PendingVerdicts::default(), Instant::now());
        pending.push(1, TaskId::new(), suspend(0));
        let sent = pending.take();
        pending.defer(&sent[0], now);
        assert_eq!((pending.len(), pending.first_claim()), (1, None));
        assert!(!pending.is_empty() && pending.take().is_empty());
        pending.push(2, TaskId::new(), suspend(0));
        pending.resume(now + DEFERRAL - Duration::from_nanos(1));
        let epochs = |pending: &mut PendingVerdicts| -> Vec<Epoch> {
            pending.take().iter().map(|it| it.epoch).collect()
        };
        assert_eq!(epochs(&mut pending), [2]);
        pending.push(2, TaskId::new(), suspend(0));
        let time = pending.resume_at().expect("a verdict is deferred");
        pending.resume(time);
        assert_eq!(epochs(&mut pending), [2, 1]);
        assert!(pending.is_empty() && pending.resume_at().is_none());
    }

    #[test]
    fn a_request_has_a_limited_number_of_verdicts() {
        let verdicts = (0..=MAX_BATCH_TASKS).map(|_| suspend(0));
        assert_eq!(requests(verdicts), [MAX_BATCH_TASKS, 1]);
    }
}
