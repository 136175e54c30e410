//! [`Watched`]: a part of any kind, as a registry holds it.

use std::time::{Duration, Instant};

use super::family::Row;
use super::kind::PartKind;
use super::names::{SERIAL, SerialNumbers};
use super::numbers::Numbers;
use crate::serial;
use crate::weak_part::{Owned, ReadPart};

/// A part that a registry watches, without keeping it alive.
pub(super) trait Watched: Send {
    /// Reads the numbers, or returns `None` if the part is gone.
    fn read(&mut self, now: Instant) -> Option<(Numbers, Owned)>;

    /// Returns `true` if the part is not gone.
    fn is_alive(&self) -> bool;

    /// Identifies the part while this exists.
    fn id(&self) -> usize;

    /// Asks a store for its overview. `None` if the part is no store, or is gone.
    #[cfg(feature = "durable")]
    fn ask_overview(&self) -> Option<(super::stores::OverviewAnswer, Owned)> {
        None
    }
}

/// A part to watch, with its kind.
#[allow(
    unnameable_types,
    missing_debug_implementations,
    reason = "only this module uses it: see `Part`"
)]
pub struct NewPart {
    pub(super) kind: PartKind,
    pub(super) part: Box<dyn Watched>,
}

impl NewPart {
    pub(super) fn new(kind: PartKind, part: impl Watched + 'static) -> Self {
        let part = Box::new(part);
        Self { kind, part }
    }
}

/// A part whose numbers are read as they are.
pub(super) struct Plain<O, M: 'static> {
    pub(super) part: O,
    pub(super) rows: &'static [Row<M>],
}

impl<O: ReadPart<M>, M> Watched for Plain<O, M> {
    fn read(&mut self, _: Instant) -> Option<(Numbers, Owned)> {
        let (numbers, owned) = self.part.read()?;
        Some((Numbers::read(self.rows, &numbers), owned))
    }

    fn is_alive(&self) -> bool {
        self.part.is_alive()
    }

    fn id(&self) -> usize {
        self.part.id()
    }
}

/// A serial executor. It has no clock: the time for which a job runs is measured from one read to the next.
pub(super) struct Serial<O> {
    part: O,
    busy: Option<Busy>,
}

/// An executor that was found running.
struct Busy {
    /// Changes when a job begins or ends.
    progress: [u64; 4],
    since: Instant,
}

impl<O> Serial<O> {
    pub(super) fn new(part: O) -> Self {
        Self { part, busy: None }
    }

    /// The time for which the executor has been known to run the same job.
    fn busy_for(&mut self, metrics: &serial::Metrics, now: Instant) -> Duration {
        let progress = [
            metrics.inline,
            metrics.queued,
            metrics.completed,
            metrics.panicked,
        ];
        if !metrics.is_busy {
            self.busy = None;
        } else if self
            .busy
            .as_ref()
            .is_none_or(|busy| busy.progress != progress)
        {
            let since = now;
            self.busy = Some(Busy { progress, since });
        }
        let since = self.busy.as_ref().map(|busy| busy.since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl<O: ReadPart<serial::Metrics>> Watched for Serial<O> {
    fn read(&mut self, now: Instant) -> Option<(Numbers, Owned)> {
        let (metrics, owned) = self.part.read()?;
        let busy_for = self.busy_for(&metrics, now);
        let numbers = SerialNumbers { metrics, busy_for };
        Some((Numbers::read(&SERIAL, &numbers), owned))
    }

    fn is_alive(&self) -> bool {
        self.part.is_alive()
    }

    fn id(&self) -> usize {
        self.part.id()
    }
}
