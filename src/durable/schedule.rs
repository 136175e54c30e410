//! Schedules: what a user defines, when a schedule fires, and what it then stores.
//!
//! The files of this folder only compute. [`Schedules`](super::Schedules) and the executors send the requests.

pub(crate) mod body;
#[cfg(feature = "cron")]
pub(crate) mod cron;
pub(crate) mod every;
pub(crate) mod info;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod step;
pub(crate) mod when;

#[cfg(feature = "cron")]
pub use self::cron::{Cron, ParseCronError};
pub use self::every::Every;
pub use self::info::ScheduleInfo;
pub use self::options::{Missed, Overlap, ScheduleOptions};
pub use self::when::When;
