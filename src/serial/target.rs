//! [`Target`]: what a queue is handed over to.

use tokio::runtime::Handle;

use super::core::Core;
use super::options::DrainOn;
use crate::join::{Spawn, Work};

/// Why a job that cannot run on its submitter's thread is rejected.
pub(super) const NO_TARGET: &str =
    "a job that cannot run on its submitter's thread needs a Tokio runtime, or `drain_on`";

/// A runtime or a pool that runs drains.
pub(super) enum Target {
    /// The one that the builder was given.
    Given(DrainOn),
    Runtime(Handle),
}

impl Target {
    /// The target of a queue that this thread hands over now.
    pub(super) fn of<S>(core: &Core<S>) -> Option<Self> {
        if let Some(spawn) = &core.options.drain_on {
            return Some(Self::Given(spawn.clone()));
        }
        let here = Handle::try_current().ok();
        here.or_else(|| core.suspended.runtime()).map(Self::Runtime)
    }

    pub(super) fn spawn_work(&self, drain: Work) -> Result<(), Work> {
        match self {
            Self::Given(target) => target.spawn_work(drain),
            Self::Runtime(handle) => handle.spawn_work(drain),
        }
    }
}
