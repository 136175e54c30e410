//! [`TypeTally`]: counts the runs of an executor by the types of their tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::blocking::Histogram;
use crate::durable::store::Verdict;
use crate::sync::{Mutex, lock};

/// The runs of an executor, by the types that it has registered. The lock is held only while one run is counted or all types are read.
#[derive(Debug, Default)]
pub(crate) struct TypeTally(Mutex<BTreeMap<&'static str, TypeMetrics>>);

/// The runs of the tasks of one type: the numbers of those that have ended, by outcome, and the times.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeMetrics {
    pub(crate) completed: u64,
    pub(crate) retried: u64,
    pub(crate) snoozed: u64,
    pub(crate) died: u64,
    pub(crate) cancelled: u64,
    pub(crate) released: u64,
    /// The times from when tasks were ready until they were claimed, without those that the store does not know.
    pub(crate) wait_time: Histogram,
    pub(crate) run_time: Histogram,
}

impl TypeTally {
    pub(crate) fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let types = names.into_iter();
        let types = types.map(|name| (name, TypeMetrics::default()));
        Self(Mutex::new(types.collect()))
    }

    /// Records how long a task waited until it was claimed. A name that is not registered is that of a damaged task.
    pub(crate) fn record_wait(&self, name: &str, time: Duration) {
        if let Some(runs) = lock(&self.0).get_mut(name) {
            runs.wait_time.record(time);
        }
    }

    /// Counts a run that has ended. `took` is zero if the run has not begun. A name that is not registered is that of a damaged task.
    pub(crate) fn count(&self, name: &str, verdict: &Verdict, was_cancelled: bool, took: Duration) {
        let mut types = lock(&self.0);
        let Some(runs) = types.get_mut(name) else {
            return;
        };
        *runs.number_of(verdict, was_cancelled) += 1;
        if !took.is_zero() {
            runs.run_time.record(took);
        }
    }

    #[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
    pub(crate) fn read(&self) -> Vec<(&'static str, TypeMetrics)> {
        let types = lock(&self.0);
        types.iter().map(|(&name, it)| (name, it.clone())).collect()
    }
}

impl TypeMetrics {
    fn number_of(&mut self, verdict: &Verdict, was_cancelled: bool) -> &mut u64 {
        match verdict.split().0 {
            Verdict::Done(_) => &mut self.completed,
            _ if was_cancelled => &mut self.cancelled,
            Verdict::Retry { .. } => &mut self.retried,
            Verdict::Snooze { .. } | Verdict::Suspend { .. } => &mut self.snoozed,
            Verdict::Dead { .. } => &mut self.died,
            Verdict::Release | Verdict::HoldGroup { .. } => &mut self.released,
        }
    }
}
