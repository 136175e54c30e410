//! [`DamageWatch`]: the damage to the file that this process has detected.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::error::Fault;
use super::time::Now;
use crate::durable::TaskId;
use crate::sync::{Mutex, Number, lock};

/// The number of reports in `throng_damaged`, at most.
const MAX_REPORTS: i64 = 100;
/// The time for which a store is reported as damaged after damage was found.
const REPORT_TIME: Duration = Duration::from_secs(3600);

/// Damage: the number of rows, and a description of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) rows: u64,
    pub(super) last: String,
}

impl Damage {
    pub(super) fn add(&mut self, rows: usize, describe: impl FnOnce() -> String) {
        if rows > 0 {
            self.rows += rows as u64;
            self.last = describe();
        }
    }

    /// Writes a report for the other processes.
    pub(super) fn save(&self, db: &Connection, now: Now) -> Result<(), rusqlite::Error> {
        if self.rows == 0 {
            return Ok(());
        }
        let rows = self.rows.min(u32::MAX.into()) as i64;
        db.execute(
            "INSERT INTO throng_damaged (at, found, what) VALUES (?1, ?2, ?3)",
            params![now.wall, rows, self.last],
        )?;
        db.execute(
            "DELETE FROM throng_damaged WHERE number <= (SELECT max(number) FROM throng_damaged) - ?1",
            [MAX_REPORTS],
        )?;
        Ok(())
    }

    /// Returns the damage that was reported recently.
    fn load(db: &Connection, now: Now) -> Result<Option<Self>, rusqlite::Error> {
        let sql = "SELECT found, what FROM throng_damaged WHERE at > ?1 ORDER BY number";
        let mut statement = db.prepare_cached(sql)?;
        let since = now.wall - REPORT_TIME.as_millis() as i64;
        let reports =
            statement.query_map([since], |row| Ok((row.get::<_, u32>(0)?, row.get(1)?)))?;
        let reports = reports.collect::<Result<Vec<_>, _>>()?;
        let rows = reports.iter().map(|report| u64::from(report.0)).sum();
        let last = reports.into_iter().last();
        Ok(last.map(|(_, last)| Self { rows, last }))
    }
}

/// The damage that this process has detected, or has read from the reports of others.
#[derive(Default)]
pub(super) struct DamageWatch {
    /// The latest damage, and when this process detected it.
    recent: Mutex<Option<(Damage, Instant)>>,
    /// The last row that maintenance has checked.
    last_checked: Mutex<Option<TaskId>>,
    /// The tasks whose lost data is counted. Reading it again is no further damage.
    lost: Mutex<BTreeSet<TaskId>>,
    /// The number of times that this process has repaired the store.
    repairs: Number,
}

impl DamageWatch {
    /// Returns the damage that was found within the last hour.
    pub(super) fn recent(&self) -> Option<Damage> {
        let recent = lock(&self.recent);
        let (damage, since) = recent.as_ref()?;
        (since.elapsed() < REPORT_TIME).then(|| damage.clone())
    }

    pub(super) fn repairs(&self) -> usize {
        self.repairs.get()
    }

    /// Counts a repair, and records the damage that it has found.
    pub(super) fn record_repair(&self, damage: Damage) {
        self.repairs.add(1);
        if damage.rows > 0 {
            self.record(damage);
        }
    }

    /// Records that the payload or the output of a task could not be read, once for each task.
    pub(super) fn record_lost_data(&self, id: TaskId, description: &str) {
        if lock(&self.lost).insert(id) {
            self.record(Damage {
                rows: 1,
                last: description.to_owned(),
            });
        }
    }

    fn record(&self, damage: Damage) {
        let before = self.recent().map_or(0, |recent| recent.rows);
        let rows = before + damage.rows;
        *lock(&self.recent) = Some((Damage { rows, ..damage }, Instant::now()));
    }

    /// Reads the reports of other processes.
    pub(super) fn load(&self, db: &Connection, now: Now) -> Result<(), Fault> {
        if let Some(damage) = Damage::load(db, now)?
            && self.recent().is_none_or(|known| known.rows < damage.rows)
        {
            *lock(&self.recent) = Some((damage, Instant::now()));
        }
        Ok(())
    }

    /// Returns the last row that maintenance has checked, unless it is to start again.
    pub(super) fn last_checked(&self) -> Option<TaskId> {
        *lock(&self.last_checked)
    }

    pub(super) fn set_last_checked(&self, id: Option<TaskId>) {
        *lock(&self.last_checked) = id;
    }
}
