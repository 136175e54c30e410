//! Checks whether a worker has anything to do, and when it must check again.

use std::time::Duration;

use tokio::try_join;

use super::error::Fault;
use super::groups;
use super::schedules;
use super::time::Now;
use super::view::View;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::when::COMPUTES;

/// The interval between the checks of a worker that receives no notifications.
pub(super) const UNREACHABLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The time after which a worker looks again for tasks that another transaction has locked, in case it is rolled back.
const LOCKED_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Selects `true` if a task without a group waits in the lines of the kinds `$1` behind the place `$3`, whether or not it is quarantined if
/// `$2`.
const IS_ANY_READY: &str = "SELECT EXISTS (
        SELECT 1 FROM unnest($1::bigint[]) AS own (kind) CROSS JOIN LATERAL (
            SELECT 1 FROM throng.ready
            WHERE ready.kind = own.kind AND group_name = '' AND place > $3 AND ($2 OR EXISTS (
                SELECT 1 FROM throng.task WHERE task.id = ready.id
                    AND NOT (crashes + lost > 0 AND crashes + least(lost, 1) + 1 >= max_crashes) OFFSET 0
            )) ORDER BY place LIMIT 1
        ) AS entry
    )";

/// Selects the times at which the first of the delayed tasks is due, and at which the first lease expires.
const EARLIEST: &str = "SELECT
        (SELECT at FROM throng.task WHERE state = 1 AND at IS NOT NULL ORDER BY at LIMIT 1) AS due,
        (SELECT until FROM throng.claim ORDER BY until LIMIT 1) AS lease";

/// The parts of the answer to a turn that say when the worker is to look again.
pub(super) struct Ahead {
    /// `true` if a task waits that may start.
    pub(super) more: bool,
    pub(super) next: Option<Duration>,
    pub(super) next_tick: Option<Duration>,
}

impl Ahead {
    /// Returns the parts for a claim that got fewer tasks than it wanted: others have locked those that seem to wait, and will probably
    /// start them. Without a pause, the worker would look again and again until they do.
    pub(super) fn beside_others(self) -> Self {
        match self.more {
            true => Self {
                more: false,
                next: earlier(self.next, LOCKED_CHECK_INTERVAL),
                ..self
            },
            false => self,
        }
    }
}

/// Looks ahead for a session with a set of these kinds: see [`is_any_ready`], [`next_check`] and [`schedules::wait`].
pub(super) async fn look_ahead(
    view: &View,
    kinds: &[i64],
    queue: &QueueName,
    quarantined: bool,
    low: i64,
) -> Result<Ahead, Fault> {
    let (more, next, next_tick) = try_join!(
        biased;
        is_any_ready(view, kinds, queue, quarantined, low),
        next_check(view),
        schedules::wait(view, COMPUTES),
    )?;
    Ok(Ahead {
        more,
        next,
        next_tick,
    })
}

/// Returns `true` if a task of these kinds waits that may start as far as its group is concerned. `low` is a place behind which there is
/// probably one, or 0.
pub(super) async fn is_any_ready(
    view: &View,
    kinds: &[i64],
    queue: &QueueName,
    quarantined: bool,
    low: i64,
) -> Result<bool, Fault> {
    if kinds.is_empty() {
        return Ok(false);
    }
    if low > 0 && is_any_behind(view, kinds, quarantined, low).await? {
        return Ok(true);
    }
    match is_any_behind(view, kinds, quarantined, i64::MIN).await? {
        true => Ok(true),
        _ if queue.is_default() => Ok(false),
        _ => groups::is_any_ready(view, kinds, quarantined).await,
    }
}

async fn is_any_behind(
    view: &View,
    kinds: &[i64],
    quarantined: bool,
    place: i64,
) -> Result<bool, Fault> {
    let found: Option<bool> = view
        .value(IS_ANY_READY, &[&kinds, &quarantined, &place])
        .await?;
    Ok(found.unwrap_or_default())
}

/// Returns the time until an idle worker must check again: until the first delayed task is due or the first lease expires.
pub(super) async fn next_check(view: &View) -> Result<Option<Duration>, Fault> {
    let mut next = None;
    if let Some(row) = view.row(EARLIEST, &[]).await? {
        let (due, lease): (Option<i64>, Option<i64>) = (row.try_get("due")?, row.try_get("lease")?);
        let due = due.map(|due| Now::left(view.now.wall, due));
        let lease = lease.map(|until| Now::left(view.now.boot, until));
        next = due.into_iter().chain(lease).min();
    }
    match view.shared.is_listening() {
        true => Ok(next),
        false => Ok(earlier(next, UNREACHABLE_CHECK_INTERVAL)),
    }
}

pub(super) fn earlier(next: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(next.map_or(other, |next| next.min(other)))
}
