//! The summary of a store.

use std::time::Duration;

use serde::Serialize;
use throng::durable::{Health, Overview, Status, TaskFilter, TaskInfo};

use super::{Answer, optional_millis};
use crate::error::WebError;
use crate::redact::redact_text;
use crate::visit::StoreVisit;

/// A summary of a store.
#[derive(Debug, Serialize)]
pub(crate) struct OverviewView {
    pub(crate) health: HealthView,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) numbers: OverviewNumbers,
    pub(crate) overview: Overview,
    /// The newest dead letters.
    pub(crate) dead: Vec<TaskInfo>,
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
    /// The number of workers. A process counts once for each queue that it serves.
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
    pub(crate) text: String,
}

/// The number of dead letters in the summary.
const DEAD_LETTERS: usize = 5;
/// The number of names in a warning.
const NAMES_PER_WARNING: usize = 5;

pub(crate) async fn overview(visit: &StoreVisit) -> Result<Answer<OverviewView>, WebError> {
    let store = &visit.store;
    let admin = store.client.admin();
    let overview = store.read(admin.overview()).await?;
    let dead = TaskFilter::new(Status::Dead);
    let mut dead = store.read(admin.tasks(&dead, None, DEAD_LETTERS)).await?;
    visit.redact_errors(&mut dead.tasks);
    let health = HealthView::new(&store.client.health());
    let view = OverviewView {
        warnings: warnings(&overview, &health),
        health,
        numbers: OverviewNumbers::new(&overview),
        dead: dead.tasks,
        overview,
    };
    Ok(Answer::whole(Some(view.overview.now), view))
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

fn warnings(overview: &Overview, health: &HealthView) -> Vec<Warning> {
    let paused = overview.queues.iter().filter(|it| it.info.is_paused);
    let paused = paused.filter(|it| it.info.waiting > 0);
    let paused: Vec<_> = paused.filter_map(|it| it.name.as_deref()).collect();
    let held = overview.types.iter().filter(|it| it.is_paused);
    let held: Vec<_> = held.filter_map(|it| it.name.as_deref()).collect();
    let found = [
        unhealthy(health),
        unserved(overview),
        without_workers(overview),
        missing(overview),
        (!paused.is_empty()).then(|| {
            let names = names(&paused);
            Warning::new(
                "paused-queues",
                format!("Tasks wait in paused queues: {names}. Resume them to start these tasks."),
            )
        }),
        (!held.is_empty()).then(|| {
            let names = names(&held);
            Warning::new(
                "paused-types",
                format!("Types are paused: {names}. Their tasks wait until the types are resumed."),
            )
        }),
    ];
    found.into_iter().flatten().collect()
}

fn unhealthy(health: &HealthView) -> Option<Warning> {
    let error = health.error.as_deref().unwrap_or_default();
    let text = match health.state {
        "well" => return None,
        "mute" => "The store does not deliver messages, so tasks start later than usual.".into(),
        state => format!("The store is {state}: {error}"),
    };
    Some(Warning::new("health", text))
}

fn unserved(overview: &Overview) -> Option<Warning> {
    let tasks = overview.counts.unserved;
    let types = overview.types.iter().filter(|it| !it.is_served);
    let types: Vec<_> = types.filter_map(|it| it.name.as_deref()).collect();
    (tasks > 0).then(|| {
        let names = names(&types);
        let text = format!(
            "{tasks} tasks wait for types that no live worker knows: {names}. Start workers that register these types."
        );
        Warning::new("unserved-types", text)
    })
}

fn without_workers(overview: &Overview) -> Option<Warning> {
    let idle = overview.queues.iter().filter(|it| it.sessions == 0);
    let waiting: u64 = idle.map(|it| it.info.waiting).sum();
    (waiting > 0).then(|| {
        let text = format!(
            "{waiting} tasks wait in queues that no worker serves. Start workers for these queues."
        );
        Warning::new("unserved-queues", text)
    })
}

fn missing(overview: &Overview) -> Option<Warning> {
    let missing = &overview.missing_partitions;
    (!missing.is_empty()).then(|| {
        let text = format!(
            "The partitions {missing:?} do not answer. Their tasks are missing in these numbers."
        );
        Warning::new("missing-partitions", text)
    })
}

/// Returns the first of the names, as a list.
fn names(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMES_PER_WARNING)].join(", ");
    match names.len().saturating_sub(NAMES_PER_WARNING) {
        0 => shown,
        others => format!("{shown} and {others} others"),
    }
}

impl Warning {
    fn new(id: &'static str, text: String) -> Self {
        Self { id, text }
    }
}
