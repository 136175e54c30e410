//! [`Claims`]: what a worker holds.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::durable::context::Stop;
use crate::durable::store::Epoch;
use crate::durable::{StopReason, TaskId};

/// What a worker holds: the tasks that it runs, by claim. Times are since the machine was started.
#[derive(Default)]
pub(crate) struct Claims {
    claims: HashMap<Epoch, Holding>,
    running: usize,
}

/// What is left of a claim.
struct Holding {
    /// When the request was sent that the store has answered with the last renewal.
    renewed: Duration,
    /// The store may have given the tasks to others.
    lost: bool,
    tasks: HashMap<TaskId, Run>,
}

/// A run of a task.
pub(crate) struct Run {
    pub(crate) stop: Stop,
    pub(crate) abort: AbortHandle,
}

/// A run that has ended or was given up.
pub(crate) struct Removed {
    pub(crate) run: Run,
    /// Its verdict would come too late.
    pub(crate) lost: bool,
}

impl Claims {
    /// How many tasks run.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn insert(&mut self, epoch: Epoch, renewed: Duration, id: TaskId, run: Run) {
        let holding = self.claims.entry(epoch).or_insert_with(|| Holding {
            renewed,
            lost: false,
            tasks: HashMap::new(),
        });
        holding.tasks.insert(id, run);
        self.running += 1;
    }

    /// A run has ended. Nothing, if it was given up before.
    pub(crate) fn remove(&mut self, epoch: Epoch, id: TaskId) -> Option<Removed> {
        let holding = self.claims.get_mut(&epoch)?;
        let run = holding.tasks.remove(&id)?;
        let lost = holding.lost;
        self.running -= 1;
        if holding.tasks.is_empty() {
            self.claims.remove(&epoch);
        }
        Some(Removed { run, lost })
    }

    /// Gives all runs up.
    pub(crate) fn take_all(&mut self) -> Vec<(Epoch, TaskId, Removed)> {
        self.running = 0;
        let claims = std::mem::take(&mut self.claims).into_iter();
        let runs = claims.flat_map(|(epoch, holding)| {
            let lost = holding.lost;
            let tasks = holding.tasks.into_iter();
            tasks.map(move |(id, run)| (epoch, id, Removed { run, lost }))
        });
        runs.collect()
    }

    /// The time of the oldest renewal of those that are not lost.
    pub(crate) fn oldest_renewal(&self) -> Option<Duration> {
        let held = self.claims.values().filter(|holding| !holding.lost);
        held.map(|holding| holding.renewed).min()
    }

    /// The claims that were not renewed since then.
    pub(crate) fn older_than(&self, time: Duration) -> Vec<Epoch> {
        let claims = self.claims.iter();
        let old = claims.filter(|(_, holding)| !holding.lost && holding.renewed <= time);
        old.map(|(&epoch, _)| epoch).collect()
    }

    pub(crate) fn renew(&mut self, epoch: Epoch, time: Duration) {
        if let Some(holding) = self.claims.get_mut(&epoch) {
            holding.renewed = holding.renewed.max(time);
        }
    }

    /// A lease is lost: tells the runs. Whether it was not known.
    pub(crate) fn lose(&mut self, epoch: Epoch) -> bool {
        let Some(holding) = self.claims.get_mut(&epoch).filter(|holding| !holding.lost) else {
            return false;
        };
        holding.lost = true;
        for run in holding.tasks.values() {
            run.stop.set(StopReason::LeaseLost);
        }
        true
    }

    /// Tells the runs of some tasks to stop.
    pub(crate) fn stop(&self, ids: &[TaskId], reason: StopReason) {
        for holding in self.claims.values() {
            let runs = ids.iter().filter_map(|id| holding.tasks.get(id));
            runs.for_each(|run| run.stop.set(reason));
        }
    }

    /// Tells all runs to stop.
    pub(crate) fn stop_all(&self, reason: StopReason) {
        for holding in self.claims.values() {
            holding.tasks.values().for_each(|run| run.stop.set(reason));
        }
    }
}
