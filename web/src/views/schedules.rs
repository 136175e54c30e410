//! The schedules.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use throng::durable::{ScheduleInfo, TaskId};

use super::{Answer, optional_since_1970};
use crate::error::WebError;
use crate::recent::Question;
use crate::redact::redact_text;
use crate::visit::StoreVisit;

/// A page of the schedules.
#[derive(Debug, Serialize)]
pub(crate) struct SchedulesView {
    pub(crate) schedules: Vec<ScheduleRow>,
}

/// A schedule: see [`ScheduleInfo`]. Times are in milliseconds since 1970.
#[derive(Debug, Serialize)]
pub(crate) struct ScheduleRow {
    pub(crate) name: String,
    pub(crate) task: String,
    pub(crate) when: String,
    pub(crate) queue: Option<String>,
    pub(crate) revision: u32,
    #[serde(serialize_with = "optional_since_1970")]
    pub(crate) next_tick: Option<SystemTime>,
    #[serde(serialize_with = "optional_since_1970")]
    pub(crate) last_tick: Option<SystemTime>,
    pub(crate) last_task: Option<TaskId>,
    pub(crate) started: u64,
    pub(crate) skipped: u64,
    pub(crate) is_paused: bool,
    pub(crate) stuck: Option<String>,
}

/// The position in the list: the name of the last schedule of the page before.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SchedulesQuery {
    after: Option<String>,
}

/// The number of schedules on a page.
const SCHEDULES_PER_PAGE: usize = 100;

pub(crate) async fn schedules(
    visit: &StoreVisit,
    query: SchedulesQuery,
) -> Result<Answer<SchedulesView>, WebError> {
    let schedules = visit.store.client.schedules();
    // One more than the page has, to find out whether another page follows.
    let list = schedules.list(query.after.as_deref(), SCHEDULES_PER_PAGE + 1);
    let question = Question::Schedules(query.after.clone());
    let mut list = visit.store.read(question, list).await?;
    let has_more = list.len() > SCHEDULES_PER_PAGE;
    list.truncate(SCHEDULES_PER_PAGE);
    let last = list.last().map(|last| last.name.clone());
    Ok(Answer {
        now: None,
        data: SchedulesView {
            schedules: list.into_iter().map(ScheduleRow::from).collect(),
        },
        is_first: query.after.is_none(),
        next: last.filter(|_| has_more),
        examined: None,
    })
}

impl From<ScheduleInfo> for ScheduleRow {
    fn from(info: ScheduleInfo) -> Self {
        Self {
            name: info.name,
            task: info.task,
            when: info.when,
            queue: info.queue,
            revision: info.revision,
            next_tick: info.next_tick,
            last_tick: info.last_tick,
            last_task: info.last_task,
            started: info.started,
            skipped: info.skipped,
            is_paused: info.is_paused,
            stuck: info.stuck.as_deref().map(redact_text),
        }
    }
}
