//! [`Gatherer`]: puts what was read into the index, and counts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use throng::SerialExecutor;

use super::index::Index;
use super::pipeline::{Counts, Event, Outcome, Summary};
use super::reading::{Parsed, Reader, Reading};
use super::source::Skip;

/// Puts what was read into the index, and counts.
pub(crate) struct Gatherer<F> {
    index: SerialExecutor<Index>,
    counts: Counts,
    observe: F,
}

impl<F: FnMut(Event<'_>)> Gatherer<F> {
    /// A gatherer that tells `observe` what becomes of each file.
    pub(crate) fn new(observe: F) -> Self {
        Self {
            index: SerialExecutor::new(Index::default()),
            counts: Counts::default(),
            observe,
        }
    }

    /// Takes what became of a file.
    ///
    /// # Errors
    ///
    /// The index is gone.
    pub(crate) async fn take(&mut self, path: Arc<Path>, reading: Reading) -> io::Result<()> {
        match reading {
            Ok(parsed) => self.add(path, parsed).await,
            Err(skip) => {
                self.skip(&path, &skip);
                Ok(())
            }
        }
    }

    /// The index, and how it came about.
    ///
    /// # Errors
    ///
    /// The index is gone.
    pub(crate) async fn finish(
        self,
        reader: &Reader,
        stopped: bool,
        most_in_flight: usize,
    ) -> io::Result<Outcome> {
        let summary = Summary {
            counts: self.counts,
            stopped,
            most_in_flight,
            pool: reader.pool.metrics(),
            compute: reader.compute.metrics(),
            executor: self.index.metrics(),
        };
        let poisoned = |_| io::Error::other("a job has panicked and left the index poisoned");
        let index = self.index.into_inner().await.map_err(poisoned)?;
        Ok(Outcome { index, summary })
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
        self.counts.errors += u64::from(skip.is_error());
        (self.observe)(Event::Skipped(path, skip));
    }
}
