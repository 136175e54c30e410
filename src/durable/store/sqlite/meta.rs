//! The row about the whole store: the numbers that were issued last, store time, and the totals.

use rusqlite::{Connection, Row, params};

use super::error::Fault;
use super::schema::known;
use super::work::Now;
use crate::durable::Counts;
use crate::durable::clock::millis;
use crate::durable::store::{CEILING_AHEAD, Epoch, MAX_STORE_TIME_STEP};

/// How far above the last epoch and the time a ceiling is raised, in microseconds.
const CEILING: i64 = CEILING_AHEAD.as_micros() as i64 / 2 * 3;

/// Two measures of the same time that differ by less than this agree, in microseconds.
const STEP: i64 = 100_000;

/// The row: read when a transaction begins, and written once before it ends.
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
    pub(super) counts: Counts,
}

impl Meta {
    /// Reads it; refuses if a newer version has laid the database out.
    pub(super) fn load(db: &Connection) -> Result<Self, Fault> {
        let mut statement = db.prepare_cached(
            "SELECT layout, epoch, session, waiting, delayed, running, results, dead, stored, claimed,
                 done, retried, snoozed, died, released, crashed, lost, cancelled, aged, aged_at,
                 ceiling, raised, raised_boot
             FROM throng_meta",
        )?;
        let (layout, meta) = statement.query_row([], read)?;
        known(layout)?;
        Ok(meta)
    }

    pub(super) fn save(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        let counts = &self.counts;
        let mut statement = db.prepare_cached(
            "UPDATE throng_meta SET epoch = ?1, session = ?2, waiting = ?3, delayed = ?4,
                 running = ?5, results = ?6, dead = ?7, stored = ?8, claimed = ?9, done = ?10,
                 retried = ?11, snoozed = ?12, died = ?13, released = ?14, crashed = ?15,
                 lost = ?16, cancelled = ?17, aged = ?18, aged_at = ?19,
                 ceiling = ?20, raised = ?21, raised_boot = ?22",
        )?;
        statement.execute(params![
            self.epoch,
            self.session,
            counts.waiting as i64,
            counts.delayed as i64,
            counts.running as i64,
            counts.kept as i64,
            counts.dead as i64,
            counts.stored as i64,
            counts.claimed as i64,
            counts.done as i64,
            counts.retried as i64,
            counts.snoozed as i64,
            counts.died as i64,
            counts.released as i64,
            counts.crashed as i64,
            counts.lost as i64,
            counts.cancelled as i64,
            self.aged,
            self.aged_at,
            self.ceiling,
            self.raised,
            self.raised_boot,
        ])?;
        Ok(())
    }

    /// The time that decides how long ends are kept, in milliseconds. It advances while the machine is up, but by no more
    /// than a minute without a pass of maintenance. So nothing is removed early because a clock was set or the file was
    /// moved to another machine.
    pub(super) fn store_time(&self, now: Now) -> i64 {
        store_time(self.aged, self.aged_at, now)
    }

    /// Returns `true` if there are ends. Otherwise, nothing needs store time, and maintenance does not record it.
    pub(super) fn keeps_ends(&self) -> bool {
        self.counts.kept + self.counts.dead > 0
    }

    /// Records store time. It can advance by another minute from there.
    pub(super) fn age(&mut self, now: Now) {
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
    /// Otherwise, it need not be, so the ceiling does not run away from the clock when workers often open sessions. Nor need
    /// it be if the clock is past the ceiling, as after a restart on the next day.
    pub(super) fn recall(&mut self, now: Now) {
        if now.micros() > self.ceiling {
            return;
        }
        let since_1970 = now.micros() - self.raised;
        let since_boot = now.boot_micros() - self.raised_boot;
        let is_steady = since_boot >= 0 && (since_1970 - since_boot).abs() < STEP;
        let last = match is_steady {
            true => self.ceiling - CEILING,
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
            self.ceiling = highest + CEILING;
            self.raised = now.micros();
            self.raised_boot = now.boot_micros();
        }
    }
}

/// Reads store time without the rest of the row.
pub(super) fn read_store_time(db: &Connection, now: Now) -> Result<i64, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT aged, aged_at FROM throng_meta")?;
    statement.query_row([], |row| {
        Ok(store_time(issued(row, 0)?, issued(row, 1)?, now))
    })
}

fn store_time(aged: i64, aged_at: i64, now: Now) -> i64 {
    aged + (now.boot - aged_at).clamp(0, millis(MAX_STORE_TIME_STEP) as i64)
}

fn read(row: &Row<'_>) -> Result<(i64, Meta), rusqlite::Error> {
    let count = |column| issued(row, column).map(|count| count as u64);
    let counts = Counts {
        waiting: count(3)?,
        // Counted when it is asked for.
        unserved: 0,
        delayed: count(4)?,
        running: count(5)?,
        kept: count(6)?,
        dead: count(7)?,
        stored: count(8)?,
        claimed: count(9)?,
        done: count(10)?,
        retried: count(11)?,
        snoozed: count(12)?,
        died: count(13)?,
        released: count(14)?,
        crashed: count(15)?,
        lost: count(16)?,
        cancelled: count(17)?,
    };
    let meta = Meta {
        epoch: issued(row, 1)?,
        ceiling: issued(row, 20)?,
        raised: issued(row, 21)?,
        raised_boot: issued(row, 22)?,
        session: issued(row, 2)?,
        aged: issued(row, 18)?,
        aged_at: issued(row, 19)?,
        counts,
    };
    Ok((row.get(0)?, meta))
}

/// A number that is counted up.
fn issued(row: &Row<'_>, column: usize) -> Result<i64, rusqlite::Error> {
    match row.get(column)? {
        number @ 0..=MAX_ISSUED => Ok(number),
        number => Err(rusqlite::Error::IntegralValueOutOfRange(column, number)),
    }
}

/// No number that is counted up comes that far.
pub(super) const MAX_ISSUED: i64 = 1 << 62;
