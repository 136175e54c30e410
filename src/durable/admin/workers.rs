//! Reads a page of the list of workers.

use super::page::check_limit;
use super::worker_info::WorkersPage;
use crate::durable::engine::Engine;
use crate::durable::{Cursor, DurableError};

/// Returns a page of workers: see [`Admin::workers`](crate::durable::Admin::workers).
pub(super) async fn list(
    engine: &Engine,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<WorkersPage, DurableError> {
    let invalid = |reason| DurableError::invalid(&engine.store_name, reason);
    check_limit(limit).map_err(invalid)?;
    let after = after.map(Cursor::position_in_workers).transpose();
    let after = after.map_err(invalid)?;
    let page = engine.ask(None, |store| store.workers(after.clone(), limit));
    let foreign =
        || String::from("the cursor is not valid in this store: start with the first page");
    page.await?.ok_or_else(|| invalid(foreign()))
}
