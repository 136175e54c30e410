//! [`Attempt`]: reads a file on the pool, again and again if need be.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use throng::{BlockingPool, Slot};
use tokio::time::sleep;

use super::options::Backoff;
use super::postings::Postings;
use super::source::{Skip, Source};
use super::text;

/// What becomes of a file that is read.
pub(crate) type Reading = Result<Parsed, Skip>;

/// What a file has for the index.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Its terms, and their lines.
    pub(crate) postings: Postings,
    /// Its length.
    pub(crate) bytes: u64,
}

/// What all attempts share.
pub(crate) struct Reader {
    /// Where files are read and tokenised.
    pub(crate) pool: BlockingPool,
    /// Where they come from.
    pub(crate) source: Arc<dyn Source>,
    /// When to try again.
    pub(crate) backoff: Backoff,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("pool", &self.pool)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// Reads and tokenises a file. Blocks.
///
/// It is one job and not two: a second one would find the text in another core's cache, after
/// another trip through a queue.
///
/// # Errors
///
/// Why the file is not in the index.
pub(crate) fn read(source: &dyn Source, path: &Path) -> Reading {
    let mut bytes = Vec::new();
    source.read(path, &mut bytes)?;
    if bytes.len() > Postings::MAX_TEXT {
        return Err(Skip::TooLarge);
    }
    let text = text::decode(&bytes)?;
    Ok(Parsed {
        postings: Postings::of(text),
        bytes: bytes.len() as u64,
    })
}

/// An attempt at a file. It holds the file's place in the stream until there is a result, also while
/// it waits for another attempt: so the bounds of the stream hold for all attempts together.
#[derive(Debug)]
pub(crate) struct Attempt {
    reader: Arc<Reader>,
    path: Arc<Path>,
    slot: Slot<Reading, Arc<Path>>,
    failures: u32,
}

impl Attempt {
    /// The first attempt at a file.
    pub(crate) fn first(
        reader: Arc<Reader>,
        path: Arc<Path>,
        slot: Slot<Reading, Arc<Path>>,
    ) -> Self {
        Self {
            reader,
            path,
            slot,
            failures: 0,
        }
    }

    /// Waits for room in the pool's queue, and queues the attempt.
    pub(crate) async fn start(self) {
        let reader = Arc::clone(&self.reader);
        // Nobody closes the pool while its `Reader` is there. If somebody did, the file would be
        // lost, and the stream would say so.
        if let Ok(permit) = reader.pool.reserve().await {
            drop(permit.spawn_blocking(move || self.run()));
        }
    }

    /// Runs on the pool. The slot is completed right here: a task that awaited the closure, to see
    /// whether it must be repeated, would cost each file a trip through Tokio's scheduler.
    fn run(self) {
        match read(&*self.reader.source, &self.path) {
            Err(skip) if skip.is_transient() => self.failed(skip),
            reading => self.slot.complete(reading),
        }
    }

    fn failed(mut self, skip: Skip) {
        self.failures += 1;
        match self.reader.backoff.delay(self.failures) {
            Some(delay) => drop(tokio::spawn(self.again(delay))),
            None => self.slot.complete(Err(skip)),
        }
    }

    /// Waits as a Tokio task: no thread of the pool sleeps.
    async fn again(self, delay: Duration) {
        sleep(delay).await;
        self.start().await;
    }
}
