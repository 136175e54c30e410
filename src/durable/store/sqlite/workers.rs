//! Lists the workers.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::endpoint::EndpointId;
use super::error::Fault;
use super::reader::ReadConnection;
use super::time::Now;
use crate::durable::store::{SessionId, WorkerCard};
use crate::durable::{Cursor, WorkerInfo, WorkerState, WorkersPage};

pub(super) const WORKERS: &str = "
    SELECT id, endpoint, opened, card,
        EXISTS (SELECT 1 FROM throng_claim WHERE session = throng_session.id AND suspect = 1)
    FROM throng_session WHERE card IS NOT NULL AND id > ?1 ORDER BY id LIMIT ?2";

/// Returns a page of the sessions that have a card, or `None` if the position is not valid in this store.
pub(super) fn list(
    reader: &ReadConnection,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Option<WorkersPage>, Fault> {
    let Ok(after) = after.map_or(Ok([0; 8]), TryInto::try_into) else {
        return Ok(None);
    };
    let now = Now::read(&reader.clock);
    let mut workers =
        reader.snapshot(|db| read(reader, db, i64::from_be_bytes(after), limit + 1))?;
    let has_more = workers.len() > limit;
    workers.truncate(limit);
    let last = workers.last().filter(|_| has_more);
    let next = last.map(|last| Cursor::of_workers(last.session.to_be_bytes().to_vec()));
    Ok(Some(WorkersPage {
        workers,
        next,
        ..WorkersPage::at(now.wall.max(0) as u64)
    }))
}

/// Returns the worker of a session, if the session has a card.
pub(super) fn find(
    reader: &ReadConnection,
    session: SessionId,
) -> Result<Option<WorkerInfo>, Fault> {
    let before = session.wrapping_sub(1) as i64;
    let mut found = reader.snapshot(|db| read(reader, db, before, 1))?;
    Ok(found.pop().filter(|worker| worker.session == session))
}

/// Returns the first workers after a session.
pub(super) fn read(
    reader: &ReadConnection,
    db: &Connection,
    after: i64,
    limit: usize,
) -> Result<Vec<WorkerInfo>, Fault> {
    let (now, endpoint) = (Now::read(&reader.clock), &reader.shared.endpoint);
    let mut statement = db.prepare_cached(WORKERS)?;
    let mut rows = statement.query(params![after, limit as i64])?;
    // Most processes have several sessions, and the check opens a file.
    let (mut workers, mut gone) = (Vec::new(), BTreeMap::new());
    while let Some(row) = rows.next()? {
        let worker: EndpointId = row.get(1)?;
        let is_gone = gone.entry(worker);
        let is_gone = is_gone.or_insert_with(|| endpoint.is_gone(worker));
        let (is_dead, is_suspect) = (*is_gone, row.get(4)?);
        let state = match (is_dead, is_suspect) {
            (true, _) => WorkerState::Gone,
            (false, true) => WorkerState::Suspect,
            (false, false) => WorkerState::Live,
        };
        let card = WorkerCard::read(&row.get::<_, Vec<u8>>(3)?);
        workers.push(WorkerInfo {
            started: now.since(row.get(2)?),
            // A process is alive as long as it holds the lock of its file.
            last_seen: (!is_dead).then_some(Duration::ZERO),
            ..WorkerInfo::new(row.get::<_, i64>(0)? as SessionId, card, state)
        });
    }
    Ok(workers)
}
