//! Requests about dead letters, and the comparison of their answers.

use super::{Outcome, Pair, same};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::machine_tests::Choice;

impl<H: Harness> Pair<H> {
    pub(super) async fn dead_letters(&mut self, choice: &Choice, limit: usize) -> Outcome {
        let filter = choice.filter(&self.ids);
        let [model, tested] = self.stores(0);
        let dead_letters = model.0.dead_letters(filter.clone(), limit).await;
        same((dead_letters, tested.0.dead_letters(filter, limit).await))
    }

    pub(super) async fn replay(&mut self, choice: &Choice) -> Outcome {
        let filter = choice.filter(&self.ids);
        let [model, tested] = self.stores(0);
        let replayed = model.0.replay_dead_letters(filter.clone()).await;
        same((replayed, tested.0.replay_dead_letters(filter).await))
    }

    pub(super) async fn delete(&mut self, choice: &Choice) -> Outcome {
        let filter = choice.filter(&self.ids);
        let [model, tested] = self.stores(0);
        let deleted = model.0.delete_dead_letters(filter.clone()).await;
        same((deleted, tested.0.delete_dead_letters(filter).await))
    }
}
