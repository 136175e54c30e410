//! The options of an executor.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::join::Spawn;

/// The runtime or pool on which drains run. Not the `Arc` of `crate::sync`: loom's cannot hold a trait object.
pub(super) type DrainOn = Arc<dyn Spawn>;

/// The options of one executor. See the methods of [`Builder`](super::Builder).
#[derive(Clone)]
pub(super) struct Options {
    pub(super) inline: bool,
    pub(super) queue_capacity: Option<usize>,
    pub(super) capture_jobs: usize,
    pub(super) capture_time: Duration,
    pub(super) poison_on_panic: bool,
    pub(super) drain_on: Option<DrainOn>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline: true,
            queue_capacity: None,
            capture_jobs: 16,
            capture_time: Duration::from_micros(20),
            poison_on_panic: true,
            drain_on: None,
        }
    }
}

impl Options {
    /// Rejects options that contradict each other.
    pub(super) fn validated(mut self) -> io::Result<Self> {
        if !self.inline {
            if self.queue_capacity == Some(0) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "queue_capacity is 0 and inline is false, so every job would be rejected; \
                     set queue_capacity to at least 1",
                ));
            }
            self.capture_jobs = 0;
        }
        Ok(self)
    }
}
