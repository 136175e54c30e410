//! Records and reads the statistics of runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::each_partition::ask_each;
use super::inner::Inner;
use super::reply::Reader;
use super::scripts::Arguments;
use crate::durable::RunTotals;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{ReadStats, Resolution, RunType, StatReport, StatsPage, StatsStart};

/// Records a report. All reports of a process go to one partition, which knows the number of the last one.
pub(super) async fn record(inner: &Inner, report: &StatReport) -> Result<(), Failure> {
    let mut arguments = Arguments::default();
    arguments.push(report.reporter.to_be_bytes());
    arguments.push_number(report.number);
    arguments.push(row(report));
    let partition = report.reporter as usize % inner.partitions.count();
    let script = &inner.scripts.record_stats;
    inner.run(script, partition, arguments).await.map(drop)
}

/// Returns a page of statistics.
pub(super) async fn read(inner: Arc<Inner>, request: ReadStats) -> Result<StatsPage, Failure> {
    let request = Arc::new(request);
    let pages = ask_each(&inner, inner.partitions.all(), |inner, partition| {
        let request = Arc::clone(&request);
        async move { read_in(&inner, partition, &request).await }
    });
    let (pages, missing_partitions) = pages.await?;
    let pages = pages.into_iter().map(|(_, page)| page);
    Ok(StatsPage {
        missing_partitions,
        ..merged(pages)
    })
}

/// Returns a page of the statistics of a partition.
pub(super) async fn read_in(
    inner: &Inner,
    partition: usize,
    request: &ReadStats,
) -> Result<StatsPage, Failure> {
    let resolution = request.resolution;
    let (first, last) = match request.start {
        StatsStart::First => (None, None),
        StatsStart::At(time) => (Some(resolution.first_from(time)), None),
        StatsStart::Last(time) => (None, Some(millis(time))),
    };
    let until = request.until.map(|until| resolution.first_from(until));
    let mut arguments = Arguments::default();
    arguments.push(match resolution {
        Resolution::Minute => "m",
        Resolution::Hour => "h",
    });
    arguments.push_number(resolution.length());
    arguments.push_number(resolution.kept());
    for number in [first, last, until] {
        arguments.push(number.map_or(String::new(), |number| number.to_string()));
    }
    let answer = inner.run(&inner.scripts.read_stats, partition, arguments);
    page(answer.await?, request)
}

fn page(answer: Value, request: &ReadStats) -> Result<StatsPage, Failure> {
    let mut parts = Reader::new(answer)?;
    let (now, next) = (parts.number()?, parts.text()?);
    let mut page = StatsPage {
        now: now.try_into().unwrap_or_default(),
        next: next.parse().ok(),
        ..StatsPage::default()
    };
    let rows = parts.rest(|parts| Ok((parts.number()?, parts.bytes()?)))?;
    for (bucket, row) in rows {
        let mut types = runs_in(&row);
        types.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        types.retain(|(run_type, _)| request.selects(run_type));
        let bucket = bucket.try_into().unwrap_or_default();
        let types = types.into_iter();
        page.rows
            .extend(types.map(|(run_type, runs)| (bucket, run_type, runs)));
    }
    Ok(page)
}

/// Merges the pages of several partitions, up to the end of the page that ends first.
fn merged(pages: impl Iterator<Item = StatsPage>) -> StatsPage {
    let (mut merged, mut rows) = (StatsPage::default(), BTreeMap::new());
    for page in pages {
        merged.now = merged.now.max(page.now);
        merged.next = [merged.next, page.next].into_iter().flatten().min();
        for (bucket, run_type, runs) in page.rows {
            let counts: &mut RunTotals = rows.entry((bucket, run_type)).or_default();
            counts.add(runs);
        }
    }
    let rows = rows.into_iter();
    let rows = rows.map(|((bucket, run_type), runs)| (bucket, run_type, runs));
    let end = merged.next.unwrap_or(u64::MAX);
    merged.rows = rows.filter(|row| row.0 < end).collect();
    merged
}

// ===== Rows: see `lua/record_stats.lua` =====

/// The length in bytes of the numbers of a type.
const NUMBERS_LENGTH: usize = 5 * 6 + 7;

fn row(report: &StatReport) -> Vec<u8> {
    let mut row = Vec::new();
    for (run_type, runs) in &report.runs {
        let (queue, name) = (run_type.queue().as_str(), run_type.name());
        row.extend((1 + queue.len() as u16 + name.len() as u16).to_be_bytes());
        row.push(queue.len() as u8);
        row.extend(queue.as_bytes());
        row.extend(name.as_bytes());
        for number in runs.numbers() {
            row.extend(&number.min((1 << 48) - 1).to_be_bytes()[2..]);
        }
        let micros = runs.run_time.as_micros().min(1 << 53) as u64;
        row.extend(&micros.to_be_bytes()[1..]);
    }
    row
}

/// Reads the runs in a row. Ignores what cannot be read.
fn runs_in(mut row: &[u8]) -> Vec<(RunType, RunTotals)> {
    let mut all = Vec::new();
    while let Some((run_type, runs, rest)) = first_in(row) {
        all.push((run_type, runs));
        row = rest;
    }
    all
}

fn first_in(row: &[u8]) -> Option<(RunType, RunTotals, &[u8])> {
    let (length, rest) = row.split_first_chunk()?;
    let (names, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (numbers, rest) = rest.split_at_checked(NUMBERS_LENGTH)?;
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let (counts, micros) = numbers.split_at(5 * 6);
    let counts = std::array::from_fn(|nth| number(&counts[6 * nth..6 * nth + 6]));
    let runs = RunTotals::of(counts, Duration::from_micros(number(micros)));
    Some((run_type(names)?, runs, rest))
}

/// Reads the names of a queue and of a type. The first byte is the length of the name of the queue.
pub(super) fn run_type(names: &[u8]) -> Option<RunType> {
    let (&length, names) = names.split_first()?;
    let (queue, name) = names.split_at_checked(length.into())?;
    let queue = String::from_utf8_lossy(queue).into_owned();
    let queue = QueueName::from(Some(queue).filter(|queue| !queue.is_empty()));
    Some(RunType::new(&String::from_utf8_lossy(name).into(), &queue))
}
