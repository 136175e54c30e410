//! [`Screen`]: what is seen on standard error while an index is built; and [`Report`]: what then.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
use super::durable::build::Progress;
use super::indexer::escape::Escaped;
use super::indexer::pipeline::{Counts, Event, Outcome};
use super::indexer::source::Skip;
use super::usage;

/// The interval at which the bar is redrawn.
const INTERVAL: Duration = Duration::from_millis(100);
/// The templates of the display before and after the amount of work is known.
const SPINNER: &str = "{spinner} {elapsed_precise}  {prefix}{msg}";
const BAR: &str =
    "{elapsed_precise} [{wide_bar}] {percent}% of {human_len}, ETA {eta}  {prefix}{msg}";

/// A bar that shows how far it has come, if standard error is a terminal, and lines above it.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    bar: ProgressBar,
    counts: Counts,
    started: Instant,
    drawn: Instant,
    is_quiet: bool,
}

impl Screen {
    /// A screen on which nothing has been done. If it is to be `quiet`, it shows errors and nothing
    /// else.
    pub(crate) fn new(is_quiet: bool) -> Self {
        let bar = match is_quiet {
            true => ProgressBar::hidden(),
            false => ProgressBar::new_spinner(),
        };
        bar.set_style(ProgressStyle::with_template(SPINNER).expect("the template is right"));
        if !bar.is_hidden() {
            bar.enable_steady_tick(INTERVAL);
        }
        let now = Instant::now();
        Self {
            bar,
            counts: Counts::default(),
            started: now,
            drawn: now,
            is_quiet,
        }
    }

    /// Returns `true` if there is a bar to be seen.
    pub(crate) fn has_bar(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Shows how much of `total` is done from now on, and when the rest will be.
    pub(crate) fn expect(&self, total: u64) {
        let style = ProgressStyle::with_template(BAR).expect("the template is right");
        self.bar.set_style(style.progress_chars("=> "));
        self.bar.set_length(total);
    }

    /// Shows what became of a file.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        self.bar.inc(1);
        match event {
            Event::Indexed { bytes } => {
                self.counts.files += 1;
                self.counts.bytes += bytes;
                self.draw();
            }
            // Of all others, the report says how many there are.
            Event::Skipped(path, skip) if skip.is_error() => self.complain(path, skip),
            Event::Skipped(..) => {}
        }
    }

    /// Shows how far the batches have come: as a line for each if it is to be `verbose`.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn show_progress(&self, progress: &Progress<'_>, verbose: bool) {
        match progress {
            Progress::Found(total) => self.expect(*total as u64),
            Progress::Batch { done, of } if verbose => self.say(format_args!("batch {done}/{of}")),
            Progress::Batch { done, of } => self.bar.set_prefix(format!("batch {done}/{of}, ")),
            Progress::Unusable(segment, why) => self.say(format_args!(
                "note: {}: {why}; its files are indexed again",
                Escaped(segment)
            )),
            Progress::Failed(batch, why) => self.write(format_args!("failed {batch}: {why}")),
        }
    }

    /// Writes a line above the bar, unless it is to be quiet.
    pub(crate) fn say(&self, line: impl fmt::Display) {
        if !self.is_quiet {
            self.write(line);
        }
    }

    /// Takes the bar away. Returns how long it was there.
    pub(crate) fn finish(&self) -> Duration {
        // Draws the last state, however soon after the one before.
        self.bar.abandon();
        self.bar.finish_and_clear();
        self.started.elapsed()
    }

    fn write(&self, line: impl fmt::Display) {
        // If nobody reads it any more, the index is built all the same.
        self.bar.suspend(|| writeln!(io::stderr(), "{line}").ok());
    }

    fn draw(&mut self) {
        if self.drawn.elapsed() >= INTERVAL {
            let pace = Rate(&self.counts, self.started.elapsed());
            self.bar.set_message(pace.to_string());
            self.drawn = Instant::now();
        }
    }

    fn complain(&self, path: &Path, skip: &Skip) {
        self.write(format_args!("error: {}: {skip}", Escaped(path)));
    }
}

/// The work done in a time, and its rate.
struct Rate<'a>(&'a Counts, Duration);

impl fmt::Display for Rate<'_> {
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

/// The work done for an index, and its duration.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// The index, and how it came about.
    pub(crate) outcome: &'a Outcome,
    /// The duration.
    pub(crate) time: Duration,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = &self.outcome.summary;
        writeln!(f, "indexed   {}", Rate(&summary.counts, self.time))?;
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
    /// A line for each kind of reason.
    fn fmt_skipped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in &self.outcome.summary.counts.skipped {
            writeln!(f, "skipped   {count} ({kind})")?;
        }
        Ok(())
    }

    fn fmt_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time      {:.3} s", self.time.as_secs_f64())?;
        match usage::cpu_time() {
            Some(cpu) => writeln!(f, ", {:.2} s of CPU", cpu.as_secs_f64()),
            None => writeln!(f),
        }
    }

    /// Writes the metrics of each part of `throng`.
    fn fmt_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = &self.outcome.summary;
        let (pool, compute) = (&summary.pool, &summary.compute);
        let (reads, readers) = (pool.completed, pool.largest);
        let (texts, cores) = (compute.completed, compute.lanes.len());
        writeln!(f, "read      {reads} jobs on {readers} threads at most")?;
        writeln!(f, "tokenised {texts} texts on {cores} threads")?;
        let executor = &summary.executor;
        let (jobs, max) = (executor.inline + executor.queued, summary.most_in_flight);
        writeln!(f, "added     {jobs} files, {max} in flight at most")
    }
}
