//! Renewals of leases, and the comparison of their answers.

use super::{Outcome, Pair, same};
use crate::durable::TaskId;
use crate::durable::store::suite::Harness;
use crate::durable::store::{Epoch, RenewAnswer};

impl<H: Harness> Pair<H> {
    pub(super) async fn renew(&mut self, claims: &[u8]) -> Outcome {
        let mut claims: Vec<_> = claims.iter().map(|&pick| usize::from(pick)).collect();
        claims.sort_unstable();
        claims.dedup();
        let len = self.epochs[0].len();
        // The newest first, as with verdicts.
        let claims: Vec<_> = claims
            .into_iter()
            .filter_map(|pick| len.checked_sub(pick + 1))
            .collect();
        let epochs = [0, 1].map(|side| {
            claims
                .iter()
                .map(|&claim| self.epochs[side][claim])
                .collect()
        });
        let [for_model, for_tested]: [Vec<Epoch>; 2] = epochs;
        let [model, tested] = self.stores(0);
        let expected = model.0.renew(for_model).await;
        let answered = tested.0.renew(for_tested).await;
        let expected = expected.map(|renewed| self.renewed(0, renewed));
        let answered = answered.map(|renewed| self.renewed(1, renewed));
        same((expected, answered))
    }

    /// Returns an answer with sorted claims, numbered by the test.
    fn renewed(&self, side: usize, renewed: RenewAnswer) -> (Vec<Option<usize>>, Vec<TaskId>) {
        let of = |epoch| self.epochs[side].iter().position(|&it| it == epoch);
        let mut lost: Vec<_> = renewed.lost.into_iter().map(of).collect();
        let mut cancelled = renewed.cancelled;
        lost.sort();
        cancelled.sort();
        (lost, cancelled)
    }
}
