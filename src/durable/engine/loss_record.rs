//! [`LossRecord`]: the acknowledged writes that the store has lost since the engine was started.

use std::time::Duration;

use crate::durable::Losses;
use crate::durable::clock::since_boot;
use crate::durable::store::Rewind;
use crate::sync::{Mutex, lock};

/// The acknowledged writes that the store has lost since the engine was started.
#[derive(Debug, Default)]
pub(crate) struct LossRecord(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    total: Losses,
    /// The time of the last loss, since the machine was started.
    last: Option<Duration>,
}

impl LossRecord {
    pub(super) fn add(&self, rewind: Rewind) {
        let mut recorded = lock(&self.0);
        recorded.last = Some(since_boot());
        recorded.total.rewinds += 1;
        recorded.total.healed += rewind.healed;
        recorded.total.lost += rewind.lost;
    }

    pub(crate) fn total(&self) -> Losses {
        lock(&self.0).total
    }

    /// Returns `true` if the store has lost writes since a time, given as the time since the machine was started.
    pub(crate) fn is_any_since(&self, time: Duration) -> bool {
        lock(&self.0).last.is_some_and(|last| last >= time)
    }
}
