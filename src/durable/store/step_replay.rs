//! [`StepReplay`]: the replay of a task from one of its steps, and the step that records it.

use super::StepName;

/// A request to replay a task from one of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepReplay {
    /// The step that the operator has named.
    pub(crate) step: StepName,
    /// The first step that is removed. It differs from `step` if children have ended before the step that has spawned them was stored.
    pub(crate) first: StepName,
    /// A random number that stays the same if the request is sent again. So it has one effect, even if the task has run in the meantime.
    pub(crate) nonce: u64,
}

/// A replay that a task has recorded, compared with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedReplay {
    /// The request itself, which was sent before.
    Itself,
    /// Another request: the last replay of the task was from the same step.
    OfSameStep,
}

/// The size of the nonce in a record.
const NONCE_BYTES: usize = 8;

impl StepReplay {
    pub(crate) fn new(step: StepName, nonce: u64) -> Self {
        Self {
            first: step.clone(),
            step,
            nonce,
        }
    }

    /// Returns the value of the step that records this: the nonce, and the name of the step.
    pub(crate) fn record(&self) -> Vec<u8> {
        let step = self.step.as_str().as_bytes();
        [&self.nonce.to_be_bytes(), step].concat()
    }

    /// Returns the name of the step in a record.
    pub(crate) fn step_of(record: &[u8]) -> &[u8] {
        record.get(NONCE_BYTES..).unwrap_or_default()
    }

    /// Compares this with the records of a task, which are in the order of the replays.
    pub(crate) fn recorded_in<R: AsRef<[u8]>>(&self, records: &[R]) -> Option<RecordedReplay> {
        let nonce = self.nonce.to_be_bytes();
        if records.iter().any(|it| it.as_ref().starts_with(&nonce)) {
            return Some(RecordedReplay::Itself);
        }
        let last = records.last()?.as_ref();
        let is_same = Self::step_of(last) == self.step.as_str().as_bytes();
        is_same.then_some(RecordedReplay::OfSameStep)
    }
}
