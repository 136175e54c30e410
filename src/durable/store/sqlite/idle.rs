//! Turns of idle workers. The reader answers a turn that finds nothing to do: it writes nothing, and takes no lock.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::endpoint::Endpoint;
use super::error::Fault;
use super::groups;
use super::next_check::{UNREACHABLE_CHECK_INTERVAL, earlier, is_any_ready, next_check};
use super::queues::{self, Allowance};
use super::reader::ReadConnection;
use super::schedules;
use super::time::Now;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::kind::SetId;
use crate::durable::store::{Turn, TurnAnswer};

/// Answers a turn without verdicts that finds nothing to do. Returns `None` if there may be something to do.
pub(super) fn idle_turn(
    reader: &ReadConnection,
    request: &Turn,
) -> Result<Option<TurnAnswer>, Fault> {
    reader.shared.endpoint.remove_idle(request.session);
    let Some(set) = reader.snapshot(|db| set_of_new_turn(db, request))? else {
        return Ok(None);
    };
    // A full worker has another session wait for a hold. The writer wakes that session.
    if request.want == 0 && reader.snapshot(|db| has_hold(reader, db, set))? {
        return Ok(None);
    }
    match check(reader, request, set)? {
        Some(turned) if request.go_idle && !turned.more => go_idle_with(reader, request, set),
        found => Ok(found),
    }
}

/// Makes the session idle, to be woken when there is something to do. Returns `None` if there may be something to do now.
pub(super) fn go_idle(
    reader: &ReadConnection,
    request: &Turn,
) -> Result<Option<TurnAnswer>, Fault> {
    let set = reader.snapshot(|db| set_of(db, request))?;
    match set {
        Some(set) => go_idle_with(reader, request, set),
        None => Ok(None),
    }
}

fn go_idle_with(
    reader: &ReadConnection,
    request: &Turn,
    set: SetId,
) -> Result<Option<TurnAnswer>, Fault> {
    let endpoint = &reader.shared.endpoint;
    let is_idle = endpoint.add_idle(request.session, set).is_ok();
    // Checks again after the marker was created: a process may have stored a task before that, and have seen no marker.
    let mut found = check(reader, request, set)?;
    match &mut found {
        None => endpoint.remove_idle(request.session),
        Some(turned) if !is_idle => {
            turned.next = earlier(turned.next, UNREACHABLE_CHECK_INTERVAL);
        }
        Some(_) => {}
    }
    Ok(found)
}

/// Returns the answer of a turn that has nothing to do, or `None` if there may be something.
fn check(reader: &ReadConnection, request: &Turn, set: SetId) -> Result<Option<TurnAnswer>, Fault> {
    reader.snapshot(|db| {
        let routes = reader.shared.routes.load(db)?;
        if is_any_ready(db, routes.draining(set), true)? {
            // Perhaps it is only of other types. Only the turn that drains the list finds out.
            return Ok(None);
        }
        let now = Now::read(&reader.clock);
        let allowed = match is_any_ready(db, routes.leaves(set), request.quarantined)? {
            true => queues::allowance(db, &routes.queue(set), now)?,
            false => Allowance::NOTHING,
        };
        // A turn that wants nothing has another session woken.
        if allowed.tasks > 0 || allowed.is_stale {
            return Ok(None);
        }
        let hold = groups::hold_wait(db, &routes.queue(set), now.wall)?;
        // If a hold is over, the writer ends it.
        if hold == Some(Duration::ZERO) {
            return Ok(None);
        }
        let next = next_check(db, &reader.shared, now)?;
        if next == Some(Duration::ZERO) || is_any_worker_dead(db, &reader.shared.endpoint)? {
            return Ok(None);
        }
        Ok(Some(TurnAnswer {
            next: next.into_iter().chain(allowed.wait).chain(hold).min(),
            next_tick: schedules::wait(db, now, COMPUTES)?,
            ..TurnAnswer::default()
        }))
    })
}

/// Returns `true` if a group of the queue of a set is held.
fn has_hold(reader: &ReadConnection, db: &Connection, set: SetId) -> Result<bool, Fault> {
    let routes = reader.shared.routes.load(db)?;
    let now = Now::read(&reader.clock);
    Ok(groups::hold_wait(db, &routes.queue(set), now.wall)?.is_some())
}

/// Returns the set of the session if it exists, if the turn is not a repetition, and if it reports nothing new about the
/// claims of the session.
fn set_of_new_turn(db: &Connection, request: &Turn) -> Result<Option<SetId>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT types FROM throng_session WHERE id = ?1 AND number < ?2 AND NOT EXISTS (
             SELECT 1 FROM throng_claim
             WHERE session = ?1 AND (suspect = 1 OR epoch IS ?3 AND NOT delivered))",
    )?;
    let seen = request.received.map(|epoch| epoch as i64);
    let params = params![request.session as i64, request.number as i64, seen];
    let set = statement.query_row(params, |row| row.get::<_, Option<_>>(0));
    Ok(set.optional()?.flatten().map(SetId::from_number))
}

/// Returns the set of the session.
fn set_of(db: &Connection, request: &Turn) -> Result<Option<SetId>, Fault> {
    let mut statement = db.prepare_cached("SELECT types FROM throng_session WHERE id = ?1")?;
    let set = statement.query_row([request.session as i64], |row| row.get::<_, Option<_>>(0));
    Ok(set.optional()?.flatten().map(SetId::from_number))
}

/// Returns `true` if the worker of any claim is dead.
fn is_any_worker_dead(db: &Connection, endpoint: &Endpoint) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT endpoint FROM throng_claim
         LEFT JOIN throng_session ON throng_session.id = throng_claim.session",
    )?;
    let mut workers = statement.query([])?;
    while let Some(row) = workers.next()? {
        let worker: Option<i64> = row.get(0)?;
        if worker.is_none_or(|worker| endpoint.is_dead(worker)) {
            return Ok(true);
        }
    }
    Ok(false)
}
