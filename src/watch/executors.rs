//! Watched durable executors: their numbers, and those of each type of tasks.

use std::sync::Arc;
use std::time::Instant;

use super::names::durable::{EXECUTOR, TYPES};
use super::numbers::Numbers;
use super::watched::Watched;
use crate::durable::Metrics;
use crate::durable::executor::type_tally::TypeMetrics;
use crate::weak_part::{Owned, ReadPart};

/// A durable executor.
pub(super) struct WatchedExecutor<O>(pub(super) O);

impl<O: ReadPart<(Metrics, Vec<(&'static str, TypeMetrics)>)>> Watched for WatchedExecutor<O> {
    fn read(&mut self, _: Instant) -> Option<(Numbers, Owned)> {
        let ((metrics, types), owned) = self.0.read()?;
        let types = types
            .into_iter()
            .map(|(name, runs)| (Arc::from(name), runs));
        let numbers = Numbers::read(&EXECUTOR, &metrics).with_items(&TYPES, types);
        Some((numbers, owned))
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn id(&self) -> usize {
        self.0.id()
    }
}
