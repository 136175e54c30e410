//! Checks whether a worker has anything to do, and when it must check again.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::other_claims::MAX_CHECK_INTERVAL;
use super::shared::Shared;
use super::time::Now;
use crate::durable::store::routes::ListId;

/// The interval between the checks of a worker that other processes cannot wake.
pub(super) const UNREACHABLE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Selects the time at which the first of the delayed tasks is due.
pub(super) const EARLIEST_DUE: &str =
    "SELECT at FROM throng_task WHERE state = 1 AND at IS NOT NULL ORDER BY at LIMIT 1";

/// Selects the time at which the first lease expires.
const EARLIEST_LEASE: &str = "SELECT until FROM throng_claim ORDER BY until LIMIT 1";

/// Returns `true` if any task waits in these lists. `quarantined` determines whether [quarantined](crate::durable::store::is_quarantined)
/// tasks count.
pub(super) fn is_any_ready(
    db: &Connection,
    lists: impl IntoIterator<Item = ListId>,
    quarantined: bool,
) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM throng_ready WHERE list = ?2 AND sublist = 0 AND (?1 OR EXISTS (
             SELECT 1 FROM throng_task WHERE throng_task.id = throng_ready.id
             AND NOT (crashes + lost > 0 AND crashes + min(lost, 1) + 1 >= max_crashes))))",
    )?;
    // Tasks of groups that are held or full do not count.
    let mut of_groups = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM throng_group JOIN throng_ready USING (list, sublist)
             WHERE throng_group.list = ?2 AND turn IS NOT NULL AND (?1 OR EXISTS (
             SELECT 1 FROM throng_task WHERE throng_task.id = throng_ready.id
             AND NOT (crashes + lost > 0 AND crashes + min(lost, 1) + 1 >= max_crashes))))",
    )?;
    for list in lists {
        let params = params![quarantined, list.number()];
        if statement.query_row(params, |row| row.get(0))?
            || of_groups.query_row(params, |row| row.get(0))?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the time until an idle worker must check again: until the first delayed task is due or the first lease
/// expires, or less if the workers of other processes may die meanwhile.
pub(super) fn next_check(
    db: &Connection,
    shared: &Shared,
    now: Now,
) -> Result<Option<Duration>, rusqlite::Error> {
    let mut next = time_until(db, EARLIEST_DUE, now.wall)?;
    if let Some(expiry) = time_until(db, EARLIEST_LEASE, now.boot)? {
        next = earlier(next, expiry);
    }
    if !shared.endpoint.is_reachable() {
        next = earlier(next, UNREACHABLE_CHECK_INTERVAL);
    }
    let interval = match others(db, shared)? {
        Others::None => return Ok(next),
        Others::Idle => MAX_CHECK_INTERVAL,
        Others::Busy { newest } => shared.other_claims.check_interval(newest, now),
    };
    Ok(earlier(next, interval))
}

pub(super) fn earlier(next: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(next.map_or(other, |next| next.min(other)))
}

/// Returns the time from `now` until the time that a statement selects.
fn time_until(db: &Connection, sql: &str, now: i64) -> Result<Option<Duration>, rusqlite::Error> {
    let mut statement = db.prepare_cached(sql)?;
    let at = statement.query_row([], |row| row.get::<_, i64>(0));
    let left = |at| u64::try_from(at - now).unwrap_or_default();
    Ok(at.optional()?.map(|at| Duration::from_millis(left(at))))
}

/// The sessions and claims of other processes.
enum Others {
    None,
    Idle,
    /// Others hold claims. `newest` is the epoch of the last one.
    Busy {
        newest: i64,
    },
}

fn others(db: &Connection, shared: &Shared) -> Result<Others, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM throng_session WHERE endpoint <> ?1),
             (SELECT max(epoch) FROM throng_claim
                 JOIN throng_session ON throng_session.id = throng_claim.session
                 WHERE endpoint <> ?1)",
    )?;
    statement.query_row([shared.endpoint.id], |row| {
        Ok(match (row.get(0)?, row.get(1)?) {
            (false, _) => Others::None,
            (true, None) => Others::Idle,
            (true, Some(newest)) => Others::Busy { newest },
        })
    })
}
