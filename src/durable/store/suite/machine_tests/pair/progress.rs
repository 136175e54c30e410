//! Reports of progress, and the progress that a store returns.

use super::{Outcome, Pair, same};
use crate::durable::TaskId;
use crate::durable::store::suite::Harness;
use crate::durable::store::{Progress, ProgressReport, ProgressState};

impl<H: Harness> Pair<H> {
    /// Reports the progress of tasks, which are chosen among all that were ever claimed, the newest first.
    pub(super) async fn report_progress(&mut self, picks: &[u8], number: u64) -> Outcome {
        self.marks += 1;
        let reports = [0, 1].map(|side| self.reports(side, picks, number));
        let [for_model, for_tested] = reports;
        let [model, tested] = self.stores(0);
        let refused = model.0.report_progress(for_model).await;
        same((refused, tested.0.report_progress(for_tested).await))
    }

    fn reports(&self, side: usize, picks: &[u8], number: u64) -> Vec<ProgressReport> {
        let newest = picks
            .iter()
            .filter_map(|&pick| self.claimed.iter().rev().nth(usize::from(pick)));
        let reports = newest.map(|one| ProgressReport {
            id: one.task,
            progress: Progress {
                epoch: self.epochs[side][one.claim],
                number,
                bytes: self.marks.to_be_bytes().to_vec(),
            },
        });
        reports.collect()
    }

    pub(super) async fn progress(&mut self, process: u8, ids: Vec<TaskId>) -> Outcome {
        let [model, tested] = self.stores(process);
        let expected = model.0.progress(ids.clone()).await;
        let answered = tested.0.progress(ids).await;
        let expected = expected.map(|states| self.numbered(0, states));
        same((expected, answered.map(|states| self.numbered(1, states))))
    }

    /// Returns progress with the numbers of the claims instead of their epochs.
    fn numbered(&self, side: usize, mut states: Vec<ProgressState>) -> Vec<ProgressState> {
        for state in &mut states {
            if let ProgressState::Alive(Some(progress)) = state {
                let claim = self.epochs[side]
                    .iter()
                    .position(|&it| it == progress.epoch);
                progress.epoch = claim.map_or(0, |claim| claim as u64 + 1);
            }
        }
        states
    }
}
