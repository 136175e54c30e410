//! One task.

use std::time::Duration;

use serde::Serialize;
use throng::durable::{
    AttemptError, Excerpt, KeyState, Priority, Runner, TaskDetail, TaskId, TaskInfo,
};

use super::{Answer, optional_millis};
use crate::error::WebError;
use crate::operations::action::TaskAction;
use crate::recent::Question;
use crate::redact::{Document, Redactor, Shown, ShownPart};
use crate::visit::StoreVisit;

/// The data of a task. The fields are those of [`TaskDetail`]. They are listed here, so that a new field of `throng` is shown
/// only after somebody has decided whether it can contain confidential data.
#[derive(Debug, Serialize)]
pub(crate) struct TaskView {
    pub(crate) task: TaskInfo,
    /// The actions that apply to the task in its state.
    pub(crate) actions: Vec<TaskAction>,
    pub(crate) priority: Option<Priority>,
    pub(crate) key: Option<KeyState>,
    pub(crate) version: Option<u8>,
    pub(crate) payload: Option<Document>,
    pub(crate) output: Option<Document>,
    pub(crate) progress: Option<Document>,
    pub(crate) damage: Option<String>,
    pub(crate) errors: Vec<AttemptError>,
    pub(crate) error: Option<String>,
    pub(crate) is_cancel_requested: bool,
    #[serde(serialize_with = "optional_millis")]
    pub(crate) lease_left: Option<Duration>,
    pub(crate) runner: Option<Runner>,
}

pub(crate) async fn task(visit: &StoreVisit, id: TaskId) -> Result<Answer<TaskView>, WebError> {
    let admin = visit.store.client.admin();
    let found = visit.store.read(Question::Task(id), admin.task(id)).await?;
    let detail = found.ok_or_else(|| {
        WebError::not_found(format!(
            "The store has no record of the task {id}: it was never stored, or its end is no longer kept."
        ))
    })?;
    let now = detail.now;
    let view = TaskView::new(&visit.visit.shared.redactor, detail);
    Ok(Answer::whole(Some(now), view))
}

impl TaskView {
    fn new(redactor: &Redactor, detail: TaskDetail) -> Self {
        let (id, name) = (detail.task.id, detail.task.name.clone());
        let name = name.as_deref();
        let error = |text: &str| redactor.error(id, name, text);
        let document = |part, excerpt: Option<Excerpt>| {
            let shown = Shown { id, name, part };
            excerpt.map(|excerpt| redactor.document(&shown, &excerpt))
        };
        let mut errors = detail.errors;
        errors.iter_mut().for_each(|it| it.error = error(&it.error));
        let mut task = detail.task;
        task.error = task.error.as_deref().map(error);
        Self {
            actions: TaskAction::of(task.status),
            task,
            priority: detail.priority,
            key: detail.key,
            version: detail.version,
            payload: document(ShownPart::Payload, detail.payload),
            output: document(ShownPart::Output, detail.output),
            progress: document(ShownPart::Progress, detail.progress),
            damage: detail.damage.as_deref().map(error),
            errors,
            error: detail.error.as_deref().map(error),
            is_cancel_requested: detail.is_cancel_requested,
            lease_left: detail.lease_left,
            runner: detail.runner,
        }
    }
}
