//! The numbers of the charts on the overview.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::durable::{RunTotals, StatsFilter, TypeStats};

use crate::sampler::Sample;

/// The period that the charts show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum ChartRange {
    /// The last 15 minutes, from the samples.
    #[default]
    #[serde(rename = "15m")]
    Minutes,
    /// The last hour, from the statistics.
    #[serde(rename = "1h")]
    Hour,
    /// The last 24 hours, from the statistics.
    #[serde(rename = "24h")]
    Day,
}

/// A chart: some lines over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Chart {
    /// The id of the element on the page.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: ChartUnit,
    pub(crate) range: ChartRange,
    /// The times of the values, in seconds since 1970.
    pub(crate) times: Vec<u64>,
    pub(crate) lines: Vec<ChartLine>,
}

/// The unit of the values of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ChartUnit {
    PerSecond,
    PerMinute,
    PerHour,
    Seconds,
    Milliseconds,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ChartLine {
    pub(crate) name: &'static str,
    /// The class that gives the line its colour.
    pub(crate) class: &'static str,
    /// A value for each time, or `None` if it is not known.
    pub(crate) values: Vec<Option<f64>>,
}

/// The time after which the statistics of a minute are complete: they lag by about ten seconds.
const STATISTICS_LAG: Duration = Duration::from_secs(15);
/// The maximum number of values that a page contains for a line.
const MAX_VALUES: usize = 180;

impl ChartRange {
    pub(crate) const ALL: [Self; 3] = [Self::Minutes, Self::Hour, Self::Day];

    /// Returns the value of the query parameter.
    pub(crate) fn param(self) -> &'static str {
        match self {
            Self::Minutes => "15m",
            Self::Hour => "1h",
            Self::Day => "24h",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Minutes => "15 minutes",
            Self::Hour => "1 hour",
            Self::Day => "24 hours",
        }
    }

    pub(crate) fn length(self) -> Duration {
        let minutes = match self {
            Self::Minutes => 15,
            Self::Hour => 60,
            Self::Day => 24 * 60,
        };
        Duration::from_secs(60 * minutes)
    }

    /// Returns the time to which the last values belong.
    pub(crate) fn last(self) -> &'static str {
        match self {
            Self::Minutes => "now",
            Self::Hour => "last full minute",
            Self::Day => "last full hour",
        }
    }

    /// Returns the time between two values of the statistics.
    fn step(self) -> Duration {
        match self {
            Self::Minutes | Self::Hour => Duration::from_secs(60),
            Self::Day => Duration::from_secs(3600),
        }
    }

    /// Returns the statistics from which the charts are made, or `None` if they are made from samples.
    pub(crate) fn statistics(self) -> Option<StatsFilter> {
        match self {
            Self::Minutes => None,
            Self::Hour => Some(StatsFilter::by_minute().last(self.length())),
            Self::Day => Some(StatsFilter::by_hour().last(self.length())),
        }
    }
}

impl ChartUnit {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::PerSecond => "per second",
            Self::PerMinute => "per minute",
            Self::PerHour => "per hour",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        }
    }

    /// Returns the length of the unit in milliseconds, if it is a unit of time.
    pub(crate) fn millis(self) -> Option<u32> {
        match self {
            Self::PerSecond | Self::PerMinute | Self::PerHour => None,
            Self::Seconds => Some(1000),
            Self::Milliseconds => Some(1),
        }
    }
}

/// Makes the charts of the last 15 minutes.
pub(crate) fn charts_of_samples(samples: &[Sample]) -> [Chart; 2] {
    let samples = thin_out(recent(samples));
    let pairs = || samples.windows(2).map(|pair| (&pair[0], &pair[1]));
    let rates = |total: fn(&Sample) -> u64| pairs().map(move |(old, new)| rate(old, new, total));
    let times: Vec<u64> = pairs().map(|(_, new)| new.at / 1000).collect();
    let oldest = |(_, new): (_, &Sample)| rounded(new.oldest_waiting?.as_secs_f64());
    let runs = [
        done(rates(|it| it.done).collect()),
        failed(rates(|it| it.failed).collect()),
    ];
    let waits = ChartLine {
        name: "oldest",
        class: "accent",
        values: pairs().map(oldest).collect(),
    };
    [
        chart(
            "chart-runs",
            "Runs",
            ChartUnit::PerSecond,
            ChartRange::Minutes,
            &times,
            runs.into(),
        ),
        chart(
            "chart-times",
            "Longest wait",
            ChartUnit::Seconds,
            ChartRange::Minutes,
            &times,
            vec![waits],
        ),
    ]
}

/// Makes the charts of a longer period. Minutes and hours without rows have no runs. The current one is left out: its numbers are not complete,
/// so the lines would seem to fall. `now` is by the clock of the store.
pub(crate) fn charts_of_statistics(
    range: ChartRange,
    now: SystemTime,
    rows: &[TypeStats],
) -> [Chart; 2] {
    let step = range.step().as_secs();
    let now = seconds(now);
    let first = (now / step).saturating_sub(range.length().as_secs() / step);
    let end = now.saturating_sub(STATISTICS_LAG.as_secs()) / step;
    let totals = totals_of(rows, first..end, step);
    let times: Vec<u64> = (first..end).map(|it| it * step).collect();
    let count =
        |number: fn(&RunTotals) -> u64| totals.iter().map(move |it| Some(number(it) as f64));
    let runs = [
        done(count(|it| it.done).collect()),
        failed(count(|it| it.retried + it.died).collect()),
    ];
    let mean = ChartLine {
        name: "mean",
        class: "accent",
        values: totals.iter().map(mean_run_time).collect(),
    };
    let unit = if range == ChartRange::Day {
        ChartUnit::PerHour
    } else {
        ChartUnit::PerMinute
    };
    [
        chart("history-runs", "Runs", unit, range, &times, runs.into()),
        chart(
            "history-times",
            "Run time",
            ChartUnit::Milliseconds,
            range,
            &times,
            vec![mean],
        ),
    ]
}

/// Returns the runs of all types in each of these steps.
fn totals_of(rows: &[TypeStats], steps: Range<u64>, step: u64) -> Vec<RunTotals> {
    let first = steps.start;
    let mut totals: Vec<_> = steps.map(|_| RunTotals::default()).collect();
    for row in rows {
        let index = (seconds(row.start) / step).checked_sub(first);
        let index = index.and_then(|it| usize::try_from(it).ok());
        if let Some(total) = index.and_then(|it| totals.get_mut(it)) {
            total.done += row.runs.done;
            total.retried += row.runs.retried;
            total.died += row.runs.died;
            total.cancelled += row.runs.cancelled;
            total.run_time += row.runs.run_time;
        }
    }
    totals
}

fn chart(
    id: &'static str,
    title: &'static str,
    unit: ChartUnit,
    range: ChartRange,
    times: &[u64],
    lines: Vec<ChartLine>,
) -> Chart {
    let times = times.to_vec();
    Chart {
        id,
        title,
        unit,
        range,
        times,
        lines,
    }
}

fn done(values: Vec<Option<f64>>) -> ChartLine {
    let (name, class) = ("done", "ok");
    ChartLine {
        name,
        class,
        values,
    }
}

fn failed(values: Vec<Option<f64>>) -> ChartLine {
    let (name, class) = ("failed", "bad");
    ChartLine {
        name,
        class,
        values,
    }
}

/// Returns the samples of the last 15 minutes.
fn recent(samples: &[Sample]) -> &[Sample] {
    let last = samples.last().map_or(0, |it| it.at);
    let length = ChartRange::Minutes.length().as_millis() as u64;
    let start = samples.iter().position(|it| it.at + length >= last);
    &samples[start.unwrap_or_default()..]
}

/// Keeps every second, third, .. sample if there are too many. The last one stays. Rates are computed from totals, so they lose nothing.
fn thin_out(samples: &[Sample]) -> Vec<Sample> {
    let step = samples.len().div_ceil(MAX_VALUES).max(1);
    let mut thin: Vec<Sample> = samples.iter().rev().step_by(step).copied().collect();
    thin.reverse();
    thin
}

/// Returns a rate per second. It is not known if the total has fallen, because a partition of the store did not answer, or if the clock
/// of the store has been set back.
fn rate(old: &Sample, new: &Sample, total: impl Fn(&Sample) -> u64) -> Option<f64> {
    let count = total(new).checked_sub(total(old))?;
    let millis = new.at.checked_sub(old.at).filter(|it| *it > 0)?;
    rounded(count as f64 * 1000.0 / millis as f64)
}

/// Returns the mean in milliseconds, or `None` if no run has ended.
fn mean_run_time(runs: &RunTotals) -> Option<f64> {
    let ended = runs.done + runs.retried + runs.died + runs.cancelled;
    let mean = runs.run_time.as_secs_f64() * 1000.0 / ended as f64;
    rounded(mean).filter(|_| ended > 0)
}

/// Rounds to a tenth, so that pages stay small.
fn rounded(value: f64) -> Option<f64> {
    Some((value * 10.0).round() / 10.0)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, done: u64) -> Sample {
        let at = 1_700_000_000_000 + second * 1000;
        let oldest_waiting = Some(Duration::from_millis(1250));
        Sample {
            at,
            done,
            failed: second,
            oldest_waiting,
        }
    }

    #[test]
    fn a_store_whose_clock_is_wrong_has_charts() {
        let charts = charts_of_statistics(ChartRange::Day, SystemTime::UNIX_EPOCH, &[]);
        assert!(charts[0].times.is_empty());
    }

    #[test]
    fn rates_are_the_differences_of_totals_over_time() {
        let samples = [sample(0, 100), sample(1, 150), sample(16, 180)];
        let [runs, waits] = charts_of_samples(&samples);
        assert_eq!(runs.times, [1_700_000_001, 1_700_000_016]);
        assert_eq!(runs.lines[0].values, [Some(50.0), Some(2.0)]);
        assert_eq!(runs.lines[1].values, [Some(1.0), Some(1.0)]);
        assert_eq!(waits.lines[0].values, [Some(1.3), Some(1.3)]);
        let unknown = Sample {
            oldest_waiting: None,
            ..sample(1, 0)
        };
        let [_, waits] = charts_of_samples(&[sample(0, 0), unknown]);
        assert_eq!(waits.lines[0].values, [None]);
    }

    #[test]
    fn a_rate_is_not_known_if_a_total_falls_or_the_clock_stands() {
        let samples = [sample(0, 100), sample(1, 90), sample(1, 95), sample(2, 96)];
        let [runs, _] = charts_of_samples(&samples);
        assert_eq!(runs.lines[0].values, [None, None, Some(1.0)]);
    }

    #[test]
    fn fifteen_minutes_have_few_values_and_the_same_mean_rate() {
        let samples: Vec<Sample> = (0..2000).map(|second| sample(second, second * 7)).collect();
        let [runs, _] = charts_of_samples(&samples);
        assert!(runs.times.len() < MAX_VALUES, "{}", runs.times.len());
        assert_eq!(runs.times.last(), Some(&1_700_001_999));
        assert!(runs.times[0] > 1_700_001_999 - 900);
        assert!(runs.lines[0].values.iter().all(|it| *it == Some(7.0)));
    }

    #[test]
    fn charts_without_data_are_empty() {
        for samples in [&[][..], &[sample(0, 1)]] {
            let [runs, waits] = charts_of_samples(samples);
            assert!(runs.times.is_empty() && waits.lines[0].values.is_empty());
        }
    }

    #[test]
    fn statistics_have_a_value_for_each_minute_or_hour() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (range, count) in [(ChartRange::Hour, 60), (ChartRange::Day, 24)] {
            let [runs, times] = charts_of_statistics(range, now, &[]);
            assert_eq!(runs.times.len(), count);
            assert!(runs.lines[0].values.iter().all(|it| *it == Some(0.0)));
            assert!(times.lines[0].values.iter().all(Option::is_none));
            let end = runs.times[count - 1] + range.step().as_secs();
            assert!(end <= 1_700_000_000 && end + range.step().as_secs() > 1_700_000_000);
        }
    }

    #[test]
    fn a_minute_whose_statistics_are_not_complete_has_no_value() {
        let minute = 1_700_000_040;
        let last_at = |second: u64| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(minute + second);
            let [runs, _] = charts_of_statistics(ChartRange::Hour, now, &[]);
            runs.times.last().copied()
        };
        assert_eq!(last_at(14), Some(minute - 120));
        assert_eq!(last_at(15), Some(minute - 60));
        assert_eq!(last_at(59), Some(minute - 60));
    }
}
