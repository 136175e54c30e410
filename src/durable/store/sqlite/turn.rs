//! The requests of a worker: verdicts, claims and leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{Connection, Row, Rows, params};

use super::error::{Fault, is_corrupt, is_damaged_page};
use super::held::Held;
use super::peek;
use super::reap;
use super::session::{self, Session};
use super::state::State;
use super::work::{Task, Work};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::ListId;
use crate::durable::store::{
    Claim, Claimed, Epoch, RenewAnswer, Turn, TurnAnswer, Verdict, Verdicts, is_quarantined,
};

/// How many delayed tasks a turn makes due.
const MAX_DUE: i64 = 256;

pub(super) fn turn(work: &mut Work<'_>, request: &Turn) -> Result<TurnAnswer, Fault> {
    work.endpoint.unpark(request.session);
    let session = session::find(work, request.session)?;
    let is_last = session.is_last(request.number)?;
    hear(work, &session, request.received)?;
    let mut turned = match is_last {
        true => repeat(work, &session)?,
        false => take(work, &session, request)?,
    };
    let mut claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
    let quarantined = request.quarantined && !claimed.any(|task| task.quarantined);
    let lists = session.set.map(|set| work.routes.reads(set));
    turned.more = peek::is_any_waiting(work.db, lists.into_iter().flatten(), quarantined)?;
    turned.next = peek::next_look(work.db, work.endpoint, work.now)?;
    if turned.more {
        // It wakes another, if there is one, and that another, for as long as some are left.
        work.look_at_lists_of(session.set);
    }
    Ok(turned)
}

fn take(work: &mut Work<'_>, session: &Session, request: &Turn) -> Result<TurnAnswer, Fault> {
    let mut refused = Vec::new();
    for verdicts in &request.verdicts {
        settle(work, session, verdicts, &mut refused)?;
    }
    let mut changed = reap::reap_dead(work)?;
    changed |= reap::reap_late(work, session)?;
    changed |= make_due(work)?;
    let claim = claim(work, session.set, request)?;
    // A turn that changes nothing is not written down.
    if changed || claim.is_some() || !request.verdicts.is_empty() {
        let epoch = claim.as_ref().map(|claim| claim.epoch as i64);
        record(work, session, request.number, epoch)?;
    }
    Ok(TurnAnswer {
        refused,
        claim,
        ..TurnAnswer::default()
    })
}

/// The worker of a session lives, and a claim has arrived: what it does not renew, it does not have.
fn hear(work: &Work<'_>, session: &Session, seen: Option<Epoch>) -> Result<(), rusqlite::Error> {
    work.execute(
        "UPDATE throng_claim
         SET delivered = max(delivered, epoch IS ?2), suspect = min(2 * suspect, 2)
         WHERE session = ?1 AND (suspect = 1 OR epoch IS ?2)",
        params![session.id, seen.map(|epoch| epoch as i64)],
    )?;
    Ok(())
}

/// Remembers the turn.
fn record(
    work: &Work<'_>,
    session: &Session,
    number: u64,
    claim: Option<i64>,
) -> Result<(), Fault> {
    work.execute(
        "UPDATE throng_session SET number = ?2, claim = ?3, first = NULL WHERE id = ?1",
        params![session.id, number as i64, claim],
    )?;
    Ok(())
}

/// The claim of the session's last turn, as far as it is still held.
fn repeat(work: &mut Work<'_>, session: &Session) -> Result<TurnAnswer, Fault> {
    let mut turned = TurnAnswer::default();
    if let Some(epoch) = session.claim
        && renew_claim(work, epoch, false)?
    {
        let mut tasks = Vec::new();
        for id in work.held(epoch)?.ids() {
            tasks.extend(read_held(work, id)?);
        }
        turned.claim = Some(Claim {
            epoch: epoch as Epoch,
            tasks,
        });
    }
    Ok(turned)
}

// ===== Verdicts =====

fn settle(
    work: &mut Work<'_>,
    session: &Session,
    verdicts: &Verdicts,
    refused: &mut Vec<TaskId>,
) -> Result<(), Fault> {
    let epoch = verdicts.epoch as i64;
    let (mut held, mut released) = (work.held(epoch)?, Vec::new());
    for (id, verdict) in &verdicts.tasks {
        let Some(owner) = held.remove(*id) else {
            refused.push(*id);
            continue;
        };
        if let Verdict::Done(output) = verdict
            && work.end_done_plainly(*id, owner, output)?
        {
            continue;
        }
        match work.task(*id)? {
            Some(task) if apply(work, *id, &task, verdict)? => released.push(*id),
            Some(_) => {}
            None => refused.push(*id),
        }
    }
    work.put_first(released, 0, 0)?;
    Ok(work.keep_held(session, epoch, &held)?)
}

/// Applies a verdict; whether the task goes to the head of the line.
fn apply(work: &mut Work<'_>, id: TaskId, task: &Task, verdict: &Verdict) -> Result<bool, Fault> {
    let due = |after: &Duration| work.now.wall + millis(*after) as i64;
    match verdict {
        Verdict::Done(output) => work.end_done(id, task, output)?,
        _ if task.cancel => work.end_cancelled(id, task)?,
        Verdict::Dead { reason, error } => {
            work.meta.counts.died += 1;
            work.die(id, task, *reason, error)?;
        }
        Verdict::Retry { after, error } => {
            let due = due(after);
            work.keep_error(id, task, error)?;
            work.meta.counts.retried += 1;
            work.delay(id, due, 1)?;
        }
        Verdict::Snooze { after } => {
            let due = due(after);
            work.meta.counts.snoozed += 1;
            work.delay(id, due, 0)?;
        }
        Verdict::Release => {
            work.meta.counts.released += 1;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets wait what was delayed, the earliest first; whether there was anything.
fn make_due(work: &mut Work<'_>) -> Result<bool, Fault> {
    let due = work.ids(
        "SELECT id FROM throng_task WHERE state = 1 AND at <= ?1 ORDER BY at, id LIMIT ?2",
        [work.now.wall, MAX_DUE],
    )?;
    for &id in &due {
        work.put_last(id, State::Delayed)?;
    }
    Ok(!due.is_empty())
}

// ===== Claims =====

fn claim(work: &mut Work<'_>, set: Option<SetId>, request: &Turn) -> Result<Option<Claim>, Fault> {
    let Some(set) = set else {
        return Ok(None);
    };
    work.drain(set)?;
    let next = next_tasks(work, set, request)?;
    if next.tasks.is_empty() {
        return Ok(None);
    }
    for (list, places) in &next.places {
        work.go(*list, places)?;
    }
    for _ in &next.tasks {
        work.leave(State::Waiting);
        work.enter(State::Running);
    }
    work.meta.counts.claimed += next.tasks.len() as u64;
    let epoch = work.new_epoch(request.floor);
    let lease = millis(request.lease) as i64;
    let until = work.now.boot + lease;
    work.execute(
        "INSERT INTO throng_claim (epoch, session, until, lease, held) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![epoch, request.session as i64, until, lease, next.held],
    )?;
    Ok(Some(Claim {
        epoch: epoch as Epoch,
        tasks: next.tasks,
    }))
}

/// Tasks, where they stand, and who has stored them.
#[derive(Default)]
struct Next {
    tasks: Vec<Claimed>,
    places: BTreeMap<ListId, Vec<i64>>,
    held: Held,
}

// The line comes first, whatever SQLite believes to be faster. An entry without a task cannot be read, and is
// removed by the repair that follows.
const WAITING: &str = "
    SELECT task.id, name, payload, failures, crashes, lost, max_crashes,
        ready.place, endpoint
    FROM throng_ready AS ready LEFT JOIN throng_task AS task ON task.id = ready.id
    WHERE ready.list = ?2 AND (?1 OR NOT (crashes + lost > 0 AND crashes + min(lost, 1) + 1 >= max_crashes))
    ORDER BY ready.place";

/// The tasks that are next, within these limits: of the heads of all lists, always the one that has
/// waited for longest.
fn next_tasks(work: &Work<'_>, set: SetId, request: &Turn) -> Result<Next, rusqlite::Error> {
    let lists: Vec<_> = work.routes.leaves(set).into_iter().collect();
    let statements = lists.iter().map(|_| work.db.prepare_cached(WAITING));
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
        let task = read(work, row, next.tasks.last())?;
        let (place, endpoint) = (row.get(7)?, row.get(8)?);
        rows[first].advance()?;
        if task.quarantined && !quarantined {
            continue;
        }
        bytes += task.payload.as_ref().map_or(0, Vec::len);
        if bytes > request.want_bytes && !next.tasks.is_empty() {
            break;
        }
        quarantined &= !task.quarantined;
        next.places.entry(lists[first]).or_default().push(place);
        next.held.insert(task.id, endpoint);
        next.tasks.push(task);
    }
    Ok(next)
}

/// Returns the list whose first task has waited longest.
fn first_of(lists: &[Rows<'_>]) -> Result<Option<usize>, rusqlite::Error> {
    let mut first = None;
    for (list, rows) in lists.iter().enumerate() {
        if let Some(row) = rows.get() {
            let place: i64 = row.get(7)?;
            first = first.min(Some((place, list))).or(Some((place, list)));
        }
    }
    Ok(first.map(|(_, list)| list))
}

fn read_held(work: &Work<'_>, id: TaskId) -> Result<Option<Claimed>, rusqlite::Error> {
    let mut statement = work.db.prepare_cached(
        "SELECT id, name, payload, failures, crashes, lost, max_crashes
         FROM throng_task WHERE id = ?1",
    )?;
    let mut rows = statement.query([id.to_bytes()])?;
    rows.next()?.map(|row| read(work, row, None)).transpose()
}

/// A row, whose neighbours are likely to have the same name.
fn read(
    work: &Work<'_>,
    row: &Row<'_>,
    before: Option<&Claimed>,
) -> Result<Claimed, rusqlite::Error> {
    let id = TaskId::from_bytes(row.get(0)?);
    let name = row.get_ref(1)?.as_str()?;
    let payload = match row.get(2)? {
        Some(payload) => Ok(payload),
        None => work.body(id)?,
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

/// The payload or the output of a task, which is too large for its row.
pub(super) fn body(db: &Connection, id: TaskId) -> Result<Vec<u8>, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT bytes FROM throng_payload WHERE id = ?1")?;
    statement.query_row([id.to_bytes()], |row| row.get(0))
}

/// Returns a payload or an output, or what is wrong with it if it is lost.
///
/// # Errors
///
/// If a page that leads to the data cannot be read, the data may not be lost: a repair may find them.
pub(super) fn readable_body(
    db: &Connection,
    id: TaskId,
) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    match body(db, id) {
        Err(error) if is_damaged_page(&error) && !leads_to_body(db, id)? => Err(error),
        body => readable(body),
    }
}

/// Returns what is wrong with a payload or an output that is lost, since this affects only one task. All other errors
/// remain errors.
pub(super) fn readable(
    body: Result<Vec<u8>, rusqlite::Error>,
) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    match body {
        Err(error) if is_corrupt(&error) => Ok(Err(format!("its data cannot be read: {error}"))),
        body => body.map(Ok),
    }
}

/// Returns `true` if the pages that lead to a payload or an output can be read.
fn leads_to_body(db: &Connection, id: TaskId) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT 1 FROM throng_payload NOT INDEXED
         WHERE rowid = (SELECT rowid FROM throng_payload WHERE id = ?1)",
    )?;
    match statement.exists([id.to_bytes()]) {
        Err(error) if is_damaged_page(&error) => Ok(false),
        found => found,
    }
}

// ===== Leases =====

pub(super) fn renew(work: &mut Work<'_>, claims: &[Epoch]) -> Result<RenewAnswer, Fault> {
    let mut beaten = RenewAnswer::default();
    for &epoch in claims {
        if !renew_claim(work, epoch as i64, true)? {
            beaten.lost.push(epoch);
            continue;
        }
        hear_holder(work, epoch as i64)?;
        beaten.cancelled.extend(cancelled(work, epoch as i64)?);
    }
    Ok(beaten)
}

/// The worker that holds a claim lives.
fn hear_holder(work: &Work<'_>, epoch: i64) -> Result<(), rusqlite::Error> {
    work.execute(
        "UPDATE throng_claim SET suspect = 2
         WHERE suspect = 1 AND session = (SELECT session FROM throng_claim WHERE epoch = ?1)",
        [epoch],
    )?;
    Ok(())
}

/// Renews the lease of a claim; `false` if there is none any more.
fn renew_claim(work: &Work<'_>, epoch: i64, is_seen: bool) -> Result<bool, rusqlite::Error> {
    let renewed = work.execute(
        "UPDATE throng_claim
         SET until = ?2 + lease, suspect = 0, delivered = max(delivered, ?3) WHERE epoch = ?1",
        params![epoch, work.now.boot, is_seen],
    )?;
    Ok(renewed != 0)
}

/// The tasks of a claim that are to be cancelled; looked for only if there were any.
fn cancelled(work: &Work<'_>, epoch: i64) -> Result<Vec<TaskId>, Fault> {
    let cancels = "SELECT cancels FROM throng_claim WHERE epoch = ?1";
    if work.number(cancels, [epoch])?.unwrap_or_default() == 0 {
        return Ok(Vec::new());
    }
    let mut ids = Vec::new();
    for id in work.held(epoch)?.ids() {
        if work.task(id)?.is_some_and(|task| task.cancel) {
            ids.push(id);
        }
    }
    Ok(ids)
}
