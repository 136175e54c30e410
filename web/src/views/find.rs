//! Finds a task, a queue, a type or a schedule by what an operator types.

use serde::{Deserialize, Serialize};
use throng::durable::{DurableError, TaskId};

use super::Answer;
use crate::error::WebError;
use crate::recent::Question;
use crate::visit::StoreVisit;

/// A search by an operator.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FindQuery {
    #[serde(default)]
    pub(crate) q: String,
}

/// The result of a search.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FindView {
    pub(crate) text: String,
    /// The task with this id, which may not exist.
    pub(crate) task: Option<TaskId>,
    /// The queues and types whose names contain the text.
    pub(crate) queues: Vec<String>,
    pub(crate) types: Vec<String>,
    /// The schedule with exactly this name.
    pub(crate) schedule: Option<String>,
}

/// The maximum length of the text.
const MAX_TEXT_BYTES: usize = 300;

pub(crate) async fn find(
    visit: &StoreVisit,
    query: &FindQuery,
) -> Result<Answer<FindView>, WebError> {
    let text = query.q.trim();
    if text.is_empty() || text.len() > MAX_TEXT_BYTES {
        return Err(WebError::invalid(format!(
            "The text to find has {} bytes: enter 1 to {MAX_TEXT_BYTES} bytes.",
            text.len()
        )));
    }
    let mut view = FindView {
        text: text.to_owned(),
        task: text.parse().ok(),
        ..FindView::default()
    };
    let mut now = None;
    if view.task.is_none() {
        now = Some(view.search(visit).await?);
    }
    Ok(Answer::whole(now, view))
}

impl FindView {
    /// Looks for names. Returns the time of the store.
    async fn search(&mut self, visit: &StoreVisit) -> Result<std::time::SystemTime, WebError> {
        let (store, text) = (&visit.store, self.text.as_str());
        let overview = store
            .read(Question::Overview, store.client.admin().overview())
            .await?;
        let queues = overview.queues.into_iter().filter_map(|it| it.name);
        self.queues = queues.filter(|name| name.contains(text)).collect();
        let types = overview.types.into_iter().filter_map(|it| it.name);
        self.types = types.filter(|name| name.contains(text)).collect();
        self.types.dedup();
        let question = Question::Schedule(text.to_owned());
        let schedule = store.read(question, schedule(visit, text)).await?;
        self.schedule = schedule;
        Ok(overview.now)
    }
}

/// Returns the name of the schedule, if there is one. A text that cannot be a name is not an error here.
async fn schedule(visit: &StoreVisit, name: &str) -> Result<Option<String>, DurableError> {
    match visit.store.client.schedules().get(name).await {
        Ok(found) => Ok(found.map(|info| info.name)),
        Err(error) if error.is_invalid() => Ok(None),
        Err(error) => Err(error),
    }
}
