//! Compares the lists of workers.

use super::{Outcome, Pair, equal, refusal};
use crate::durable::store::Store;
use crate::durable::store::suite::Harness;
use crate::durable::{WorkerInfo, WorkerState};

impl<H: Harness> Pair<H> {
    /// Compares the workers that are not gone. The stores differ in when they remove the others.
    pub(super) async fn workers(&mut self, process: u8) -> Outcome {
        let [model, tested] = self.stores(process);
        let (expected, answered) = (read(model).await?, read(tested).await?);
        equal("the list of workers", &expected, &answered)?;
        self.newest_worker(process).await
    }

    /// Compares the worker of the newest session, which may be closed.
    async fn newest_worker(&mut self, process: u8) -> Outcome {
        let Some([of_model, of_tested]) = self.sessions.last().map(|session| session.ids) else {
            return Ok(());
        };
        let [model, tested] = self.stores(process);
        let expected = model.0.worker(of_model).await.map_err(refusal)?;
        let answered = tested.0.worker(of_tested).await.map_err(refusal)?;
        equal("a worker", &expected.map(facts), &answered.map(facts))
    }
}

/// The queue, the permits and the state of a worker.
type Facts = (Option<String>, usize, bool);

fn facts(worker: WorkerInfo) -> Facts {
    let is_suspect = worker.state == WorkerState::Suspect;
    (worker.queue, worker.permits, is_suspect)
}

/// Returns the workers in order.
async fn read(store: &Store) -> Result<Vec<Facts>, String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.0.workers(after, 3).await.map_err(refusal)?;
        let page = page.ok_or("a position is refused")?;
        let workers = page.workers.into_iter();
        let alive = workers.filter(|it| it.state != WorkerState::Gone);
        found.extend(alive.map(facts));
        match page.next {
            Some(next) => after = Some(next.position_in_workers()?),
            None => break,
        }
    }
    found.sort();
    Ok(found)
}
