//! [`Screen`]: what is seen on standard error while an index is built; and [`Report`]: what then.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use throng::compute::LaneMetrics;

#[cfg(any(feature = "redis", feature = "sqlite"))]
use super::durable::build::Progress;
use super::indexer::pipeline::{Counts, Event, Outcome};
use super::indexer::source::Skip;
use super::usage;

/// How often the bar changes.
const INTERVAL: Duration = Duration::from_millis(100);

/// A bar that shows how far it has come, if standard error is a terminal, and lines above it.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    bar: ProgressBar,
    counts: Counts,
    started: Instant,
    drawn: Instant,
}

impl Screen {
    /// A screen on which nothing has been done.
    pub(crate) fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {elapsed_precise}  {prefix}{msg}");
        let bar = ProgressBar::new_spinner();
        bar.set_style(style.expect("the template is right"));
        let now = Instant::now();
        Self {
            bar,
            counts: Counts::default(),
            started: now,
            drawn: now,
        }
    }

    /// Shows what became of a file.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Indexed { bytes } => {
                self.counts.files += 1;
                self.counts.bytes += bytes;
                self.draw();
            }
            // There may be many of them, and nothing is wrong with any.
            Event::Skipped(_, Skip::Link) => {}
            Event::Skipped(path, skip) => self.say_skipped(path, skip),
        }
    }

    /// Shows how far the batches have come: as a line for each if it is to be `verbose`.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    pub(crate) fn show_progress(&self, progress: &Progress<'_>, verbose: bool) {
        match progress {
            Progress::Batch { done, of } if verbose => self.say(format_args!("batch {done}/{of}")),
            Progress::Batch { done, of } => self.bar.set_prefix(format!("batch {done}/{of}, ")),
            Progress::Unusable(segment, why) => self.say(format_args!(
                "note: {}: {why}; its files are indexed again",
                segment.display()
            )),
            Progress::Failed(batch, why) => self.say(format_args!("failed {batch}: {why}")),
        }
    }

    /// Writes a line above the bar.
    pub(crate) fn say(&self, line: impl fmt::Display) {
        // If nobody reads it any more, the index is built all the same.
        self.bar.suspend(|| writeln!(io::stderr(), "{line}").ok());
    }

    /// Takes the bar away. Returns how long it was there.
    pub(crate) fn finish(&self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }

    fn draw(&mut self) {
        if self.drawn.elapsed() >= INTERVAL {
            let pace = Pace(&self.counts, self.started.elapsed());
            self.bar.set_message(pace.to_string());
            self.bar.tick();
            self.drawn = Instant::now();
        }
    }

    fn say_skipped(&self, path: &Path, skip: &Skip) {
        let path = path.display();
        self.say(format_args!("skipped {path}: {skip}"));
    }
}

/// How much was done in a time, and how fast.
struct Pace<'a>(&'a Counts, Duration);

impl fmt::Display for Pace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Counts { files, bytes, .. }, time) = self;
        let megabytes = *bytes as f64 / 1e6;
        let seconds = time.as_secs_f64().max(1e-9);
        let (file_rate, byte_rate) = (*files as f64 / seconds, megabytes / seconds);
        write!(
            f,
            "{files} files, {megabytes:.1} MB ({file_rate:.0} files/s, {byte_rate:.1} MB/s)"
        )
    }
}

/// What was done for an index, and in which time.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// The index, and how it came about.
    pub(crate) outcome: &'a Outcome,
    /// How long it took.
    pub(crate) time: Duration,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = &self.outcome.summary;
        writeln!(f, "indexed   {}", Pace(&summary.counts, self.time))?;
        writeln!(f, "terms     {}", self.outcome.index.len())?;
        self.fmt_skipped(f)?;
        self.fmt_time(f)?;
        self.fmt_parts(f)?;
        match usage::peak_memory() {
            Some(bytes) => write!(f, "memory    {:.1} MB at most", bytes as f64 / 1e6),
            None => write!(f, "memory    unknown"),
        }
    }
}

impl Report<'_> {
    fn fmt_skipped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = &self.outcome.summary.counts.skipped;
        write!(f, "skipped   {}", skipped.values().sum::<u64>())?;
        for (n, (kind, count)) in skipped.iter().enumerate() {
            let before = if n == 0 { ": " } else { ", " };
            write!(f, "{before}{count} {kind}")?;
        }
        writeln!(f)
    }

    fn fmt_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time      {:.3} s", self.time.as_secs_f64())?;
        match usage::cpu_time() {
            Some(cpu) => writeln!(f, ", {:.2} s of CPU", cpu.as_secs_f64()),
            None => writeln!(f),
        }
    }

    fn fmt_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = &self.outcome.summary;
        writeln!(f, "pool      {:?}", summary.pool)?;
        self.fmt_compute(f)?;
        writeln!(f, "stream    {} in flight at most", summary.most_in_flight)?;
        writeln!(f, "executor  {:?}", summary.executor)
    }

    /// The metrics of all threads together: there may be many threads.
    fn fmt_compute(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics = &self.outcome.summary.compute;
        let sum = |of: fn(&LaneMetrics) -> u64| metrics.lanes.iter().map(of).sum::<u64>();
        let (threads, executed) = (metrics.lanes.len(), metrics.executed());
        let (stolen, parked) = (sum(|lane| lane.stolen), sum(|lane| lane.parked));
        writeln!(
            f,
            "compute   {executed} tasks on {threads} threads, {stolen} stolen; parked {parked} times"
        )
    }
}
