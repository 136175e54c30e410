//! Lists of tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throng::durable::{Cursor, Retention, Status, TaskFilter, TaskInfo, TaskPage};

use super::Answer;
use crate::error::WebError;
use crate::operations::action::TaskAction;
use crate::recent::Question;
use crate::visit::StoreVisit;

/// A list of tasks, by their status. `Next` lists the waiting tasks that have been ready for the longest time, and `Retrying` the delayed
/// tasks that have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskList {
    Next,
    Waiting,
    Delayed,
    Retrying,
    Running,
    Done,
    Cancelled,
    Dead,
}

/// The filter and the position of a list, from the query of a URL.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TaskQuery {
    #[serde(default)]
    name: String,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    error: String,
    after: Option<String>,
    limit: Option<usize>,
}

/// A page of a list of tasks.
#[derive(Debug, Serialize)]
pub(crate) struct TasksView {
    pub(crate) list: TaskList,
    pub(crate) name: Option<String>,
    pub(crate) queue: Option<String>,
    /// A text that the errors contain, if this is the list of dead letters.
    pub(crate) error: Option<String>,
    pub(crate) limit: usize,
    /// The actions that apply to the tasks of this list.
    pub(crate) actions: Vec<TaskAction>,
    pub(crate) tasks: Vec<TaskInfo>,
    /// The number of dead letters on this page for each reason.
    pub(crate) reasons: BTreeMap<String, u64>,
    /// How long, and how many, dead letters the store keeps, if this is their list.
    pub(crate) retention: Option<Retention>,
}

/// The filter text that selects the default queue. The name of a queue cannot contain parentheses.
pub(crate) const DEFAULT_QUEUE: &str = "(default)";
/// The number of tasks on a page if the URL has none.
const DEFAULT_LIMIT: usize = 50;
/// The maximum number of tasks on a page.
pub(crate) const MAX_LIMIT: usize = 200;
/// The maximum number of tasks at the head of a queue.
const MAX_HEAD: usize = 50;

impl TaskList {
    /// The lists of the page "Tasks", in the order of its tabs.
    pub(crate) const TABS: [Self; 7] = [
        Self::Next,
        Self::Waiting,
        Self::Delayed,
        Self::Retrying,
        Self::Running,
        Self::Done,
        Self::Cancelled,
    ];

    /// Returns the status of the tasks in the list.
    pub(crate) fn status(self) -> Status {
        match self {
            Self::Next | Self::Waiting => Status::Waiting,
            Self::Delayed | Self::Retrying => Status::Delayed,
            Self::Running => Status::Running,
            Self::Done => Status::Done,
            Self::Cancelled => Status::Cancelled,
            Self::Dead => Status::Dead,
        }
    }

    /// Returns the name of the list in URLs.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::Retrying => "retrying",
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }

    /// Returns `true` if tasks of this list can be selected by their queue. A store does not keep the queues of tasks that have ended.
    pub(crate) fn has_queues(self) -> bool {
        !matches!(self, Self::Done | Self::Cancelled)
    }

    /// Returns the filter that selects the tasks with this name in this queue.
    pub(crate) fn filter(self, name: Option<&str>, queue: Option<&str>) -> TaskFilter {
        let mut filter = TaskFilter::new(self.status());
        if self == Self::Retrying {
            filter = filter.retrying();
        }
        if let Some(name) = name {
            filter = filter.name(name);
        }
        match queue {
            Some(DEFAULT_QUEUE) => filter.default_queue(),
            Some(queue) => filter.queue(queue),
            None => filter,
        }
    }
}

pub(crate) async fn tasks(
    visit: &StoreVisit,
    list: TaskList,
    query: TaskQuery,
) -> Result<Answer<TasksView>, WebError> {
    let mut view = TasksView::new(list, &query)?;
    if list == TaskList::Next {
        return head(visit, view).await;
    }
    let after = query.after.as_deref().map(cursor).transpose()?;
    let page = page(visit, &view, after.as_ref()).await?;
    view.set(visit, page.tasks);
    if list == TaskList::Dead {
        let admin = visit.store.client.admin();
        view.retention = Some(
            visit
                .store
                .read(Question::Retention, admin.retention())
                .await?,
        );
    }
    Ok(Answer {
        now: Some(page.now),
        data: view,
        is_first: after.is_none(),
        next: page.next.map(|next| next.to_string()),
        examined: Some(page.examined),
    })
}

async fn page(
    visit: &StoreVisit,
    view: &TasksView,
    after: Option<&Cursor>,
) -> Result<TaskPage, WebError> {
    let filter = view
        .list
        .filter(view.name.as_deref(), view.queue.as_deref());
    let limit = match view.error {
        // The store cannot select by the error, so a page examines as many dead letters as it can.
        Some(_) => MAX_LIMIT.max(view.limit),
        None => view.limit,
    };
    let admin = visit.store.client.admin();
    let question = Question::Tasks(filter.clone(), after.cloned(), limit);
    let page = admin.tasks(&filter, after, limit);
    visit.store.read(question, page).await
}

/// Returns the head of a queue. It has no further pages, and no filter by name.
async fn head(visit: &StoreVisit, mut view: TasksView) -> Result<Answer<TasksView>, WebError> {
    if view.name.take().is_some() {
        return Err(WebError::invalid(
            "The list of the next tasks cannot be filtered by name: remove `name`, or use the list of waiting tasks.",
        ));
    }
    view.limit = view.limit.min(MAX_HEAD);
    let admin = visit.store.client.admin();
    let queue = view.queue.as_deref().filter(|it| *it != DEFAULT_QUEUE);
    let question = Question::Head(queue.map(String::from), view.limit);
    let head = admin.head(queue, view.limit);
    let head = visit.store.read(question, head).await?;
    view.set(visit, head.tasks);
    Ok(Answer::whole(Some(head.now), view))
}

impl TasksView {
    fn new(list: TaskList, query: &TaskQuery) -> Result<Self, WebError> {
        let error = given(&query.error);
        if error.is_some() && list != TaskList::Dead {
            return Err(WebError::invalid(
                "Only dead letters can be filtered by their errors: remove `error`, or use the list of dead letters.",
            ));
        }
        Ok(Self {
            list,
            limit: query.limit.unwrap_or(DEFAULT_LIMIT),
            actions: TaskAction::of(list.status()),
            name: given(&query.name).map(String::from),
            queue: given(&query.queue).map(String::from),
            error: error.map(String::from),
            tasks: Vec::new(),
            reasons: BTreeMap::new(),
            retention: None,
        })
    }

    /// Returns `true` if this is not the whole list.
    pub(crate) fn has_filter(&self) -> bool {
        [&self.name, &self.queue, &self.error]
            .iter()
            .any(|it| it.is_some())
    }

    fn set(&mut self, visit: &StoreVisit, mut tasks: Vec<TaskInfo>) {
        visit.redact_errors(&mut tasks);
        tasks.retain(|task| has_error(task, self.error.as_deref()));
        for reason in tasks.iter().filter_map(|task| task.reason) {
            *self.reasons.entry(code_of(&reason)).or_default() += 1;
        }
        self.tasks = tasks;
    }
}

/// Returns `true` if the error of a task contains a text; upper and lower case are equal. The caller passes the error as it is shown:
/// otherwise, the filter would reveal confidential data.
pub(crate) fn has_error(task: &TaskInfo, text: Option<&str>) -> bool {
    let Some(text) = text.map(str::to_lowercase) else {
        return true;
    };
    let error = task.error.as_deref().unwrap_or_default();
    error.to_lowercase().contains(&text)
}

/// Returns the text as which a value is serialised.
pub(crate) fn code_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns `None` for a field that is empty in a form.
pub(crate) fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Returns the position that a URL contains.
pub(crate) fn cursor(text: &str) -> Result<Cursor, WebError> {
    let cursor = text.parse::<Cursor>();
    cursor.map_err(|error| WebError::invalid(format!("`after` is {error}.")))
}
