//! Changes of the retention, and the comparison of what the stores answer afterwards.

use super::{Outcome, Pair, same};
use crate::durable::Retention;
use crate::durable::store::suite::Harness;

impl<H: Harness> Pair<H> {
    pub(super) async fn set_retention(&mut self, retention: Retention) -> Outcome {
        let [model, tested] = self.stores(0);
        let set = model.0.set_retention(retention).await;
        same((set, tested.0.set_retention(retention).await))?;
        same((model.0.retention().await, tested.0.retention().await))
    }
}
