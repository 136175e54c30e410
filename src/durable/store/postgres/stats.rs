//! The statistics of runs.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use super::view::View;
use crate::durable::store::{ReadStats, StatReport, StatsPage};

/// Adds the runs of a process.
pub(super) async fn record(_tx: &mut Transaction, _report: &StatReport) -> Result<(), Fault> {
    Err(unwritten("record_stats"))
}

/// Returns a page of the statistics.
pub(super) async fn read(_view: &View, _request: &ReadStats) -> Result<StatsPage, Fault> {
    Err(unwritten("stats"))
}
