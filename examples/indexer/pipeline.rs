//! [`build`]: the way of a file through the parts of `throng`.
//!
//! ```text
//! Feeder --- submit(path, read) ---> CompletionStream ---> Gatherer ---> SerialExecutor<Index>
//!                        |     ^
//!                        v     |
//!       BlockingPool: read --> ComputePool: tokenise
//! ```
//!
//! The feeder waits while the stream is full, and lists no further meanwhile: no more files are on
//! their way than the stream has places, and no more texts in memory than the second pool has.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use throng::CompletionStream;
use throng::completion::Completed;
use throng::{blocking, compute, serial};

use super::feed::Feeder;
use super::gather::Gatherer;
use super::index::Index;
use super::options::Options;
use super::reading::Reader;
use super::source::Skip;

/// An index, and how it came about.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The index.
    pub(crate) index: Index,
    /// The work that was done for it.
    pub(crate) summary: Summary,
}

/// The work done for an index.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The number of files by outcome.
    pub(crate) counts: Counts,
    /// `true` if it was stopped, so there may be more files.
    pub(crate) stopped: bool,
    /// The maximum number of files that are submitted and not yet read from the stream.
    pub(crate) most_in_flight: usize,
    /// The metrics of the pool that reads files.
    pub(crate) pool: blocking::Metrics,
    /// The metrics of the pool that tokenises files.
    pub(crate) compute: compute::Metrics,
    /// The metrics of the executor that owns the index.
    pub(crate) executor: serial::Metrics,
}

/// The number of files by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Files in the index.
    pub(crate) files: u64,
    /// Bytes that they have.
    pub(crate) bytes: u64,
    /// The files that are not in the index, by the kind of reason.
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    /// The number of these that should be in the index but could not be read.
    pub(crate) errors: u64,
}

/// The outcome of a file.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// It is in the index.
    Indexed {
        /// Its length.
        bytes: u64,
    },
    /// It is not.
    Skipped(&'a Path, &'a Skip),
}

/// Builds the index of the tree at `dir`, and tells `observe` what becomes of each file.
///
/// Paths in the index are `dir` joined with where the file is in the tree.
///
/// # Errors
///
/// `dir` cannot be listed, or there are no threads. What concerns one file only is an [`Event`].
///
/// # Cancel safety
///
/// If the future is dropped, no more files are submitted, and those that wait are not read.
pub(crate) async fn build(
    dir: &Path,
    options: &Options,
    observe: impl FnMut(Event<'_>),
) -> io::Result<Outcome> {
    let (jobs, mut done) = CompletionStream::builder()
        .max_running(options.threads * options.running)
        .max_outstanding(options.threads * options.outstanding)
        .build()?;
    let reader = Arc::new(Reader::new(options)?);
    let feeder = Feeder::new(Arc::clone(&reader), jobs, dir, options.stop.clone());
    let feeding = tokio::spawn(feeder.run());

    // Files are added to the index as their results arrive.
    let mut gatherer = Gatherer::new(observe);
    while let Some(Completed { tag, outcome, .. }) = done.next().await {
        let reading = outcome.unwrap_or_else(|error| Err(error.into()));
        gatherer.take(tag, reading).await?;
    }
    let most_in_flight = feeding.await??;
    let stopped = options.stop.is_set();
    gatherer.finish(&reader, stopped, most_in_flight).await
}
