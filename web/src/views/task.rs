//! One task.

use std::time::Duration;

use serde::Serialize;
use throng::durable::{
    AttemptError, Excerpt, KeyState, Priority, Runner, Status, TaskDetail, TaskId, TaskInfo,
    WaitReason,
};

use super::workflow::WorkflowView;
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
    /// Why no worker claims the task, if it waits and the summary of the store shows the reason.
    pub(crate) wait_reason: Option<WaitReason>,
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
    pub(crate) workflow: WorkflowView,
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
    let mut view = TaskView::new(&visit.visit.shared.redactor, detail);
    if view.task.status == Status::Waiting {
        view.wait_reason = wait_reason(visit, &view.task).await;
    }
    Ok(Answer::whole(Some(now), view))
}

/// Reads the summary of the store. The page shows the task even if this fails.
async fn wait_reason(visit: &StoreVisit, task: &TaskInfo) -> Option<WaitReason> {
    let admin = visit.store.client.admin();
    let overview = visit.store.read(Question::Overview, admin.overview());
    overview.await.ok()?.wait_reason(task)
}

impl TaskView {
    fn new(redactor: &Redactor, detail: TaskDetail) -> Self {
        let (id, name) = (detail.task.id, detail.task.name.clone());
        let name = name.as_deref();
        let error = |text: &str| redactor.error(id, name, text);
        let document = |part, excerpt: Option<Excerpt>| {
            let shown = Shown::new(id, name, part);
            excerpt.map(|excerpt| redactor.document(&shown, &excerpt))
        };
        let workflow = WorkflowView::new(redactor, &detail);
        let mut errors = detail.errors;
        errors.iter_mut().for_each(|it| it.error = error(&it.error));
        let mut task = detail.task;
        task.error = task.error.as_deref().map(error);
        Self {
            wait_reason: None,
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
            workflow,
        }
    }
}
