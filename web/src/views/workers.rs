//! The workers, and one of them.

use serde::{Deserialize, Serialize};
use throng::durable::{Cursor, Status, TaskFilter, TaskInfo, TaskPage, WorkerInfo};

use super::Answer;
use super::tasks::cursor;
use crate::error::WebError;
use crate::recent::Question;
use crate::visit::StoreVisit;

/// A page of the workers.
#[derive(Debug, Serialize)]
pub(crate) struct WorkersView {
    pub(crate) workers: Vec<WorkerInfo>,
    /// The partitions that do not answer.
    pub(crate) missing_partitions: Vec<usize>,
}

/// A worker, and a page of the tasks that it runs.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerView {
    pub(crate) worker: WorkerInfo,
    pub(crate) running: Vec<TaskInfo>,
}

/// The position in the list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkersQuery {
    after: Option<String>,
}

/// The number of workers on a page.
const WORKERS_PER_PAGE: usize = 100;
/// The number of running tasks on the page of a worker.
const TASKS_PER_PAGE: usize = 50;

pub(crate) async fn workers(
    visit: &StoreVisit,
    query: WorkersQuery,
) -> Result<Answer<WorkersView>, WebError> {
    let after = query.after.as_deref().map(cursor).transpose()?;
    let admin = visit.store.client.admin();
    let page = admin.workers(after.as_ref(), WORKERS_PER_PAGE);
    let page = visit
        .store
        .read(Question::Workers(after.clone()), page)
        .await?;
    Ok(Answer {
        now: Some(page.now),
        data: WorkersView {
            workers: page.workers,
            missing_partitions: page.missing_partitions,
        },
        is_first: after.is_none(),
        next: page.next.map(|next| next.to_string()),
        examined: None,
    })
}

/// Returns a worker and the tasks that it runs. A large store in Redis may have to be searched for them, a page at a time.
pub(crate) async fn worker(
    visit: &StoreVisit,
    session: u64,
    query: WorkersQuery,
) -> Result<Answer<WorkerView>, WebError> {
    let after = query.after.as_deref().map(cursor).transpose()?;
    let admin = visit.store.client.admin();
    let question = Question::Worker(session);
    let worker = visit.store.read(question, admin.worker(session)).await?;
    let worker = worker.ok_or_else(|| {
        WebError::not_found(format!(
            "There is no worker with the session {session}: it has ended. Look for its successor in the list of workers."
        ))
    })?;
    let page = running(visit, &worker, after.as_ref()).await?;
    Ok(Answer {
        now: Some(page.now),
        data: WorkerView {
            worker,
            running: page.tasks,
        },
        is_first: after.is_none(),
        next: page.next.map(|next| next.to_string()),
        examined: Some(page.examined),
    })
}

async fn running(
    visit: &StoreVisit,
    worker: &WorkerInfo,
    after: Option<&Cursor>,
) -> Result<TaskPage, WebError> {
    let mut filter = TaskFilter::new(Status::Running).worker(worker.session);
    if let Some(queue) = &worker.queue {
        filter = filter.queue(queue);
    }
    let admin = visit.store.client.admin();
    let question = Question::Tasks(filter.clone(), after.cloned(), TASKS_PER_PAGE);
    let page = admin.tasks(&filter, after, TASKS_PER_PAGE);
    let mut page = visit.store.read(question, page).await?;
    visit.redact_errors(&mut page.tasks);
    Ok(page)
}
