//! The properties of queues in stores: names, priorities, limits, and [`QueueInfo`].

pub(crate) mod group;
pub(crate) mod name;
pub(crate) mod priority;
pub(crate) mod settings;

use serde::Serialize;

pub use self::group::Groups;
pub use self::priority::Priority;
pub use self::settings::{QueueSettings, Rate};

/// The state of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct QueueInfo {
    /// The limits, and their revision.
    pub settings: QueueSettings,
    /// `true` if no task of the queue starts until it is resumed.
    pub is_paused: bool,
    /// The number of tasks that wait for a worker, including those whose type no live worker has registered. With Redis, the latter are
    /// counted if their types are among the first 1,000 that clients have recorded.
    pub waiting: u64,
    /// The number of tasks that workers have claimed.
    pub running: u64,
}
