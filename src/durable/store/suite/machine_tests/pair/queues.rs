//! Sends requests about the named queue to both stores, and compares the answers.

use super::{Outcome, Pair, Session, Types, requests, same};
use crate::durable::store::QueueChange;
use crate::durable::store::suite::Harness;

impl<H: Harness> Pair<H> {
    pub(super) async fn change_queue(&mut self, change: QueueChange) -> Outcome {
        // A group that is full because of the change loses its turn. In a list that no worker reads, Redis notices that later.
        self.serve_queue(0).await;
        let queue = requests::queue(true);
        let [model, tested] = self.stores(0);
        let changed = model.0.change_queue(queue.clone(), change).await;
        same((changed, tested.0.change_queue(queue, change).await))?;
        self.queue(0).await
    }

    /// Compares what the stores say about the named queue.
    pub(super) async fn queue(&mut self, process: u8) -> Outcome {
        self.serve_queue(process).await;
        let queue = requests::queue(true);
        let [model, tested] = self.stores(process);
        let expected = model.0.queue(queue.clone()).await;
        let answered = tested.0.queue(queue).await;
        if let Ok(info) = &answered {
            let limit = info.settings.max_running.map(u64::from);
            self.limit = if info.is_paused { Some(0) } else { limit };
        }
        same((expected, answered))
    }

    /// Opens a session of the named queue if there is none. Otherwise, the stores would differ in when they notice that the last
    /// session is dead, and that no worker serves the queue.
    async fn serve_queue(&mut self, process: u8) {
        let is_served = |session: &Session| session.is_queued && !session.closed;
        if self.has_queues && !self.sessions.iter().any(is_served) {
            self.open(process, Types::All, true).await;
        }
    }
}
