//! [`TopData`]: what the screen shows of the store.

use throng::durable::{Overview, Status, TaskFilter, TaskInfo, WorkerInfo};

use super::tab::TopTab;
use crate::cmd::{status, worker};
use crate::failure::Failure;
use crate::store::Session;

/// The part of the store that the screen shows: the summary, and the rows of one tab.
pub(super) struct TopData {
    pub(super) overview: Overview,
    pub(super) health: String,
    pub(super) rows: TopRows,
}

/// The rows of a tab that the summary does not contain.
pub(super) enum TopRows {
    None,
    Tasks(Vec<TaskInfo>),
    Workers(Vec<WorkerInfo>),
}

/// The number of tasks that are read.
const TASKS: usize = 100;

/// Reads the data with at most two requests.
pub(super) async fn read(session: &Session, tab: TopTab) -> Result<TopData, Failure> {
    let admin = session.client.admin();
    let overview = session.ask(admin.overview()).await?;
    let rows = match tab {
        TopTab::Queues | TopTab::Types => TopRows::None,
        TopTab::Running => tasks(session, Status::Running).await?,
        TopTab::Dead => tasks(session, Status::Dead).await?,
        TopTab::Workers => {
            let page = session.ask(admin.workers(None, worker::PAGE)).await?;
            TopRows::Workers(page.workers)
        }
    };
    let health = status::health(&session.client.health());
    Ok(TopData {
        overview,
        health,
        rows,
    })
}

async fn tasks(session: &Session, status: Status) -> Result<TopRows, Failure> {
    let filter = TaskFilter::new(status);
    let page = session
        .ask(session.client.admin().tasks(&filter, None, TASKS))
        .await?;
    Ok(TopRows::Tasks(page.tasks))
}
