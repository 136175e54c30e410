//! Compares the lists of workers.

use super::{Outcome, Pair, equal, refusal};
use crate::durable::WorkerState;
use crate::durable::store::Store;
use crate::durable::store::suite::Harness;

impl<H: Harness> Pair<H> {
    /// Compares the workers that are not gone. The stores differ in when they remove the others.
    pub(super) async fn workers(&mut self, process: u8) -> Outcome {
        let [model, tested] = self.stores(process);
        let (expected, answered) = (read(model).await?, read(tested).await?);
        equal("the list of workers", &expected, &answered)
    }
}

/// Returns the queues, the permits and the states of the workers, in order.
async fn read(store: &Store) -> Result<Vec<(Option<String>, usize, bool)>, String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.0.workers(after, 3).await.map_err(refusal)?;
        let page = page.ok_or("a position is refused")?;
        let workers = page.workers.into_iter();
        let alive = workers.filter(|it| it.state != WorkerState::Gone);
        found.extend(alive.map(|it| (it.queue, it.permits, it.state == WorkerState::Suspect)));
        match page.next {
            Some(next) => after = Some(next.position_in_workers()?),
            None => break,
        }
    }
    found.sort();
    Ok(found)
}
