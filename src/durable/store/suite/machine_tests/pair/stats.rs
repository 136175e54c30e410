//! Statistics of runs.

use std::sync::Arc;
use std::time::Duration;

use super::{Outcome, Pair, requests, same};
use crate::durable::RunCounts;
use crate::durable::store::suite::Harness;
use crate::durable::store::{ReadStats, Resolution, RunType, StatReport, StatsStart};

impl<H: Harness> Pair<H> {
    /// Reports runs of types, which are chosen by numbers.
    pub(super) async fn record_stats(
        &mut self,
        reporter: u8,
        types: &[(u8, u64)],
        is_repeated: bool,
    ) -> Outcome {
        self.marks += 1;
        let runs = types.iter().map(|&(choice, number)| {
            let name = requests::name(choice % 2 == 1).into();
            let run_type = RunType::new(&name, &requests::queue(choice >= 2));
            let time = Duration::from_micros(number);
            (run_type, RunCounts::of([number, 1, 2, 3, 4], time))
        });
        let report = Arc::new(StatReport {
            reporter: reporter.into(),
            number: self.marks,
            runs: runs.collect(),
        });
        let [model, tested] = self.stores(0);
        for _ in 0..1 + usize::from(is_repeated) {
            let recorded = model.0.record_stats(Arc::clone(&report)).await;
            same((recorded, tested.0.record_stats(Arc::clone(&report)).await))?;
        }
        Ok(())
    }

    pub(super) async fn stats(
        &mut self,
        process: u8,
        is_by_hour: bool,
        last: Option<Duration>,
    ) -> Outcome {
        let request = ReadStats {
            resolution: Resolution::ALL[usize::from(is_by_hour)],
            start: last.map_or(StatsStart::First, StatsStart::Last),
            until: None,
            name: None,
        };
        let [model, tested] = self.stores(process);
        let expected = model.0.stats(request.clone()).await;
        same((expected, tested.0.stats(request).await))
    }
}
