//! The statistics of runs, in the tables `throng_stat` and `throng_stat_report`.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::Fault;
use super::reader::ReadConnection;
use super::time::Now;
use super::transaction::Transaction;
use crate::durable::RunTotals;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{
    MAX_STAT_ROWS, REPORTER_RETENTION, ReadStats, Resolution, RunType, StatBucket, StatReport,
    StatsPage,
};

const BUCKET: &str = "
    SELECT bucket, name, queue, started, done, retried, died, cancelled, micros FROM throng_stat
    WHERE hours = ?1 AND bucket = ?2 ORDER BY bucket, name, queue";

pub(super) const BUCKETS: &str = "
    SELECT bucket, name, queue, started, done, retried, died, cancelled, micros FROM throng_stat
    WHERE hours = ?1 AND bucket >= ?2 AND bucket < ?3 ORDER BY bucket, name, queue";

/// The maximum number of buckets that one pass of maintenance removes.
const MAX_REMOVED_BUCKETS: usize = 8;

/// Adds the runs of a process, unless the report was recorded before.
pub(super) fn record(tx: &mut Transaction<'_>, report: &StatReport) -> Result<(), Fault> {
    let (reporter, number) = (report.reporter as i64, report.number as i64);
    let is_new = tx.execute(
        "INSERT INTO throng_stat_report (reporter, number, at) VALUES (?1, ?2, ?3)
         ON CONFLICT (reporter) DO UPDATE SET number = excluded.number, at = excluded.at
             WHERE number < excluded.number",
        [reporter, number, tx.now.wall],
    )?;
    if is_new == 0 {
        return Ok(());
    }
    for resolution in Resolution::ALL {
        add(tx, resolution, report)?;
    }
    Ok(())
}

/// Adds the runs of a report to the current bucket.
fn add(tx: &Transaction<'_>, resolution: Resolution, report: &StatReport) -> Result<(), Fault> {
    let number = resolution.bucket(tx.now.wall as u64) as i64;
    let mut bucket = StatBucket::default();
    let mut statement = tx.db.prepare_cached(BUCKET)?;
    let mut rows = statement.query([hours(resolution), number])?;
    while let Some(row) = rows.next()? {
        let (_, run_type, runs) = read_row(row)?;
        bucket.add(run_type, runs);
    }
    for (run_type, runs) in &report.runs {
        let counted = bucket.add(run_type.clone(), *runs);
        let runs = bucket.get(&counted);
        let [started, done, retried, died, cancelled] = runs.numbers().map(stored);
        tx.execute(
            "INSERT OR REPLACE INTO throng_stat
                 (hours, bucket, name, queue, started, done, retried, died, cancelled, micros)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                hours(resolution),
                number,
                counted.name(),
                counted.queue().as_str(),
                started,
                done,
                retried,
                died,
                cancelled,
                stored(runs.run_time.as_micros() as u64)
            ],
        )?;
    }
    Ok(())
}

/// Returns a page of statistics.
pub(super) fn read(reader: &ReadConnection, request: &ReadStats) -> Result<StatsPage, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| read_from(db, now, request))
}

pub(super) fn read_from(
    db: &Connection,
    now: Now,
    request: &ReadStats,
) -> Result<StatsPage, Fault> {
    let mut page = StatsPage {
        now: now.wall as u64,
        ..StatsPage::default()
    };
    let buckets = request.buckets(page.now);
    let mut statement = db.prepare_cached(BUCKETS)?;
    let mut rows = statement.query([
        hours(request.resolution),
        buckets.start as i64,
        buckets.end as i64,
    ])?;
    let (mut examined, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let (bucket, run_type, runs) = read_row(row)?;
        if examined >= MAX_STAT_ROWS && last != Some(bucket) {
            page.next = Some(bucket);
            break;
        }
        (examined, last) = (examined + 1, Some(bucket));
        if request.selects(&run_type) {
            page.rows.push((bucket, run_type, runs));
        }
    }
    Ok(page)
}

fn read_row(row: &Row<'_>) -> Result<(u64, RunType, RunTotals), rusqlite::Error> {
    let (name, queue): (Arc<str>, String) = (row.get::<_, String>(1)?.into(), row.get(2)?);
    let queue = QueueName::from(Some(queue).filter(|queue| !queue.is_empty()));
    let mut numbers = [0; 5];
    for (column, value) in (3..).zip(&mut numbers) {
        *value = number(row, column)?;
    }
    let run_time = Duration::from_micros(number(row, 8)?);
    let runs = RunTotals::of(numbers, run_time);
    Ok((number(row, 0)?, RunType::new(&name, &queue), runs))
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// Returns a number in its stored form.
fn stored(number: u64) -> i64 {
    number.min(1 << 60) as i64
}

/// Returns the column `hours`.
fn hours(resolution: Resolution) -> i64 {
    match resolution {
        Resolution::Minute => 0,
        Resolution::Hour => 1,
    }
}

impl Transaction<'_> {
    /// Removes some of the buckets that are no longer kept or that are in the future. Returns `true` if there may be more.
    pub(super) fn expire_stats(&self) -> Result<bool, rusqlite::Error> {
        let retention = millis(REPORTER_RETENTION) as i64;
        self.execute(
            "DELETE FROM throng_stat_report WHERE at < ?1 OR at > ?2",
            [self.now.wall - retention, self.now.wall + retention],
        )?;
        for _ in 0..MAX_REMOVED_BUCKETS {
            let Some((hours, bucket)) = self.expired_bucket()? else {
                return Ok(false);
            };
            let sql = "DELETE FROM throng_stat WHERE hours = ?1 AND bucket = ?2";
            self.execute(sql, [hours, bucket])?;
        }
        Ok(true)
    }

    fn expired_bucket(&self) -> Result<Option<(i64, i64)>, rusqlite::Error> {
        for resolution in Resolution::ALL {
            let kept = resolution.kept_at(self.now.wall as u64);
            for (order, sql) in [
                (
                    kept.start as i64,
                    "SELECT min(bucket) FROM throng_stat WHERE hours = ?1 AND bucket < ?2",
                ),
                (
                    kept.end as i64,
                    "SELECT max(bucket) FROM throng_stat WHERE hours = ?1 AND bucket >= ?2",
                ),
            ] {
                let mut statement = self.db.prepare_cached(sql)?;
                let params = [hours(resolution), order];
                let found = statement.query_row(params, |row| row.get::<_, Option<i64>>(0));
                if let Some(bucket) = found.optional()?.flatten() {
                    return Ok(Some((hours(resolution), bucket)));
                }
            }
        }
        Ok(None)
    }
}
