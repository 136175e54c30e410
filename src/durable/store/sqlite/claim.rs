//! Claims: takes the next tasks out of the ready queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{Row, Rows, params};

use super::claimed_tasks::ClaimedTasks;
use super::error::Fault;
use super::ready_queue;
use super::state::State;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::ListId;
use crate::durable::store::{Claim, Claimed, Epoch, Turn, is_quarantined};

/// Claims tasks of the types of a set, within the limits of the request.
pub(super) fn claim(
    tx: &mut Transaction<'_>,
    set: Option<SetId>,
    request: &Turn,
) -> Result<Option<Claim>, Fault> {
    let Some(set) = set else {
        return Ok(None);
    };
    tx.drain(set)?;
    let next = next_tasks(tx, set, request)?;
    if next.tasks.is_empty() {
        return Ok(None);
    }
    for (&list, positions) in &next.positions {
        ready_queue::remove_all(tx.db, list, positions)?;
        tx.notices.add_ready(list, -(positions.len() as i64));
    }
    for _ in &next.tasks {
        tx.decrement(State::Waiting);
        tx.increment(State::Running);
    }
    tx.meta.counts.claimed += next.tasks.len() as u64;
    let epoch = tx.new_epoch(request.floor);
    let lease = millis(request.lease) as i64;
    let until = tx.now.boot + lease;
    tx.execute(
        "INSERT INTO throng_claim (epoch, session, until, lease, held) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![epoch, request.session as i64, until, lease, next.claimed],
    )?;
    Ok(Some(Claim {
        epoch: epoch as Epoch,
        tasks: next.tasks,
    }))
}

/// The tasks to claim, and where they are in the ready queue.
#[derive(Default)]
struct Next {
    tasks: Vec<Claimed>,
    positions: BTreeMap<ListId, Vec<i64>>,
    claimed: ClaimedTasks,
}

// The join order is fixed: the ready queue comes first, whatever SQLite estimates. An entry without a task cannot be
// read, and is removed by the repair that follows.
const READY_TASKS: &str = "
    SELECT task.id, name, payload, failures, crashes, lost, max_crashes,
        ready.place, endpoint
    FROM throng_ready AS ready LEFT JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?2 AND (?1 OR NOT (crashes + lost > 0 AND crashes + min(lost, 1) + 1 >= max_crashes))
    ORDER BY ready.place";

/// Returns the next tasks, within the limits of the request. This merges the lists of the set: the task that has waited
/// longest comes first.
fn next_tasks(tx: &Transaction<'_>, set: SetId, request: &Turn) -> Result<Next, rusqlite::Error> {
    let lists: Vec<_> = tx.routes.leaves(set).into_iter().collect();
    let statements = lists.iter().map(|_| tx.db.prepare_cached(READY_TASKS));
    let mut statements = statements.collect::<Result<Vec<_>, _>>()?;
    let rows = lists.iter().zip(&mut statements);
    let rows = rows.map(|(list, it)| it.query(params![request.quarantined, list.number()]));
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    rows.iter_mut().try_for_each(Rows::advance)?;
    let (mut next, mut bytes, mut quarantined) = (Next::default(), 0, request.quarantined);
    while next.tasks.len() < request.want
        && let Some(first) = first_of(&rows)?
        && let Some(row) = rows[first].get()
    {
        let task = read_row(tx, row, next.tasks.last())?;
        let (position, producer) = (row.get(7)?, row.get(8)?);
        rows[first].advance()?;
        if task.quarantined && !quarantined {
            continue;
        }
        bytes += task.payload.as_ref().map_or(0, Vec::len);
        if bytes > request.want_bytes && !next.tasks.is_empty() {
            break;
        }
        quarantined &= !task.quarantined;
        next.positions
            .entry(lists[first])
            .or_default()
            .push(position);
        next.claimed.insert(task.id, producer);
        next.tasks.push(task);
    }
    Ok(next)
}

/// Returns the list whose first task has waited longest.
fn first_of(lists: &[Rows<'_>]) -> Result<Option<usize>, rusqlite::Error> {
    let mut first = None;
    for (list, rows) in lists.iter().enumerate() {
        if let Some(row) = rows.get() {
            let position: i64 = row.get(7)?;
            first = first.min(Some((position, list))).or(Some((position, list)));
        }
    }
    Ok(first.map(|(_, list)| list))
}

/// Reads a task that is claimed already.
pub(super) fn read_task(
    tx: &Transaction<'_>,
    id: TaskId,
) -> Result<Option<Claimed>, rusqlite::Error> {
    let mut statement = tx.db.prepare_cached(
        "SELECT id, name, payload, failures, crashes, lost, max_crashes
         FROM throng_task WHERE id = ?1",
    )?;
    let mut rows = statement.query([id.to_bytes()])?;
    rows.next()?.map(|row| read_row(tx, row, None)).transpose()
}

/// Reads a task. It shares its name with the task `before` if both have the same, as is likely.
fn read_row(
    tx: &Transaction<'_>,
    row: &Row<'_>,
    before: Option<&Claimed>,
) -> Result<Claimed, rusqlite::Error> {
    let id = TaskId::from_bytes(row.get(0)?);
    let name = row.get_ref(1)?.as_str()?;
    let payload = match row.get(2)? {
        Some(payload) => Ok(payload),
        None => tx.large_data(id)?,
    };
    let (crashes, lost) = (row.get(4)?, row.get(5)?);
    Ok(Claimed {
        id,
        name: match before {
            Some(before) if *before.name == *name => Arc::clone(&before.name),
            _ => Arc::from(name),
        },
        payload,
        failures: row.get(3)?,
        crashes,
        quarantined: is_quarantined(crashes, lost, row.get(6)?),
        lost,
    })
}
