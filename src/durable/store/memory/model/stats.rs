//! The statistics of runs.

use super::state::Model;
use crate::durable::clock::millis;
use crate::durable::store::{
    MAX_STAT_ROWS, REPORTER_RETENTION, ReadStats, Resolution, StatReport, StatsPage,
};

impl Model {
    pub(in super::super) fn record_stats(&mut self, report: &StatReport) {
        let now = self.wall();
        let stats = &mut self.stats;
        let last = stats.reporters.get(&report.reporter);
        if last.is_some_and(|&(number, _)| report.number <= number) {
            return;
        }
        stats
            .reporters
            .insert(report.reporter, (report.number, now));
        for resolution in Resolution::ALL {
            let bucket = (resolution, resolution.bucket(now));
            let bucket = stats.buckets.entry(bucket).or_default();
            for (run_type, runs) in &report.runs {
                bucket.add(run_type.clone(), *runs);
            }
        }
    }

    pub(in super::super) fn stats(&self, request: &ReadStats) -> StatsPage {
        let mut page = StatsPage {
            now: self.wall(),
            ..StatsPage::default()
        };
        let mut examined = 0;
        for number in request.buckets(page.now) {
            let Some(bucket) = self.stats.buckets.get(&(request.resolution, number)) else {
                continue;
            };
            if examined >= MAX_STAT_ROWS {
                page.next = Some(number);
                break;
            }
            examined += bucket.iter().count();
            let rows = bucket
                .iter()
                .filter(|(run_type, _)| request.selects(run_type));
            page.rows
                .extend(rows.map(|(run_type, &runs)| (number, run_type.clone(), runs)));
        }
        page
    }

    /// Returns the number of reporters plus that of types in all buckets.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(in super::super) fn statistics(&self) -> u64 {
        let buckets = self.stats.buckets.values();
        let types: usize = buckets.map(|bucket| bucket.iter().count()).sum();
        (types + self.stats.reporters.len()) as u64
    }

    /// Removes the buckets that are no longer kept, and those that are in the future.
    pub(super) fn expire_stats(&mut self) {
        let now = self.wall();
        let kept = |resolution: Resolution, bucket| {
            let kept = resolution.kept_at(now);
            kept.contains(&bucket)
        };
        let stats = &mut self.stats;
        stats
            .buckets
            .retain(|&(resolution, bucket), _| kept(resolution, bucket));
        let retention = millis(REPORTER_RETENTION);
        stats
            .reporters
            .retain(|_, &mut (_, at)| at.abs_diff(now) <= retention);
    }
}
