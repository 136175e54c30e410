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

use throng::completion::Completed;
use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};
use throng::{blocking, compute, serial};

use super::feed::Feeder;
use super::index::Index;
use super::options::Options;
use super::reading::{Parsed, Reader, Reading};
use super::source::Skip;

/// An index, and how it came about.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The index.
    pub(crate) index: Index,
    /// How it came about.
    pub(crate) summary: Summary,
}

/// What was done for an index.
#[derive(Debug)]
pub(crate) struct Summary {
    /// What became of the files.
    pub(crate) counts: Counts,
    /// Whether it was stopped: then there may be files that it knows nothing of.
    pub(crate) stopped: bool,
    /// How many files were submitted and not yet read from the stream, at most.
    pub(crate) most_in_flight: usize,
    /// What the pool has done that reads files.
    pub(crate) pool: blocking::Metrics,
    /// What the pool has done that tokenises them.
    pub(crate) compute: compute::Metrics,
    /// What the executor has done that owns the index.
    pub(crate) executor: serial::Metrics,
}

/// What became of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Files in the index.
    pub(crate) files: u64,
    /// Bytes that they have.
    pub(crate) bytes: u64,
    /// What is not in the index, by the kind of reason.
    pub(crate) skipped: BTreeMap<&'static str, u64>,
}

/// What became of a file.
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
    let (pool, compute) = (reading_pool(options)?, tokenising_pool(options)?);
    let (jobs, done) = CompletionStream::builder()
        .max_running(options.threads * options.running)
        .max_outstanding(options.threads * options.outstanding)
        .build();
    let reader = Reader {
        pool: pool.clone(),
        compute: compute.clone(),
        source: Arc::clone(&options.source),
        backoff: options.backoff,
    };
    let feeder = Feeder::new(reader, jobs, dir, options.stop.clone());
    let feeding = tokio::spawn(feeder.run());

    let mut gatherer = Gatherer::new(observe);
    gatherer.run(done).await?;
    let most_in_flight = feeding.await??;

    Ok(Outcome {
        summary: Summary {
            counts: gatherer.counts,
            stopped: options.stop.is_set(),
            most_in_flight,
            pool: pool.metrics(),
            compute: compute.metrics(),
            executor: gatherer.index.metrics(),
        },
        index: gatherer
            .index
            .into_inner()
            .await
            .map_err(io::Error::other)?,
    })
}

/// A pool whose queue has room for all that the stream lets run: a file that has a place for its text
/// waits for a thread, and for nothing before that.
fn reading_pool(options: &Options) -> io::Result<BlockingPool> {
    BlockingPool::builder()
        .name("indexer")
        .max_threads(options.threads)
        .queue_capacity(options.threads * options.running)
        .build()
}

/// A pool with a place for each text that may be in memory.
fn tokenising_pool(options: &Options) -> io::Result<ComputePool> {
    ComputePool::builder()
        .name("tokeniser")
        .threads(options.cores)
        .capacity(options.threads * options.texts)
        .build()
}

/// The reader of the stream: what was read goes into the index, as it comes.
struct Gatherer<F> {
    index: SerialExecutor<Index>,
    counts: Counts,
    observe: F,
}

impl<F: FnMut(Event<'_>)> Gatherer<F> {
    fn new(observe: F) -> Self {
        Self {
            index: SerialExecutor::new(Index::default()),
            counts: Counts::default(),
            observe,
        }
    }

    async fn run(&mut self, mut done: CompletionStream<Reading, Arc<Path>>) -> io::Result<()> {
        while let Some(Completed { tag, outcome, .. }) = done.next().await {
            let reading = outcome.unwrap_or_else(|error| Err(error.into()));
            match reading {
                Ok(parsed) => self.add(tag, parsed).await?,
                Err(skip) => self.skip(&tag, &skip),
            }
        }
        Ok(())
    }

    /// Adds a file to the index, as one job: all of it or nothing.
    async fn add(&mut self, path: Arc<Path>, parsed: Parsed) -> io::Result<()> {
        let Parsed { postings, bytes } = parsed;
        let name = Arc::clone(&path);
        let added = self.index.submit(|index| index.add(name, postings)).await?;
        if let Err(full) = added {
            self.skip(&path, &full.into());
            return Ok(());
        }
        self.counts.files += 1;
        self.counts.bytes += bytes;
        (self.observe)(Event::Indexed { bytes });
        Ok(())
    }

    fn skip(&mut self, path: &Path, skip: &Skip) {
        *self.counts.skipped.entry(skip.kind()).or_default() += 1;
        (self.observe)(Event::Skipped(path, skip));
    }
}
