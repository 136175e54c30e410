//! The row about the whole store: the numbers that were issued last, store time, and the totals.

use std::sync::LazyLock;

use rusqlite::{Connection, Row, params_from_iter};

use super::error::Fault;
use super::time::Now;
use crate::durable::Counts;
use crate::durable::clock::millis;
use crate::durable::store::kept::{self, Expiry, Limits};
use crate::durable::store::layouts::Layouts;
use crate::durable::store::totals::{FIELDS, FIRST_END, Field};
use crate::durable::store::{CEILING_AHEAD, Epoch, MAX_STORE_TIME_STEP};

/// The distance by which a ceiling is raised above the last epoch and the time, in microseconds.
const CEILING_MICROS: i64 = CEILING_AHEAD.as_micros() as i64 / 2 * 3;

/// The largest difference, in microseconds, between two measurements of the same span of time.
const MAX_CLOCK_DIFFERENCE_MICROS: i64 = 100_000;

/// The columns of the row, except those of the limits and the totals, `layout` and the routes.
const COLUMNS: [&str; 8] = [
    "epoch",
    "ceiling",
    "raised",
    "raised_boot",
    "session",
    "aged",
    "aged_at",
    "group_turn",
];

static LOAD: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<_> = all_columns().collect();
    format!("SELECT layout, {} FROM throng_meta", columns.join(", "))
});

static READ_EXPIRY: LazyLock<String> = LazyLock::new(|| {
    let limits = kept::COLUMNS.join(", ");
    format!("SELECT aged, aged_at, {limits} FROM throng_meta")
});

static SAVE: LazyLock<String> = LazyLock::new(|| {
    let columns = all_columns().enumerate();
    let columns = columns.map(|(i, column)| format!("{column} = ?{}", i + 1));
    let columns: Vec<_> = columns.collect();
    format!("UPDATE throng_meta SET {}", columns.join(", "))
});

fn all_columns() -> impl Iterator<Item = &'static str> {
    let columns = COLUMNS.into_iter().chain(kept::COLUMNS);
    columns.chain(totals().map(|(name, _)| name))
}

/// Returns the totals that have a column. The number of unserved tasks is only counted on request.
fn totals() -> impl Iterator<Item = (&'static str, Field)> {
    FIELDS.into_iter().filter(|(name, _)| *name != "unserved")
}

/// Returns the SQL expression that adds up the ends of claims.
pub(super) fn sum_of_ends() -> String {
    let ends: Vec<_> = FIELDS[FIRST_END..].iter().map(|(name, _)| *name).collect();
    ends.join(" + ")
}

/// The row, which is read when a transaction begins, and written once before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) epoch: i64,
    /// The epochs of the next minutes do not exceed this number: see [`CEILING_AHEAD`].
    ceiling: i64,
    /// When the ceiling was raised, in microseconds: since 1970, and since the machine was started.
    raised: i64,
    raised_boot: i64,
    pub(super) session: i64,
    /// The store time that was last recorded, in milliseconds.
    aged: i64,
    /// When it was recorded, in milliseconds since the machine was started.
    aged_at: i64,
    /// The last turn of a group that was issued.
    pub(super) group_turn: i64,
    pub(super) limits: Limits,
    pub(super) counts: Counts,
}

impl Meta {
    /// Reads the row.
    ///
    /// # Errors
    ///
    /// If the store has none of these layouts.
    pub(super) fn load(db: &Connection, layouts: Layouts) -> Result<Self, Fault> {
        let mut statement = db.prepare_cached(&LOAD)?;
        // Another layout may have other values in the other columns.
        let (layout, meta) = statement.query_row([], |row| Ok((row.get(0)?, read(row))))?;
        layouts.check(layout).map_err(Fault::Refused)?;
        Ok(meta?)
    }

    pub(super) fn save(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        let mut statement = db.prepare_cached(&SAVE)?;
        let mut counts = self.counts;
        let numbers = [
            self.epoch,
            self.ceiling,
            self.raised,
            self.raised_boot,
            self.session,
            self.aged,
            self.aged_at,
            self.group_turn,
        ];
        let counts = totals().map(|(_, field)| *field(&mut counts) as i64);
        let numbers = numbers.into_iter().chain(self.limits.numbers());
        statement.execute(params_from_iter(numbers.chain(counts)))?;
        Ok(())
    }

    /// Returns the store time, by which the retention of ended tasks is measured, in milliseconds. It advances while the
    /// machine is up, but by no more than a minute without a pass of maintenance. So nothing is removed early because a
    /// clock was set or the file was moved to another machine.
    pub(super) fn store_time(&self, now: Now) -> i64 {
        store_time(self.aged, self.aged_at, now)
    }

    /// Returns `true` if there are ended tasks. Otherwise, nothing needs store time, and maintenance does not record it.
    pub(super) fn has_ended_tasks(&self) -> bool {
        self.counts.kept + self.counts.dead > 0
    }

    /// Records store time. It can advance by another minute from there.
    pub(super) fn record_store_time(&mut self, now: Now) {
        self.aged = self.store_time(now);
        self.aged_at = now.boot;
    }

    /// Issues an epoch above all others, and above `floor`.
    pub(super) fn next_epoch(&mut self, now: Now, floor: Epoch) -> i64 {
        self.epoch = now.micros().max(self.epoch + 1).max(floor as i64 + 1);
        self.raise_ceiling(now);
        self.epoch
    }

    /// Ensures that the next epoch is above all epochs that the file may lack, since the file may be an older copy that
    /// has replaced another one.
    ///
    /// No epoch was further above the clock than when the ceiling was raised, unless the clock was set or the machine was
    /// restarted since then, or the copy is on another machine. In these cases, the next epoch is above the ceiling.
    /// Otherwise, it need not be, so the ceiling stays near the clock even if workers often open sessions. It need not be
    /// above the ceiling either if the clock has passed the ceiling, as after a restart on the next day.
    pub(super) fn skip_lost_epochs(&mut self, now: Now) {
        if now.micros() > self.ceiling {
            return;
        }
        let since_1970 = now.micros() - self.raised;
        let since_boot = now.boot_micros() - self.raised_boot;
        let is_steady =
            since_boot >= 0 && (since_1970 - since_boot).abs() < MAX_CLOCK_DIFFERENCE_MICROS;
        let last = match is_steady {
            true => self.ceiling - CEILING_MICROS,
            false => self.ceiling,
        };
        // The ceiling of a copy is the same each time the copy is restored, but the time since it was raised is not.
        let since = since_1970.max(since_boot).max(0);
        self.epoch = self.epoch.max(last + since);
    }

    /// Raises the ceiling unless it is far enough above the last epoch and above the time.
    pub(super) fn raise_ceiling(&mut self, now: Now) {
        let highest = self.epoch.max(now.micros());
        if self.ceiling < highest + CEILING_AHEAD.as_micros() as i64 {
            self.ceiling = highest + CEILING_MICROS;
            self.raised = now.micros();
            self.raised_boot = now.boot_micros();
        }
    }
}

/// Reads the times up to which ended tasks have expired without the rest of the row.
pub(super) fn read_expiry(db: &Connection, now: Now) -> Result<Expiry, rusqlite::Error> {
    let mut statement = db.prepare_cached(&READ_EXPIRY)?;
    statement.query_row([], |row| {
        let time = store_time(issued(row, 0)?, issued(row, 1)?, now);
        Ok(read_limits(row, 2)?.expiry(time))
    })
}

fn store_time(aged: i64, aged_at: i64, now: Now) -> i64 {
    aged + (now.boot - aged_at).clamp(0, millis(MAX_STORE_TIME_STEP) as i64)
}

/// Reads a row of [`LOAD`], except its layout.
fn read(row: &Row<'_>) -> Result<Meta, rusqlite::Error> {
    let mut counts = Counts::default();
    for ((_, field), column) in totals().zip(1 + COLUMNS.len() + kept::COLUMNS.len()..) {
        *field(&mut counts) = issued(row, column)? as u64;
    }
    Ok(Meta {
        epoch: issued(row, 1)?,
        ceiling: issued(row, 2)?,
        raised: issued(row, 3)?,
        raised_boot: issued(row, 4)?,
        session: issued(row, 5)?,
        aged: issued(row, 6)?,
        aged_at: issued(row, 7)?,
        group_turn: issued(row, 8)?,
        limits: read_limits(row, 1 + COLUMNS.len())?,
        counts,
    })
}

/// Reads the limits, given their first column.
fn read_limits(row: &Row<'_>, first: usize) -> Result<Limits, rusqlite::Error> {
    let mut numbers = [0; kept::COLUMNS.len()];
    for (number, column) in numbers.iter_mut().zip(first..) {
        *number = issued(row, column)?;
    }
    Ok(Limits::of_numbers(numbers))
}

/// Reads a number that is not negative.
fn issued(row: &Row<'_>, column: usize) -> Result<i64, rusqlite::Error> {
    match row.get(column)? {
        number @ 0..=MAX_ISSUED => Ok(number),
        number => Err(rusqlite::Error::IntegralValueOutOfRange(column, number)),
    }
}

/// The largest valid value of a number. No number that only rises gets near it.
pub(super) const MAX_ISSUED: i64 = 1 << 62;
