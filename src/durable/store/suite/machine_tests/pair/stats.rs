//! Statistics of runs.

use std::sync::Arc;
use std::time::Duration;

use super::super::{ReadStatsStep, RecordStatsStep};
use super::{Outcome, Pair, requests, same};
use crate::durable::RunTotals;
use crate::durable::store::suite::Harness;
use crate::durable::store::{ReadStats, Resolution, RunType, StatReport, StatsStart};

impl<H: Harness> Pair<H> {
    /// Reports runs of types, which are chosen by numbers.
    pub(super) async fn record_stats(&mut self, step: &RecordStatsStep) -> Outcome {
        self.marks += 1;
        let runs = step.types.iter().map(|&(choice, number)| {
            let name = requests::name(choice % 2 == 1).into();
            let run_type = RunType::new(&name, &requests::queue(choice >= 2));
            let time = Duration::from_micros(number);
            (run_type, RunTotals::of([number, 1, 2, 3, 4], time))
        });
        let report = Arc::new(StatReport {
            reporter: step.reporter.into(),
            number: self.marks,
            runs: runs.collect(),
        });
        let [model, tested] = self.stores(0);
        for _ in 0..1 + usize::from(step.is_repeated) {
            let recorded = model.0.record_stats(Arc::clone(&report)).await;
            same((recorded, tested.0.record_stats(Arc::clone(&report)).await))?;
        }
        Ok(())
    }

    /// Compares all statistics.
    pub(super) async fn all_stats(&mut self) -> Outcome {
        for is_by_hour in [false, true] {
            let all = ReadStatsStep {
                process: 0,
                is_by_hour,
                last: None,
            };
            self.stats(&all).await?;
        }
        Ok(())
    }

    pub(super) async fn stats(&mut self, step: &ReadStatsStep) -> Outcome {
        let request = ReadStats {
            resolution: Resolution::ALL[usize::from(step.is_by_hour)],
            start: step.last.map_or(StatsStart::First, StatsStart::Last),
            until: None,
            name: None,
        };
        let [model, tested] = self.stores(step.process);
        let expected = model.0.stats(request.clone()).await;
        same((expected, tested.0.stats(request).await))
    }
}
