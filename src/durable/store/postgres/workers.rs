//! Lists the workers.

use tokio_postgres::Row;

use super::error::Fault;
use super::silent_sessions::WORKER_SILENCE;
use super::view::View;
use crate::durable::store::{SessionId, WorkerCard};
use crate::durable::{Cursor, WorkerInfo, WorkerState, WorkersPage};

/// Selects sessions that have a card, and whether a lease of theirs has expired since their last request.
const WORKERS: &str = "SELECT id, opened, seen, card,
        abs($3 - seen) >= $4
            AND endpoint <> ALL (ARRAY(SELECT endpoint FROM throng.listener)) AS is_gone,
        EXISTS (
            SELECT 1 FROM throng.claim WHERE claim.session = session.id AND suspect = 1 OFFSET 0
        ) AS is_suspect
    FROM throng.session WHERE card IS NOT NULL AND id > $1 ORDER BY id LIMIT $2";

/// Returns a page of the sessions that have a card, or `None` if the position is not valid in this store.
pub(super) async fn list(
    view: &View,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Option<WorkersPage>, Fault> {
    let Ok(after) = after.map_or(Ok([0; 8]), TryInto::try_into) else {
        return Ok(None);
    };
    let mut workers = read(view, i64::from_be_bytes(after), limit + 1).await?;
    let has_more = workers.len() > limit;
    workers.truncate(limit);
    let last = workers.last().filter(|_| has_more);
    let next = last.map(|last| Cursor::of_workers(last.session.to_be_bytes().to_vec()));
    Ok(Some(WorkersPage {
        workers,
        next,
        ..WorkersPage::at(view.now.wall.max(0) as u64)
    }))
}

/// Returns the worker of a session, if the session has a card.
pub(super) async fn find(view: &View, session: SessionId) -> Result<Option<WorkerInfo>, Fault> {
    let before = session.wrapping_sub(1) as i64;
    let mut found = read(view, before, 1).await?;
    Ok(found.pop().filter(|worker| worker.session == session))
}

/// Returns the first workers after a session.
pub(super) async fn read(view: &View, after: i64, limit: usize) -> Result<Vec<WorkerInfo>, Fault> {
    let (limit, now) = (limit as i64, view.now.wall);
    let rows = view
        .rows(WORKERS, &[&after, &limit, &now, &WORKER_SILENCE])
        .await?;
    rows.iter().map(|row| worker(view, row)).collect()
}

fn worker(view: &View, row: &Row) -> Result<WorkerInfo, Fault> {
    let state = match (row.try_get("is_gone")?, row.try_get("is_suspect")?) {
        (true, _) => WorkerState::Gone,
        (false, true) => WorkerState::Suspect,
        (false, false) => WorkerState::Live,
    };
    let card = WorkerCard::read(row.try_get("card")?);
    Ok(WorkerInfo {
        started: view.now.since(row.try_get("opened")?),
        last_seen: Some(view.now.since(row.try_get("seen")?)),
        ..WorkerInfo::new(row.try_get::<_, i64>("id")? as SessionId, card, state)
    })
}
