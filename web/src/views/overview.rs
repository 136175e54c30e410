//! The summary of a store.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use throng::durable::{
    Finding, FindingLevel, Health, Overview, Status, TaskFilter, TaskId, TaskInfo,
};

use super::charts::{Chart, ChartRange, charts_of_samples, charts_of_statistics};
use super::{Answer, optional_millis};
use crate::error::WebError;
use crate::gate::GateError;
use crate::recent::Question;
use crate::redact::redact_text;
use crate::sampler::Latest;
use crate::store::ShownStore;
use crate::visit::StoreVisit;

/// A summary of a store.
#[derive(Debug, Serialize)]
pub(crate) struct OverviewView {
    #[serde(flatten)]
    pub(crate) summary: SummaryView,
    #[serde(skip)]
    pub(crate) charts: [Chart; 2],
    /// The newest dead letters.
    pub(crate) dead: Vec<TaskInfo>,
}

/// The part of the summary that changes while the page is open.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryView {
    pub(crate) health: HealthView,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) numbers: OverviewNumbers,
    #[serde(serialize_with = "without_arc")]
    pub(crate) overview: Arc<Overview>,
}

/// The numbers that an operator looks at first.
#[derive(Debug, Serialize)]
pub(crate) struct OverviewNumbers {
    /// The time for which the first waiting task of any queue has waited.
    #[serde(serialize_with = "optional_millis")]
    pub(crate) oldest_waiting: Option<Duration>,
    /// The number of runs that have succeeded within the last hour.
    pub(crate) done_last_hour: u64,
    /// The number of runs that have failed within the last hour.
    pub(crate) failed_last_hour: u64,
    /// The number of workers. An executor counts once for each queue that it serves.
    pub(crate) workers: u64,
}

/// The state of a store, as the process of the dashboard sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HealthView {
    pub(crate) state: &'static str,
    pub(crate) error: Option<String>,
}

/// Something that an operator should look at.
#[derive(Debug, Serialize)]
pub(crate) struct Warning {
    pub(crate) id: &'static str,
    pub(crate) level: FindingLevel,
    pub(crate) text: String,
    /// The tasks that the text names.
    pub(crate) tasks: Vec<TaskId>,
}

/// The number of dead letters in the summary.
const DEAD_LETTERS: usize = 5;

pub(crate) async fn overview(
    visit: &StoreVisit,
    range: ChartRange,
) -> Result<Answer<OverviewView>, WebError> {
    let store = &visit.store;
    let mut summary = SummaryView::new(store, &store.sampler.latest().await)?;
    // The page shows the last numbers even if the store no longer answers.
    let dead = dead_letters(visit).await.unwrap_or_else(|error| {
        let text = format!("The newest dead letters are missing. {}", error.detail);
        summary
            .warnings
            .push(Warning::new("dead-letters", FindingLevel::Warn, text));
        Vec::new()
    });
    let charts = charts(store, range).await.unwrap_or_else(|error| {
        let text = format!(
            "The charts show the last 15 minutes, since the statistics are missing. {}",
            error.detail
        );
        summary
            .warnings
            .push(Warning::new("statistics", FindingLevel::Warn, text));
        charts_of_samples(&store.sampler.samples())
    });
    let view = OverviewView {
        charts,
        dead,
        summary,
    };
    Ok(Answer::whole(Some(view.summary.overview.now), view))
}

async fn dead_letters(visit: &StoreVisit) -> Result<Vec<TaskInfo>, WebError> {
    let filter = TaskFilter::new(Status::Dead);
    let admin = visit.store.client.admin();
    let tasks = admin.tasks(&filter, None, DEAD_LETTERS);
    let question = Question::Tasks(filter.clone(), None, DEAD_LETTERS);
    let mut tasks = visit.store.read(question, tasks).await?.tasks;
    visit.redact_errors(&mut tasks);
    Ok(tasks)
}

/// Reads the numbers of the charts. Those of the last 15 minutes need no request.
async fn charts(store: &ShownStore, range: ChartRange) -> Result<[Chart; 2], WebError> {
    let Some(filter) = range.statistics() else {
        return Ok(charts_of_samples(&store.sampler.samples()));
    };
    let admin = store.client.admin();
    let stats = store
        .read(Question::Statistics(range), admin.stats(&filter))
        .await?;
    Ok(charts_of_statistics(range, stats.now, &stats.rows))
}

impl SummaryView {
    /// Makes the summary of the last numbers that were read.
    ///
    /// # Errors
    ///
    /// No attempt to read the numbers has succeeded.
    pub(crate) fn new(store: &ShownStore, latest: &Latest) -> Result<Self, WebError> {
        let Some(overview) = latest.overview.clone() else {
            let error = latest.error.clone();
            return Err(error.unwrap_or_else(|| GateError::TimedOut.into()));
        };
        let health = HealthView::new(&store.client.health());
        let mut warnings = warnings(&latest.findings, &health);
        warnings.extend(latest.error.as_ref().map(stale));
        Ok(Self {
            warnings,
            health,
            numbers: OverviewNumbers::new(&overview),
            overview,
        })
    }
}

fn stale(error: &WebError) -> Warning {
    let text = format!("These numbers are old. {}", error.detail);
    Warning::new("stale", FindingLevel::Error, text)
}

fn without_arc<S: Serializer>(overview: &Arc<Overview>, serializer: S) -> Result<S::Ok, S::Error> {
    Overview::serialize(overview, serializer)
}

impl OverviewNumbers {
    fn new(overview: &Overview) -> Self {
        let runs = || overview.types.iter().map(|it| it.last_hour);
        let oldest = overview.queues.iter().filter_map(|it| it.oldest_waiting);
        Self {
            oldest_waiting: oldest.max(),
            done_last_hour: runs().map(|it| it.done).sum(),
            failed_last_hour: runs().map(|it| it.retried + it.died).sum(),
            workers: overview.queues.iter().map(|it| it.sessions).sum(),
        }
    }
}

impl HealthView {
    pub(crate) fn new(health: &Health) -> Self {
        let (state, error) = match health {
            Health::Well => ("well", None),
            Health::Mute => ("mute", None),
            Health::Unreachable(error) => ("unreachable", Some(error)),
            Health::Failing { error, .. } => ("failing", Some(error)),
            Health::Damaged { last, .. } => ("damaged", Some(last)),
            _ => ("unknown", None),
        };
        let error = error.map(|error| redact_text(error));
        Self { state, error }
    }
}

/// Returns what an operator should look at. Findings that may be intended are none of this.
fn warnings(findings: &[Finding], health: &HealthView) -> Vec<Warning> {
    let serious = findings
        .iter()
        .filter(|found| found.level > FindingLevel::Info);
    unhealthy(health)
        .into_iter()
        .chain(serious.map(Warning::of))
        .collect()
}

fn unhealthy(health: &HealthView) -> Option<Warning> {
    let error = health.error.as_deref().unwrap_or_default();
    let (level, text) = match health.state {
        "well" => return None,
        "mute" => (FindingLevel::Warn, "The store delivers no messages, so workers poll, and tasks start later than usual. With Redis, check that the user may publish and subscribe on the channels `throng:*`. With PostgreSQL, connect to the server itself, or through a pooler in session mode.".into()),
        state => (FindingLevel::Error, format!("The store is {state}: {error}")),
    };
    Some(Warning::new("health", level, text))
}

impl Warning {
    fn new(id: &'static str, level: FindingLevel, text: String) -> Self {
        Self {
            id,
            level,
            text,
            tasks: Vec::new(),
        }
    }

    /// Writes a finding as two sentences.
    fn of(finding: &Finding) -> Self {
        let sentences = [&finding.what, &finding.remedy].map(|text| {
            let mut chars = text.chars();
            let first = chars.next().map(|char| char.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        });
        let text = format!("{}.", sentences.join(". "));
        Self {
            tasks: finding.tasks.clone(),
            ..Self::new(finding.id, finding.level, redact_text(&text))
        }
    }
}
