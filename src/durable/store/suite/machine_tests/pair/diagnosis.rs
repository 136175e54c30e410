//! Compares the diagnoses of the stores.

use std::collections::BTreeSet;

use super::{Outcome, Pair, equal, refusal};
use crate::durable::store::suite::Harness;
use crate::durable::store::{Diagnosis, RunType, Store};

impl<H: Harness> Pair<H> {
    /// Compares the diagnoses, except for what depends on when a store detects the death of a process. The model finds all types that no
    /// worker claims; a store finds those of tasks at the heads of lists, after tasks of other types have moved out of these lists.
    pub(super) async fn diagnose(&mut self, process: u8) -> Outcome {
        let [model, tested] = self.stores(process);
        let (expected, answered) = (diagnosis(model).await?, diagnosis(tested).await?);
        equal("the diagnosis", &facts(&expected), &facts(&answered))?;
        let (expected, answered) = (unclaimed(&expected), unclaimed(&answered));
        match answered.is_subset(&expected) {
            true => Ok(()),
            false => Err(format!(
                "types are unclaimed:\n  model: {expected:?}\n  store: {answered:?}"
            )),
        }
    }
}

async fn diagnosis(store: &Store) -> Result<Diagnosis, String> {
    let diagnoses = store.0.diagnose().await.map_err(refusal)?;
    let [diagnosis] = <[_; 1]>::try_from(diagnoses.partitions)
        .map_err(|parts| format!("there are {} partitions", parts.len()))?;
    Ok(diagnosis)
}

/// Returns the time, the number of dead letters, the maximum, and the names of schedules.
fn facts(it: &Diagnosis) -> (u64, u64, u64, BTreeSet<&str>) {
    let schedules = it.schedules.iter().map(|it| it.name.as_str());
    (it.now, it.dead, it.dead_most, schedules.collect())
}

fn unclaimed(it: &Diagnosis) -> BTreeSet<(&RunType, bool)> {
    let unclaimed = it.unclaimed.iter();
    unclaimed.map(|it| (&it.run_type, it.is_known)).collect()
}
