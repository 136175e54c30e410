//! The workers.

use serde::{Deserialize, Serialize};
use throng::durable::WorkerInfo;

use super::Answer;
use super::tasks::cursor;
use crate::error::WebError;
use crate::visit::StoreVisit;

/// A page of the workers.
#[derive(Debug, Serialize)]
pub(crate) struct WorkersView {
    pub(crate) workers: Vec<WorkerInfo>,
    /// The partitions that do not answer.
    pub(crate) missing_partitions: Vec<usize>,
}

/// The position in the list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkersQuery {
    after: Option<String>,
}

/// The number of workers on a page.
const WORKERS_PER_PAGE: usize = 100;

pub(crate) async fn workers(
    visit: &StoreVisit,
    query: WorkersQuery,
) -> Result<Answer<WorkersView>, WebError> {
    let after = query.after.as_deref().map(cursor).transpose()?;
    let admin = visit.store.client.admin();
    let page = admin.workers(after.as_ref(), WORKERS_PER_PAGE);
    let page = visit.store.read(page).await?;
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
