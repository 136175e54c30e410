//! [`Reader`]: reads files on one pool, each again and again if need be, and tokenises them on
//! another.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use throng::{BlockingPool, ComputePool};
use tokio::time::sleep;

use super::options::{Backoff, Options};
use super::postings::Postings;
use super::source::{Skip, Source};
use super::text;

/// What becomes of a file.
pub(crate) type Reading = Result<Parsed, Skip>;

/// What a file has for the index.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Its terms, and their lines.
    pub(crate) postings: Postings,
    /// Its length.
    pub(crate) bytes: u64,
}

/// Reads files on one pool, and tokenises them on another.
pub(crate) struct Reader {
    /// Where files are read, and directories listed: a thread that waits for the disk needs no core.
    pub(crate) pool: BlockingPool,
    /// Where texts are tokenised: a thread for each core, and a place for each text in memory.
    pub(crate) compute: ComputePool,
    /// Where files come from.
    pub(crate) source: Arc<dyn Source>,
    /// When to try again.
    pub(crate) backoff: Backoff,
}

impl Reader {
    /// A reader with pools of its own.
    ///
    /// # Errors
    ///
    /// There are no threads.
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        Ok(Self {
            pool: reading_pool(options)?,
            compute: tokenising_pool(options)?,
            source: Arc::clone(&options.source),
            backoff: options.backoff,
        })
    }

    /// Reads and tokenises a file. While it waits for another attempt, it has no thread, and no place
    /// for a text.
    pub(crate) async fn read(self: Arc<Self>, path: Arc<Path>) -> Reading {
        let mut failures = 0;
        loop {
            let reading = self.attempt(Arc::clone(&path)).await;
            failures += 1;
            match self.backoff.delay(failures) {
                Some(delay) if is_transient(&reading) => sleep(delay).await,
                _ => return reading,
            }
        }
    }

    /// The place for the second half comes before the first: no more texts are in memory than there
    /// are places, however much faster the disk is.
    async fn attempt(&self, path: Arc<Path>) -> Reading {
        let place = self.compute.reserve().await?;
        let bytes = self.load(path).await?;
        place.spawn(move || tokenise(&bytes)).await?
    }

    async fn load(&self, path: Arc<Path>) -> Result<Vec<u8>, Skip> {
        let source = Arc::clone(&self.source);
        let permit = self.pool.reserve().await?;
        permit.spawn_blocking(move || read(&*source, &path)).await?
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("pool", &self.pool)
            .field("compute", &self.compute)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
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

/// Reads a file, or says why it is not in the index. Blocks.
pub(crate) fn read(source: &dyn Source, path: &Path) -> Result<Vec<u8>, Skip> {
    let mut bytes = Vec::new();
    source.read(path, &mut bytes)?;
    match bytes.len() <= Postings::MAX_TEXT {
        true => Ok(bytes),
        false => Err(Skip::TooLarge),
    }
}

/// Tokenises what was read, or says why it is not in the index. Computes.
pub(crate) fn tokenise(bytes: &[u8]) -> Reading {
    let text = text::decode(bytes)?;
    Ok(Parsed {
        postings: Postings::of(text),
        bytes: bytes.len() as u64,
    })
}

fn is_transient(reading: &Reading) -> bool {
    matches!(reading, Err(skip) if skip.is_transient())
}
