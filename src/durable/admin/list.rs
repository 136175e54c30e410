//! Reads a page of a list of tasks.

use super::page::check_limit;
use crate::durable::engine::Engine;
use crate::durable::store::ListTasks;
use crate::durable::{Cursor, DurableError, TaskFilter, TaskPage};

/// Returns a page of tasks: see [`Admin::tasks`](crate::durable::Admin::tasks).
pub(super) async fn list(
    engine: &Engine,
    filter: &TaskFilter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<TaskPage, DurableError> {
    let invalid = |reason| DurableError::invalid(&engine.store_name, reason);
    let request = request(filter, after, limit).map_err(invalid)?;
    let page = engine.ask(None, |store| store.list(request.clone()));
    let foreign =
        || String::from("the cursor is not valid in this store: start with the first page");
    let mut page = page.await?.ok_or_else(|| invalid(foreign()))?;
    let now = page.now;
    page.tasks.retain(|task| filter.was_there(task, now));
    Ok(page)
}

fn request(filter: &TaskFilter, after: Option<&Cursor>, limit: usize) -> Result<ListTasks, String> {
    check_limit(limit)?;
    let filter = filter.checked()?;
    let after = after.map(|cursor| cursor.position_in(filter.status));
    Ok(ListTasks {
        filter,
        after: after.transpose()?,
        limit,
    })
}
