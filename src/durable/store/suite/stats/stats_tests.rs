//! The statistics of runs.

use std::sync::Arc;
use std::time::Duration;

use crate::durable::RunTotals;
use crate::durable::queue::name::QueueName;
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::*;
use crate::durable::store::{
    MAX_STAT_TYPES, ReadStats, Resolution, RunType, StatReport, StatsPage, StatsStart,
};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Process {
    /// Reports one finished run of each of these types.
    async fn record(&self, reporter: u64, number: u64, names: &[&str]) {
        let runs = names.iter().map(|name| (job(name), runs(1))).collect();
        self.record_all(reporter, number, runs).await;
    }

    async fn record_all(&self, reporter: u64, number: u64, runs: Vec<(RunType, RunTotals)>) {
        let report = StatReport {
            reporter,
            number,
            runs,
        };
        self.0.0.record_stats(Arc::new(report)).await.unwrap();
    }

    async fn stats(&self, request: ReadStats) -> StatsPage {
        self.0.0.stats(request).await.unwrap()
    }

    /// Returns all statistics as the bucket, counted from the current one, the name and the number of runs.
    async fn all(&self, resolution: Resolution) -> Vec<(u64, String, u64)> {
        let page = self.stats(read(resolution, StatsStart::First)).await;
        assert_eq!(page.next, None);
        let now = resolution.bucket(page.now);
        let rows = page.rows.into_iter();
        rows.map(|(bucket, it, runs)| (now - bucket, it.name().to_owned(), runs.done))
            .collect()
    }
}

fn read(resolution: Resolution, start: StatsStart) -> ReadStats {
    ReadStats {
        resolution,
        start,
        until: None,
        name: None,
    }
}

fn job(name: &str) -> RunType {
    RunType::new(&name.into(), &QueueName::DEFAULT)
}

/// Returns the counts of some runs, with different numbers in all fields.
fn runs(n: u64) -> RunTotals {
    RunTotals::of(
        [5 * n, n, 2 * n, 3 * n, 4 * n],
        Duration::from_micros(7 * n),
    )
}

fn row(bucket: u64, name: &str, runs: u64) -> (u64, String, u64) {
    (bucket, name.to_owned(), runs)
}

pub async fn reports_are_added_up(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    for resolution in Resolution::ALL {
        assert_eq!(process.all(resolution).await, []);
    }
    process.record(1, 1, &["a", "b"]).await;
    other.record(2, 1, &["b", "c"]).await;
    process.record(1, 2, &["b"]).await;
    process.record_all(1, 3, Vec::new()).await;
    for resolution in Resolution::ALL {
        let page = other.stats(read(resolution, StatsStart::First)).await;
        let now = resolution.bucket(page.now);
        let expected = [("a", 1), ("b", 3), ("c", 1)];
        let expected = expected.map(|(name, n)| (now, job(name), runs(n)));
        assert_eq!(page.rows, expected);
        assert_eq!(Duration::from_millis(page.now), it.clock().wall());
    }
}

pub async fn a_repeated_report_counts_once(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    process.record(1, 1, &["a"]).await;
    process.record(1, 1, &["a"]).await;
    process.record(2, 1, &["a"]).await;
    it.clock().advance(MINUTE);
    // The answer may be lost for long, and another report with this number is a repetition, too.
    other.record(1, 1, &["a", "b"]).await;
    process.record(1, 7, &["a"]).await;
    for number in [7, 6, 2] {
        process.record(1, number, &["a"]).await;
    }
    let expected = [row(1, "a", 2), row(0, "a", 1)];
    assert_eq!(process.all(Resolution::Minute).await, expected);
}

pub async fn the_clock_of_the_store_decides_the_minute(it: &dyn Harness) {
    let process = Process::of(it);
    let hour = Duration::from_secs(3600);
    let full = it.clock().wall().as_secs() / 3600 * 3600;
    it.clock()
        .set_wall(Duration::from_secs(full) + hour - MINUTE);
    let millisecond = Duration::from_millis(1);
    for (number, time) in (1..).zip([MINUTE - millisecond, millisecond, MINUTE]) {
        it.clock().advance(time);
        process.record(1, number, &["a"]).await;
    }
    let minutes = [row(2, "a", 1), row(1, "a", 1), row(0, "a", 1)];
    assert_eq!(process.all(Resolution::Minute).await, minutes);
    let hours = [row(1, "a", 1), row(0, "a", 2)];
    assert_eq!(process.all(Resolution::Hour).await, hours);
    let page = process
        .stats(read(Resolution::Minute, StatsStart::Last(MINUTE)))
        .await;
    assert_eq!(page.rows.len(), 1);
    let last = StatsStart::Last(MINUTE + millisecond);
    assert_eq!(
        process
            .stats(read(Resolution::Minute, last))
            .await
            .rows
            .len(),
        2
    );
    let at = StatsStart::At(it.clock().wall() - MINUTE);
    let request = ReadStats {
        until: Some(it.clock().wall()),
        ..read(Resolution::Minute, at)
    };
    assert_eq!(process.stats(request).await.rows.len(), 1);
}

pub async fn minutes_are_kept_for_a_day_and_hours_for_a_month(it: &dyn Harness) {
    let process = Process::of(it);
    process.record(1, 1, &["a"]).await;
    it.clock().advance(DAY - MINUTE);
    assert_eq!(process.all(Resolution::Minute).await, [row(1439, "a", 1)]);
    it.clock().advance(MINUTE);
    assert_eq!(process.all(Resolution::Minute).await, []);
    assert_eq!(process.all(Resolution::Hour).await, [row(24, "a", 1)]);
    it.clock().advance(29 * DAY - 60 * MINUTE);
    assert_eq!(process.all(Resolution::Hour).await, [row(719, "a", 1)]);
    it.clock().advance(60 * MINUTE);
    assert_eq!(process.all(Resolution::Hour).await, []);
}

/// Maintains the store until nothing changes.
async fn maintain_all(process: &Process) {
    for _ in 0..30 {
        process.maintain(100).await;
    }
}

pub async fn maintenance_removes_old_statistics(it: &dyn Harness) {
    let process = Process::of(it);
    let full = it.clock().wall().as_secs().next_multiple_of(3600);
    it.clock().set_wall(Duration::from_secs(full));
    for number in 1..=30 {
        process.record(number, 1, &["a", "b"]).await;
        it.clock().advance(MINUTE);
    }
    let before = process.all(Resolution::Minute).await;
    assert_eq!(before.len(), 60);
    maintain_all(&process).await;
    assert_eq!(process.all(Resolution::Minute).await, before);
    assert_eq!(it.statistics(), 30 + it.rows_of_buckets(31, 60 + 2));
    it.age(DAY);
    maintain_all(&process).await;
    assert_eq!(it.statistics(), it.rows_of_buckets(1, 2));
    it.age(30 * DAY);
    maintain_all(&process).await;
    assert_eq!(it.statistics(), 0);
}

pub async fn a_clock_that_ran_ahead_leaves_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let right = it.clock().wall();
    it.clock().set_wall(right + 90 * DAY);
    process.record(1, 1, &["a"]).await;
    it.clock().set_wall(right);
    assert_eq!(process.all(Resolution::Minute).await, []);
    process.record(2, 1, &["a"]).await;
    maintain_all(&process).await;
    assert_eq!(it.statistics(), 1 + it.rows_of_buckets(2, 2));
    assert_eq!(process.all(Resolution::Hour).await, [row(0, "a", 1)]);
}

pub async fn queues_and_names_are_told_apart(it: &dyn Harness) {
    let process = Process::of(it);
    let longest = "q".repeat(64);
    let mut types: Vec<_> = [
        STRANGE_NAMES[0],
        STRANGE_NAMES[1],
        "a",
        "qa",
        &"n".repeat(255),
    ]
    .iter()
    .flat_map(|name| {
        let queues = ["", "q", &longest];
        queues.map(|queue| {
            let queue = QueueName::from(Some(queue.to_owned()).filter(|it| !it.is_empty()));
            RunType::new(&(*name).into(), &queue)
        })
    })
    .collect();
    types.push(RunType::others());
    types.sort_unstable();
    let reported: Vec<_> = (1..)
        .zip(&types)
        .map(|(n, it)| (it.clone(), runs(n)))
        .collect();
    process.record_all(1, 1, reported.clone()).await;
    process.record_all(1, 2, reported).await;
    let page = process
        .stats(read(Resolution::Hour, StatsStart::First))
        .await;
    let found: Vec<_> = page.rows.into_iter().map(|row| (row.1, row.2)).collect();
    let expected: Vec<_> = (1..).zip(types).map(|(n, it)| (it, runs(2 * n))).collect();
    assert_eq!(found, expected);
}

pub async fn a_minute_has_a_limited_number_of_types(it: &dyn Harness) {
    let process = Process::of(it);
    for round in 0..3 {
        let named = (0..200).map(|nth| (job(&format!("{round}-{nth:03}")), runs(1)));
        process.record_all(1, 1 + round, named.collect()).await;
    }
    process.record(1, 9, &["0-000", "2-199"]).await;
    for resolution in Resolution::ALL {
        let rows = process.all(resolution).await;
        assert_eq!(rows.len(), 1 + MAX_STAT_TYPES);
        assert_eq!(rows[..2], [row(0, "", 600 - 256 + 1), row(0, "0-000", 2)]);
        assert_eq!(rows[256], row(0, "1-055", 1));
    }
}

pub async fn pages_follow_each_other(it: &dyn Harness) {
    let process = Process::of(it);
    let named: Vec<_> = (0..MAX_STAT_TYPES)
        .map(|nth| (job(&format!("a-long-name-of-a-type-{nth:03}")), runs(1)))
        .collect();
    for number in 1..=40 {
        process.record_all(1, number, named.clone()).await;
        it.clock().advance(MINUTE);
    }
    let (mut request, mut rows, mut pages) =
        (read(Resolution::Minute, StatsStart::First), Vec::new(), 0);
    loop {
        let page = process.stats(request.clone()).await;
        assert!(page.rows.len() <= 10_000, "{}", page.rows.len());
        pages += 1;
        rows.extend(page.rows);
        let Some(next) = page.next else { break };
        request.start = StatsStart::At(Resolution::Minute.start_of(next));
    }
    assert!(pages > 1);
    let buckets: Vec<_> = rows.chunk_by(|one, other| one.0 == other.0).collect();
    assert_eq!(buckets.len(), 40);
    assert!(buckets.is_sorted_by_key(|rows| rows[0].0));
    for rows in buckets {
        let types: Vec<_> = rows.iter().map(|row| (row.1.clone(), row.2)).collect();
        assert_eq!(types, named);
    }
    // A filter does not make the pages longer.
    request.name = Some("no-such-type".into());
    request.start = StatsStart::First;
    let page = process.stats(request).await;
    assert!(page.rows.is_empty() && page.next.is_some());
}

pub async fn a_filter_selects_a_type(it: &dyn Harness) {
    let process = Process::of(it);
    process.record(1, 1, &["a", "aa", "b"]).await;
    let request = ReadStats {
        name: Some("a".into()),
        ..read(Resolution::Hour, StatsStart::First)
    };
    let page = process.stats(request).await;
    let found: Vec<_> = page.rows.iter().map(|row| row.1.name()).collect();
    assert_eq!(found, ["a"]);
}

pub async fn large_numbers_are_kept(it: &dyn Harness) {
    let process = Process::of(it);
    let (large, long) = (1 << 40, Duration::from_secs(1 << 30));
    let counts = RunTotals::of(
        [large + 1, large + 2, large + 3, large + 4, large + 5],
        long,
    );
    process
        .record_all(u64::MAX, 1 << 40, vec![(job("a"), counts)])
        .await;
    process.record_all(0, 1, vec![(job("a"), counts)]).await;
    let mut twice = counts;
    twice.add(counts);
    let page = process
        .stats(read(Resolution::Minute, StatsStart::First))
        .await;
    assert_eq!(page.rows[0].2, twice);
}
