//! Weak references to a client, through which `watch` reads the health of its store, and the counts of the whole store.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::engine::Engine;
use super::{Counts, DurableClient, Health};
use crate::weak_part::{ReadPart, WeakPart};

/// The maximum time for which the counts of a store are waited for.
const COUNTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer of a store: `None` until it is there, and then the counts, or `None` if the store did not answer in time. The
/// channel closes without an answer if the client is closed or dropped.
pub(crate) type CountsAnswer = watch::Receiver<Option<Option<Counts>>>;

impl DurableClient {
    pub(crate) fn weak_part(&self) -> impl ReadPart<Health> + use<> {
        WeakPart::new(self.engine(), |engine| engine.store.health())
    }

    /// Each read asks the store for its counts.
    pub(crate) fn weak_counts(&self) -> impl ReadPart<CountsAnswer> + use<> {
        WeakPart::new(self.engine(), Engine::ask_counts)
    }
}

impl Engine {
    /// Asks the store for its counts, in the background. The request holds no engine, so it delays no drop.
    fn ask_counts(&self) -> CountsAnswer {
        let (sender, answer) = watch::channel(None);
        let store = StdArc::clone(&self.store);
        self.run(async move {
            let counts = timeout(COUNTS_TIMEOUT, store.counts()).await;
            sender.send(Some(counts.ok().and_then(Result::ok))).ok();
        });
        answer
    }
}
