//! Compares the summaries of the stores.

use std::collections::{BTreeMap, BTreeSet};

use super::{Outcome, Pair, equal, refusal};
use crate::durable::store::suite::Harness;
use crate::durable::{Overview, QueueInfo, RunTotals, TypeOverview};

impl<H: Harness> Pair<H> {
    /// Compares what does not depend on the store. Stores detect the death of a process at different times, so what depends on live
    /// sessions is left out once a process was killed.
    pub(super) async fn overview(&mut self, process: u8) -> Outcome {
        let knows_live = self.started == self.processes.len();
        let [model, tested] = self.stores(process);
        let expected = model.0.overview().await.map_err(refusal)?;
        let answered = tested.0.overview().await.map_err(refusal)?;
        equal("the time", &expected.now, &answered.now)?;
        equal("the counts", &expected.counts, &answered.counts)?;
        let queues = [&expected, &answered].map(|it| queues(it, knows_live));
        equal("the queues", &queues[0], &queues[1])?;
        let types = [&expected, &answered].map(|it| types(it, knows_live));
        equal("the types", &types[0], &types[1])?;
        equal("paused types", &paused(&expected), &paused(&answered))
    }
}

/// Returns the queues and the numbers of their sessions.
fn queues(it: &Overview, knows_live: bool) -> Vec<(Option<&str>, QueueInfo, Option<u64>)> {
    let queues = it.queues.iter();
    let described = queues.map(|it| {
        let sessions = knows_live.then_some(it.sessions);
        (it.name.as_deref(), it.info.clone(), sessions)
    });
    described.collect()
}

/// Returns the types that have runs, and whether they are paused and served. Which others are listed depends on the store.
fn types(it: &Overview, knows_live: bool) -> BTreeMap<RunTypeName<'_>, (bool, bool, RunTotals)> {
    let types = it.types.iter();
    let with_runs = types.filter(|it| it.last_hour != RunTotals::default());
    let described = with_runs.map(|it| {
        let is_served = knows_live && it.is_served;
        (name_of(it), (it.is_paused, is_served, it.last_hour))
    });
    described.collect()
}

/// The name and the queue of a type.
type RunTypeName<'a> = (Option<&'a str>, Option<&'a str>);

fn name_of(it: &TypeOverview) -> RunTypeName<'_> {
    (it.name.as_deref(), it.queue.as_deref())
}

fn paused(it: &Overview) -> BTreeSet<Option<&str>> {
    let paused = it.types.iter().filter(|it| it.is_paused);
    paused.map(|it| it.name.as_deref()).collect()
}
