//! Changes of single tasks, and the comparison of their answers.

use super::steps::step_name;
use super::{Outcome, Pair, requests, same};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::machine_tests::ChangeChoice;
use crate::durable::store::{Change, StepKind, StepReplay};

impl<H: Harness> Pair<H> {
    pub(super) async fn change(&mut self, task: u8, choice: ChangeChoice) -> Outcome {
        let ids = self.ids.of_all(&[task]);
        let change = match choice {
            ChangeChoice::Cancel => Change::Cancel,
            ChangeChoice::RunNow => Change::RunNow,
            ChangeChoice::MoveTo { is_queued } => {
                Change::MoveTo(requests::queue(is_queued && self.has_queues))
            }
            ChangeChoice::Replay => Change::Replay,
            ChangeChoice::ReplayFrom { name, nonce } => {
                let step = step_name(StepKind::Step, name);
                Change::ReplayFrom(StepReplay::new(step, nonce.into()))
            }
            ChangeChoice::Delete => Change::Delete,
        };
        let [model, tested] = self.stores(0);
        let changed = model.0.change(ids.clone(), change.clone()).await;
        same((changed, tested.0.change(ids, change).await))
    }
}
