//! The statistics of runs, in the tables `stat` and `stat_report`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::Params;
use super::error::Fault;
use super::text;
use super::transaction::Transaction;
use super::view::View;
use crate::durable::RunTotals;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{
    MAX_STAT_ROWS, REPORTER_RETENTION, ReadStats, Resolution, RunType, StatBucket, StatReport,
    StatsPage,
};

const REPORT: &str = "INSERT INTO throng.stat_report (reporter, number, at) VALUES ($1, $2, $3)
    ON CONFLICT (reporter) DO UPDATE SET number = excluded.number, at = excluded.at
        WHERE stat_report.number < excluded.number";

const BUCKET: &str = "SELECT bucket, name, queue, started, done, retried, died, cancelled, micros
    FROM throng.stat WHERE hours = $1 AND bucket = $2";

const SAVE: &str = "INSERT INTO throng.stat
        (hours, bucket, name, queue, started, done, retried, died, cancelled, micros)
    SELECT $1, $2, own.* FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[]) AS own
    ON CONFLICT (hours, bucket, name, queue) DO UPDATE SET
        started = excluded.started, done = excluded.done, retried = excluded.retried,
        died = excluded.died, cancelled = excluded.cancelled, micros = excluded.micros";

/// Selects the rows of the first buckets that have `$4` rows or more together, or of all.
const PAGE: &str = "SELECT * FROM (
        SELECT bucket, name, queue, started, done, retried, died, cancelled, micros
        FROM throng.stat WHERE hours = $1 AND bucket >= $2 AND bucket < $3
        ORDER BY bucket FETCH FIRST ($4) ROWS WITH TIES
    ) AS page ORDER BY bucket, name, queue";

/// Selects the first bucket from `$2` on, and before `$3`.
const FIRST_BUCKET: &str = "SELECT min(bucket) FROM throng.stat
    WHERE hours = $1 AND bucket >= $2 AND bucket < $3";

const EXPIRE_REPORTS: &str = "DELETE FROM throng.stat_report WHERE at < $1 OR at > $2";

const REMOVE_BUCKET: &str = "DELETE FROM throng.stat WHERE hours = $1 AND bucket = $2";

/// The maximum number of buckets that one pass of maintenance removes.
const MAX_REMOVED_BUCKETS: usize = 8;

/// Adds the runs of a process, unless the report was recorded before.
pub(super) async fn record(tx: &mut Transaction, report: &StatReport) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let (reporter, number) = (report.reporter as i64, report.number as i64);
    let is_new = tx
        .execute(REPORT, &[&reporter, &number, &tx.now.wall])
        .await?;
    if is_new == 0 {
        return Ok(());
    }
    for resolution in Resolution::ALL {
        add(tx, resolution, report).await?;
    }
    Ok(())
}

/// Adds the runs of a report to the current bucket.
async fn add(tx: &Transaction, resolution: Resolution, report: &StatReport) -> Result<(), Fault> {
    let number = resolution.bucket(tx.now.wall as u64) as i64;
    let (mut bucket, mut counted) = (StatBucket::default(), BTreeSet::new());
    for row in tx.rows(BUCKET, &[&hours(resolution), &number]).await? {
        let (_, run_type, runs) = read_row(&row)?;
        bucket.add(run_type, runs);
    }
    for (run_type, runs) in &report.runs {
        counted.insert(bucket.add(run_type.clone(), *runs));
    }
    let rows = counted.iter().map(|it| (it, bucket.get(it)));
    save(tx, hours(resolution), number, &rows.collect::<Vec<_>>()).await
}

/// Stores rows of a bucket.
async fn save(
    tx: &Transaction,
    hours: bool,
    bucket: i64,
    rows: &[(&RunType, RunTotals)],
) -> Result<(), Fault> {
    let types = rows.iter().map(|(run_type, _)| run_type);
    let names: Vec<_> = types.clone().map(|it| text::stored(it.name())).collect();
    let queues: Vec<_> = types.map(|it| text::stored(it.queue().as_str())).collect();
    let column = |nth: usize| -> Vec<_> {
        let numbers = rows.iter().map(|(_, runs)| runs.numbers()[nth]);
        numbers.map(stored).collect()
    };
    let counts: [_; 5] = std::array::from_fn(column);
    let micros = rows.iter().map(|(_, runs)| runs.run_time.as_micros());
    let micros: Vec<_> = micros.map(|micros| stored(micros as u64)).collect();
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&hours, &bucket, &names, &queues];
    params.extend(counts.iter().map(|counts| counts as &(dyn ToSql + Sync)));
    params.push(&micros);
    tx.execute(SAVE, &params).await?;
    Ok(())
}

/// Returns a page of the statistics.
pub(super) async fn read(view: &View, request: &ReadStats) -> Result<StatsPage, Fault> {
    let now = view.now.wall as u64;
    let buckets = request.buckets(now);
    let (hours, end) = (hours(request.resolution), buckets.end as i64);
    let params: Params<'_> = &[
        &hours,
        &(buckets.start as i64),
        &end,
        &(MAX_STAT_ROWS as i64),
    ];
    let rows = view.rows(PAGE, params).await?;
    let is_full = rows.len() >= MAX_STAT_ROWS;
    let rows = rows.iter().map(read_row).collect::<Result<Vec<_>, _>>()?;
    let mut page = StatsPage {
        now,
        ..StatsPage::default()
    };
    if let Some((last, ..)) = rows.last().filter(|_| is_full) {
        let after = *last as i64 + 1;
        let next: Option<Option<i64>> = view.value(FIRST_BUCKET, &[&hours, &after, &end]).await?;
        page.next = next.flatten().map(|bucket| bucket as u64);
    }
    let selected = rows.into_iter().filter(|row| request.selects(&row.1));
    page.rows = selected.collect();
    Ok(page)
}

fn read_row(row: &Row) -> Result<(u64, RunType, RunTotals), Fault> {
    let name: Arc<str> = text::loaded(row.try_get("name")?).into();
    let queue = text::loaded(row.try_get("queue")?);
    let queue = QueueName::from(Some(queue).filter(|queue| !queue.is_empty()));
    let mut numbers = [0; 5];
    let columns = ["started", "done", "retried", "died", "cancelled"];
    for (column, value) in columns.into_iter().zip(&mut numbers) {
        *value = number(row, column)?;
    }
    let run_time = Duration::from_micros(number(row, "micros")?);
    let runs = RunTotals::of(numbers, run_time);
    Ok((number(row, "bucket")?, RunType::new(&name, &queue), runs))
}

fn number(row: &Row, column: &str) -> Result<u64, Fault> {
    let number: i64 = row.try_get(column)?;
    let negative = |_| Fault::Corrupt(format!("the column {column} of a bucket is {number}"));
    u64::try_from(number).map_err(negative)
}

/// Returns a number in its stored form.
fn stored(number: u64) -> i64 {
    number.min(1 << 60) as i64
}

/// Returns the column `hours`.
fn hours(resolution: Resolution) -> bool {
    match resolution {
        Resolution::Minute => false,
        Resolution::Hour => true,
    }
}

impl Transaction {
    /// Removes some of the buckets that are no longer kept or that are in the future. Returns `true` if there may be more.
    pub(super) async fn expire_stats(&self) -> Result<bool, Fault> {
        let (now, retention) = (self.now.wall, millis(REPORTER_RETENTION) as i64);
        self.execute(EXPIRE_REPORTS, &[&(now - retention), &(now + retention)])
            .await?;
        for _ in 0..MAX_REMOVED_BUCKETS {
            let Some((hours, bucket)) = self.expired_bucket().await? else {
                return Ok(false);
            };
            self.execute(REMOVE_BUCKET, &[&hours, &bucket]).await?;
        }
        Ok(true)
    }

    async fn expired_bucket(&self) -> Result<Option<(bool, i64)>, Fault> {
        for resolution in Resolution::ALL {
            let kept = resolution.kept_at(self.now.wall as u64);
            let (start, end, hours) = (kept.start as i64, kept.end as i64, hours(resolution));
            for ends in [[i64::MIN, start], [end, i64::MAX]] {
                let params: Params<'_> = &[&hours, &ends[0], &ends[1]];
                let found: Option<Option<i64>> = self.value(FIRST_BUCKET, params).await?;
                if let Some(bucket) = found.flatten() {
                    return Ok(Some((hours, bucket)));
                }
            }
        }
        Ok(None)
    }
}
