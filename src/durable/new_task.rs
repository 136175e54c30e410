//! [`NewTask`]: a task that is to be stored, and the limits of a request.

use std::borrow::Cow;
use std::time::Duration;

use super::TaskId;
use super::store::kind::Kind;

/// The maximum number of tasks, ids or verdicts in one request. The engine respects these limits, and the stores
/// rely on it.
pub(crate) const MAX_BATCH_TASKS: usize = 256;
/// The maximum size in bytes of the payloads in one request, and in one answer. A single larger payload has a request of
/// its own.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 20;

/// A task that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) name: Cow<'static, str>,
    /// The version of the envelope around the payload.
    pub(crate) envelope: u8,
    pub(crate) payload: Vec<u8>,
    /// If it is zero, the task can be claimed at once.
    pub(crate) delay: Duration,
    /// The time for which the end of the task is kept; zero: the end is not kept. (Dead letters are kept for
    /// `DEAD_LETTER_RETENTION`.)
    pub(crate) retention: Duration,
    /// The number of deaths of workers that makes the task a dead letter: see `is_dead_letter`.
    pub(crate) max_crashes: u32,
}

impl NewTask {
    pub(crate) fn kind(&self) -> Kind {
        Kind::in_envelope(&self.name, self.envelope)
    }
}

/// Returns the size of the payloads of these tasks, in bytes.
pub(crate) fn bytes_of(tasks: &[NewTask]) -> usize {
    tasks.iter().map(|task| task.payload.len()).sum()
}
