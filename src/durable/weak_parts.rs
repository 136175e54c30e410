//! Weak references to a client, through which `watch` reads the health of its store, and the numbers of the whole store.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::engine::Engine;
use super::{DurableClient, Health, Losses, Overview};
use crate::weak_part::{ReadPart, WeakPart};

/// The maximum time for which the overview of a store is waited for.
const OVERVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer of a store: `None` until it is there, and then the overview, or `None` if the store or one of its partitions did not answer
/// in time. The channel closes without an answer if the client is closed or dropped.
pub(crate) type OverviewAnswer = watch::Receiver<Option<Option<Overview>>>;

/// The state of a store, as its client knows it without asking.
pub(crate) struct StoreState {
    pub(crate) health: Health,
    pub(crate) losses: Losses,
}

impl DurableClient {
    pub(crate) fn weak_part(&self) -> impl ReadPart<StoreState> + use<> {
        WeakPart::new(self.engine(), |engine| StoreState {
            health: engine.store.health(),
            losses: engine.losses.total(),
        })
    }

    /// Each read asks the store for its overview.
    pub(crate) fn weak_overview(&self) -> impl ReadPart<OverviewAnswer> + use<> {
        WeakPart::new(self.engine(), Engine::ask_overview)
    }
}

impl Engine {
    /// Asks the store for its overview, in the background. The request holds no engine, so it delays no drop.
    fn ask_overview(&self) -> OverviewAnswer {
        let (sender, answer) = watch::channel(None);
        let store = StdArc::clone(&self.store);
        self.run(async move {
            let answer = timeout(OVERVIEW_TIMEOUT, store.overview()).await;
            let overview = answer.ok().and_then(Result::ok);
            // Without a partition, the totals of the store would fall.
            let whole = overview.filter(|it| it.missing_partitions.is_empty());
            sender.send(Some(whole)).ok();
        });
        answer
    }
}
