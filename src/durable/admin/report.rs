//! [`Report`]: what is wrong with a store, and what to do.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::findings::{Facts, findings};
use super::json;
use super::list::list;
use crate::durable::clock::time_of;
use crate::durable::engine::Engine;
use crate::durable::{DurableError, Finding, Overview, Status, TaskFilter};

/// A report on a store: see [`Admin::report`](crate::durable::Admin::report).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The current time, by the clock of the store.
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
    /// The problems, the most serious first. If the list is empty, the report has found no problem.
    pub findings: Vec<Finding>,
}

/// The number of dead letters that a report examines: the newest ones.
const MAX_EXAMINED_DEAD_LETTERS: usize = 50;

/// Returns a report: see [`Admin::report`](crate::durable::Admin::report).
pub(super) async fn report(engine: &Engine) -> Result<Report, DurableError> {
    let overview = engine.ask(None, |store| store.overview()).await?;
    report_of(engine, &overview).await
}

/// Returns a report that does not read the overview again: see [`Admin::report_of`](crate::durable::Admin::report_of).
pub(super) async fn report_of(
    engine: &Engine,
    overview: &Overview,
) -> Result<Report, DurableError> {
    let diagnoses = engine.ask(None, |store| store.diagnose()).await?;
    let dead = TaskFilter::new(Status::Dead);
    let dead = list(engine, &dead, None, MAX_EXAMINED_DEAD_LETTERS).await;
    let times = diagnoses.partitions.iter().map(|part| part.now);
    let now = times.max().unwrap_or_default();
    let findings = findings(&Facts {
        overview,
        diagnoses: &diagnoses,
        // A partition that does not answer is a finding.
        newest_dead: dead.map(|page| page.tasks).unwrap_or_default(),
        damage: engine.store.damage(),
        now,
    });
    Ok(Report {
        now: time_of(Duration::from_millis(now)),
        findings,
    })
}
