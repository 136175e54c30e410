//! [`StepReplay`]: the replay of a task from one of its steps, and the step that records it.

use super::{StepKind, StepName};
use crate::durable::TaskId;

/// A request to replay a task from one of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReplay {
    /// The step that the operator has named.
    pub step: StepName,
    /// The first step that is removed. It differs from `step` if children ended before the step that records their spawn was stored.
    pub first: StepName,
    /// A [random number](Self::random_nonce) that stays the same if the request is sent again. So it has one effect, even if the task has
    /// run in the meantime.
    pub nonce: u64,
}

/// A replay that a task has recorded, compared with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedReplay {
    /// The request itself, which was sent before.
    Itself,
    /// Another request: the last replay of the task was from the same step.
    OfSameStep,
}

/// The size of a nonce in a record.
const NONCE_BYTES: usize = 8;

impl StepReplay {
    /// Returns a request to remove a step and all later ones.
    pub fn new(step: StepName, nonce: u64) -> Self {
        Self {
            first: step.clone(),
            step,
            nonce,
        }
    }

    /// Returns a nonce that no other request has. It comes from a new id: an application may seed other generators, and a fork copies them.
    pub fn random_nonce() -> u64 {
        let bits = u128::from_be_bytes(TaskId::new().to_bytes());
        (bits >> 64 ^ bits) as u64
    }

    /// Returns the value of the step that records this: the nonce of the first request, that of the last one, and the name of the step.
    pub fn record(&self) -> Vec<u8> {
        self.record_after(&self.nonce.to_be_bytes())
    }

    /// Returns a record of the same step in which this is the last request.
    pub fn record_after(&self, record: &[u8]) -> Vec<u8> {
        let first = record.get(..NONCE_BYTES).unwrap_or_default();
        let step = self.step.as_str().as_bytes();
        [first, &self.nonce.to_be_bytes(), step].concat()
    }

    /// Returns the name of the step in a record.
    pub fn step_of(record: &[u8]) -> &[u8] {
        record.get(2 * NONCE_BYTES..).unwrap_or_default()
    }

    /// Compares this with the records of a task, which are in the order of the replays.
    pub fn recorded_in<R: AsRef<[u8]>>(&self, records: &[R]) -> Option<RecordedReplay> {
        let nonce = self.nonce.to_be_bytes();
        let mut nonces = records
            .iter()
            .flat_map(|it| it.as_ref().chunks(NONCE_BYTES).take(2));
        if nonces.any(|it| it == nonce) {
            return Some(RecordedReplay::Itself);
        }
        let last = records.last()?.as_ref();
        let is_same = Self::step_of(last) == self.step.as_str().as_bytes();
        is_same.then_some(RecordedReplay::OfSameStep)
    }

    /// Returns `true` if the named step is the record of an earlier replay, which the last replay has already replaced. The task still has
    /// a step with this name, since the new record has it, too.
    pub fn names_replaced_record(&self, recorded: Option<RecordedReplay>) -> bool {
        let kind = StepName::split(self.step.as_str()).map(|(kind, _)| kind);
        kind == Some(StepKind::Replay) && recorded == Some(RecordedReplay::OfSameStep)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_does_not_determine_the_nonces() {
        let nonces = (0..100).map(|_| {
            fastrand::seed(1);
            StepReplay::random_nonce()
        });
        assert_eq!(nonces.collect::<HashSet<_>>().len(), 100);
    }
}
