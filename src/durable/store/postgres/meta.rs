//! The row about the whole store: its layout, store time, and the limits of what is kept.

use tokio_postgres::Row;

use super::connection::Connection;
use super::error::Fault;
use super::shared::Shared;
use super::text;
use super::time::Now;
use crate::durable::clock::millis;
use crate::durable::store::MAX_STORE_TIME_STEP;
use crate::durable::store::kept::{Expiry, Limits};

/// Selects the row, the paused types, and the time.
pub(super) const LOAD: &str = "SELECT layout, aged, aged_at, uses_priorities,
        dead_for, dead_most, kept_most, dead_since,
        ARRAY(SELECT name FROM throng.paused ORDER BY name) AS paused,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
    FROM throng.meta";

/// Ensures that the next epoch is above the time, and above all that are stored. So a database that was restored from a copy, or a standby
/// that has become the primary, repeats no epoch, also if its clock is behind.
pub(super) const RAISE_EPOCH: &str = "SELECT setval('throng.epoch', greatest(
        last_value, $1,
        (SELECT max(epoch) FROM throng.claim), (SELECT max(epoch) FROM throng.progress)
    )) FROM throng.epoch";

const SERVER_TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The row about the whole store, the paused types, and the time.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) layout: i64,
    /// The store time that was last recorded, and the time at which it was recorded.
    pub(super) aged: i64,
    pub(super) aged_at: i64,
    pub(super) uses_priorities: bool,
    pub(super) limits: Limits,
    /// The names of the paused types, in order.
    pub(super) paused: Vec<String>,
    pub(super) now: Now,
}

impl Meta {
    /// Returns the time by which the retention of ended tasks is measured, in milliseconds. It advances by no more than a minute without a
    /// pass of maintenance. So nothing is removed early because a clock was set.
    pub(super) fn store_time(&self) -> i64 {
        let step = millis(MAX_STORE_TIME_STEP) as i64;
        self.aged + (self.now.boot - self.aged_at).clamp(0, step)
    }

    /// Returns the times up to which ended tasks have expired.
    pub(super) fn expiry(&self) -> Expiry {
        self.limits.expiry(self.store_time())
    }
}

/// Reads the row.
///
/// # Errors
///
/// If the store has a layout that this process does not know.
pub(super) async fn load(db: &Connection, shared: &Shared) -> Result<Meta, Fault> {
    let row = db.row(LOAD, &[]).await?;
    let row = row.ok_or_else(|| Fault::Corrupt(String::from("the row `meta` is missing")))?;
    let layout = row.try_get("layout")?;
    shared.layouts.check(layout).map_err(Fault::Refused)?;
    read(&row, layout, shared)
}

/// Returns the time of the server in microseconds since 1970.
pub(super) async fn server_time(db: &Connection) -> Result<i64, Fault> {
    let row = db.row(SERVER_TIME, &[]).await?;
    let row = row.ok_or_else(|| Fault::Corrupt(String::from("no time")))?;
    Ok(row.try_get(0)?)
}

fn read(row: &Row, layout: i64, shared: &Shared) -> Result<Meta, Fault> {
    let paused: Vec<String> = row.try_get("paused")?;
    let limits = [
        row.try_get("dead_for")?,
        row.try_get("dead_most")?,
        row.try_get("kept_most")?,
        row.try_get("dead_since")?,
    ];
    Ok(Meta {
        layout,
        aged: row.try_get("aged")?,
        aged_at: row.try_get("aged_at")?,
        uses_priorities: row.try_get("uses_priorities")?,
        limits: Limits::of_numbers(limits),
        paused: paused.into_iter().map(text::loaded).collect(),
        now: shared.time.now(row.try_get("now")?),
    })
}
