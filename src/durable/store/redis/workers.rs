//! Lists the workers. The partitions are read one after the other.

use std::time::Duration;

use super::inner::Inner;
use super::reply::Reader;
use super::scripts::Arguments;
use crate::durable::clock::time_of;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::{SessionId, WorkerCard};
use crate::durable::{Cursor, WorkerInfo, WorkerState, WorkersPage};

/// The position of a page: a partition, and the last session of the previous page if it is in this partition.
#[derive(Clone, Copy, Default)]
struct Position {
    partition: usize,
    last: Option<SessionId>,
}

impl Position {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![self.partition as u8];
        bytes.extend(self.last.iter().flat_map(|last| last.to_be_bytes()));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&partition, last) = bytes.split_first()?;
        Some(Self {
            partition: partition.into(),
            last: match last {
                [] => None,
                last => Some(SessionId::from_be_bytes(last.try_into().ok()?)),
            },
        })
    }
}

/// Returns a page of the sessions that have a card, or `None` if the position is not valid in this store. Passes over the partitions that
/// do not answer. Fails if none of those that it reads answers.
pub(super) async fn list(
    inner: &Inner,
    after: Option<Vec<u8>>,
    limit: usize,
) -> Result<Option<WorkersPage>, Failure> {
    let position = after.map_or_else(|| Some(Position::default()), |it| Position::read(&it));
    let Some(mut position) = position else {
        return Ok(None);
    };
    let partitions = inner.partitions.count();
    if position.partition >= partitions {
        return Ok(None);
    }
    let mut page = WorkersPage::at(0);
    let mut has_answered = false;
    loop {
        let room = limit - page.workers.len();
        let last = match read(inner, position, room, &mut page).await {
            Ok(last) => {
                has_answered = true;
                last
            }
            Err(failure) => {
                let is_last = position.partition + 1 == partitions;
                // If the server cannot be reached, no partition answers.
                if failure.cause == Cause::Unavailable || is_last && !has_answered {
                    return Err(failure);
                }
                page.missing_partitions.push(position.partition);
                None
            }
        };
        position = match last {
            Some(_) => Position { last, ..position },
            None if position.partition + 1 == partitions => return Ok(Some(page)),
            None => Position {
                partition: position.partition + 1,
                last: None,
            },
        };
        // A partition may return fewer workers than requested although others follow, because sessions are lost.
        if last.is_some() || page.workers.len() == limit {
            page.next = Some(Cursor::of_workers(position.bytes()));
            return Ok(Some(page));
        }
    }
}

/// Returns the worker of a session, if the session has a card. The session does not determine the partition of its card, so this reads one
/// partition after the other. Fails if a partition that may have the card does not answer.
pub(super) async fn find(inner: &Inner, session: SessionId) -> Result<Option<WorkerInfo>, Failure> {
    let last = session.checked_sub(1);
    let mut failed = Ok(None);
    for partition in inner.partitions.all() {
        let mut page = WorkersPage::at(0);
        let position = Position { partition, last };
        match read(inner, position, 1, &mut page).await {
            Ok(_) => {}
            Err(failure) if failure.cause == Cause::Unavailable => return Err(failure),
            Err(failure) => failed = Err(failure),
        }
        let found = page
            .workers
            .pop()
            .filter(|worker| worker.session == session);
        if found.is_some() {
            return Ok(found);
        }
    }
    failed
}

/// Adds workers of a partition, and its time. If others follow, returns the last session that was read.
async fn read(
    inner: &Inner,
    position: Position,
    limit: usize,
    page: &mut WorkersPage,
) -> Result<Option<SessionId>, Failure> {
    let mut arguments = Arguments::default();
    let last = position.last;
    arguments.push(last.map_or_else(String::new, |last| last.to_string()));
    arguments.push_number(limit);
    let answer = inner.run(&inner.scripts.workers, position.partition, arguments);
    let mut parts = Reader::new(answer.await?)?;
    let last = parts.text()?.parse().ok();
    let now = Duration::from_millis(parts.number()?.max(0) as u64);
    page.now = page.now.max(time_of(now));
    let workers = parts.rest(|part| worker(part.list()?))?;
    page.workers.extend(workers);
    Ok(last)
}

/// Reads the description of a worker: see `lua/worker_rows.lua`.
pub(super) fn worker(mut parts: Reader) -> Result<WorkerInfo, Failure> {
    let session = parts.text()?.parse().unwrap_or_default();
    let [started, last_seen] = [parts.number()?, parts.number()?].map(|millis| millis as u64);
    let state = match parts.number()? {
        0 => WorkerState::Live,
        1 => WorkerState::Suspect,
        _ => WorkerState::Gone,
    };
    let card = WorkerCard::read(&parts.bytes()?);
    Ok(WorkerInfo {
        started: Duration::from_millis(started),
        last_seen: Some(Duration::from_millis(last_seen)),
        ..WorkerInfo::new(session, card, state)
    })
}
