//! Looks whether there is anything to do. A turn that finds nothing writes nothing, and takes no lock.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::endpoint::Endpoint;
use super::enqueue::EARLIEST;
use super::error::Fault;
use super::reader::Desk;
use super::work::Now;
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::ListId;
use crate::durable::store::{Turn, TurnAnswer};
use crate::sync::{Mutex, lock};

/// The first pause of an idle worker after other processes have claimed tasks. Then it checks whether they have died.
const WHILE_OTHERS_RUN: Duration = Duration::from_millis(100);
/// The longest pause while there are other processes: one may have claimed something since, or have died after it
/// received a wake-up.
const WHILE_OTHERS_LIVE: Duration = Duration::from_millis(2500);
/// The pause of a worker that other processes cannot wake.
pub(super) const WHILE_UNREACHABLE: Duration = Duration::from_millis(50);

/// Answers a turn without verdicts that finds nothing to do. Returns `None` if there may be something to do.
pub(super) fn idle(desk: &Desk, request: &Turn) -> Result<Option<TurnAnswer>, Fault> {
    desk.endpoint.unpark(request.session);
    let Some(set) = desk.snapshot(|db| is_new(db, request))? else {
        return Ok(None);
    };
    match peek(desk, request, set)? {
        Some(turned) if request.park && !turned.more => rest_of(desk, request, set),
        found => Ok(found),
    }
}

/// Parks this endpoint, unless there is something to do now.
pub(super) fn rest(desk: &Desk, request: &Turn) -> Result<Option<TurnAnswer>, Fault> {
    let set = desk.snapshot(|db| set_of(db, request))?;
    match set {
        Some(set) => rest_of(desk, request, set),
        None => Ok(None),
    }
}

fn rest_of(desk: &Desk, request: &Turn, set: SetId) -> Result<Option<TurnAnswer>, Fault> {
    let is_parked = desk.endpoint.park(request.session, set).is_ok();
    // Looks again after the marker was created: a task may have been stored before that, by a process that saw no marker.
    let mut found = peek(desk, request, set)?;
    match &mut found {
        None => desk.endpoint.unpark(request.session),
        Some(turned) if !is_parked => turned.next = earlier(turned.next, WHILE_UNREACHABLE),
        Some(_) => {}
    }
    Ok(found)
}

/// Returns `true` if any task waits in these lists; `quarantined` says whether quarantined tasks count.
pub(super) fn is_any_waiting(
    db: &Connection,
    lists: impl IntoIterator<Item = ListId>,
    quarantined: bool,
) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM throng_ready WHERE list = ?2 AND (?1 OR EXISTS (
             SELECT 1 FROM throng_task WHERE throng_task.id = throng_ready.id
             AND NOT (crashes + lost > 0 AND crashes + min(lost, 1) + 1 >= max_crashes))))",
    )?;
    for list in lists {
        if statement.query_row(params![quarantined, list.number()], |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// When to look again: when the first of the delayed is due, or the first lease over, and earlier if
/// others may die meanwhile.
pub(super) fn next_look(
    db: &Connection,
    endpoint: &Endpoint,
    now: Now,
) -> Result<Option<Duration>, rusqlite::Error> {
    let late = "SELECT until FROM throng_claim ORDER BY until LIMIT 1";
    let mut next = until(db, EARLIEST, now.wall)?;
    if let Some(late) = until(db, late, now.boot)? {
        next = earlier(next, late);
    }
    if !endpoint.is_reachable() {
        next = earlier(next, WHILE_UNREACHABLE);
    }
    match others(db, endpoint)? {
        Others::None => Ok(next),
        Others::Idle => Ok(earlier(next, WHILE_OTHERS_LIVE)),
        Others::Busy { newest } => Ok(earlier(next, endpoint.others.next_look(newest, now))),
    }
}

/// The claims of others, as an endpoint has seen them.
#[derive(Default)]
pub(super) struct ClaimsOfOthers {
    /// The newest of these claims, and the time at which this endpoint first saw it.
    newest: Mutex<Option<(i64, i64)>>,
}

impl ClaimsOfOthers {
    /// Returns how soon to look whether a holder of a claim has died. This is the time for which there has been no new
    /// claim. So the tasks of a dead process wait for no longer than they have run, and a long task costs an idle worker
    /// few looks.
    fn next_look(&self, newest: i64, now: Now) -> Duration {
        let mut known = lock(&self.newest);
        let since = match *known {
            Some((known, since)) if newest <= known => since,
            _ => now.boot,
        };
        *known = Some((newest, since));
        let unchanged = u64::try_from(now.boot - since).unwrap_or_default();
        Duration::from_millis(unchanged).clamp(WHILE_OTHERS_RUN, WHILE_OTHERS_LIVE)
    }
}

fn earlier(next: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(next.map_or(other, |next| next.min(other)))
}

/// The time until what a statement finds.
fn until(db: &Connection, sql: &str, now: i64) -> Result<Option<Duration>, rusqlite::Error> {
    let mut statement = db.prepare_cached(sql)?;
    let at = statement.query_row([], |row| row.get::<_, i64>(0));
    let left = |at| u64::try_from(at - now).unwrap_or_default();
    Ok(at.optional()?.map(|at| Duration::from_millis(left(at))))
}

/// What other processes have in the store.
enum Others {
    None,
    Idle,
    /// The others hold claims, and `newest` is the epoch of the last one.
    Busy {
        newest: i64,
    },
}

fn others(db: &Connection, endpoint: &Endpoint) -> Result<Others, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM throng_session WHERE endpoint <> ?1),
             (SELECT max(epoch) FROM throng_claim
                 JOIN throng_session ON throng_session.id = throng_claim.session
                 WHERE endpoint <> ?1)",
    )?;
    statement.query_row([endpoint.id], |row| {
        Ok(match (row.get(0)?, row.get(1)?) {
            (false, _) => Others::None,
            (true, None) => Others::Idle,
            (true, Some(newest)) => Others::Busy { newest },
        })
    })
}

/// The set of a session that is there, if the turn is a later one of it and says nothing new of its claims.
fn is_new(db: &Connection, request: &Turn) -> Result<Option<SetId>, Fault> {
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

/// The set of a session.
fn set_of(db: &Connection, request: &Turn) -> Result<Option<SetId>, Fault> {
    let mut statement = db.prepare_cached("SELECT types FROM throng_session WHERE id = ?1")?;
    let set = statement.query_row([request.session as i64], |row| row.get::<_, Option<_>>(0));
    Ok(set.optional()?.flatten().map(SetId::from_number))
}

/// What a turn finds that has nothing to do; nothing if there may be something.
fn peek(desk: &Desk, request: &Turn, set: SetId) -> Result<Option<TurnAnswer>, Fault> {
    desk.snapshot(|db| {
        let routes = desk.endpoint.routes.load(db)?;
        if is_any_waiting(db, routes.draining(set), true)? {
            // It may be of other types only: that is known when it is drained.
            return Ok(None);
        }
        let more = is_any_waiting(db, routes.leaves(set), request.quarantined)?;
        if more && request.want != 0 {
            return Ok(None);
        }
        let next = next_look(db, &desk.endpoint, Now::read(&desk.clock))?;
        if next == Some(Duration::ZERO) || has_dead_holder(db, &desk.endpoint)? {
            return Ok(None);
        }
        Ok(Some(TurnAnswer {
            more,
            next,
            ..TurnAnswer::default()
        }))
    })
}

/// Whether a claim is held by one who is dead.
fn has_dead_holder(db: &Connection, endpoint: &Endpoint) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT endpoint FROM throng_claim
         LEFT JOIN throng_session ON throng_session.id = throng_claim.session",
    )?;
    let mut holders = statement.query([])?;
    while let Some(row) = holders.next()? {
        let holder: Option<i64> = row.get(0)?;
        if holder.is_none_or(|holder| endpoint.is_dead(holder)) {
            return Ok(true);
        }
    }
    Ok(false)
}
