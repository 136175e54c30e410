//! [`PendingVerdicts`]: the verdicts that no request contains yet.

use std::collections::VecDeque;

use crate::durable::TaskId;
use crate::durable::store::{Epoch, MAX_BATCH_BYTES, MAX_BATCH_TASKS, Verdict, Verdicts};

/// The verdicts that no request contains yet, in the order in which they arrived.
#[derive(Default)]
pub(crate) struct PendingVerdicts(VecDeque<(Epoch, TaskId, Verdict)>);

impl PendingVerdicts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the claim of the oldest verdict.
    pub(crate) fn first_claim(&self) -> Option<Epoch> {
        self.0.front().map(|(epoch, _, _)| *epoch)
    }

    pub(crate) fn push(&mut self, epoch: Epoch, id: TaskId, verdict: Verdict) {
        self.0.push_back((epoch, id, verdict));
    }

    /// Takes the oldest verdicts that fit into one request, grouped by claim.
    pub(crate) fn take(&mut self) -> Vec<Verdicts> {
        let (mut count, mut bytes) = (0, 0);
        let fits = self.0.iter().take_while(|(_, _, verdict)| {
            count += 1;
            bytes += size(verdict);
            count == 1 || count <= MAX_BATCH_TASKS && bytes <= MAX_BATCH_BYTES
        });
        let fits = fits.count();
        let mut groups: Vec<Verdicts> = Vec::new();
        for (epoch, id, verdict) in self.0.drain(..fits) {
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
