//! [`Reader`]: reads files on one pool, each again and again if need be, and tokenises them on
//! another.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use throng::{BlockingPool, ComputePool};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::blocks::{Blocks, Chunk, End};
use super::options::{Backoff, Options};
use super::postings::{Builder, Postings};
use super::source::{Skip, Source};

/// The result of reading a file.
pub(crate) type Reading = Result<Parsed, Skip>;

/// The contribution of a file to the index.
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
    /// Where texts are tokenised: a thread for each core, and a permit for each text in memory.
    pub(crate) compute: ComputePool,
    /// Where files come from.
    pub(crate) source: Arc<dyn Source>,
    /// When to try again.
    pub(crate) backoff: Backoff,
    /// A permit for each file that may have more than one chunk in memory.
    large: Semaphore,
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
            large: Semaphore::new(options.cores),
        })
    }

    /// Reads and tokenises a file. While it waits for another attempt, it has no thread, and no permit
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

    /// Reads and tokenises a file chunk by chunk: of a large file, no more than one is in memory, and
    /// the postings of those before it.
    async fn attempt(&self, path: Arc<Path>) -> Reading {
        let source = Arc::clone(&self.source);
        let open = move || Blocks::new(source.open(&path)?);
        let (mut blocks, mut builder, end) = self.chunk(open, Builder::default()).await?;
        if end == End::More {
            // It is never closed.
            let _permit = self.large.acquire().await.map_err(io::Error::other)?;
            let mut end = end;
            while end == End::More {
                (blocks, builder, end) = self.chunk(|| Ok(blocks), builder).await?;
            }
        }
        Ok(Parsed::new(builder, &blocks))
    }

    /// Reads a chunk on one pool, and tokenises it on the other. The permit for the second half comes
    /// before the first: no more texts are in memory than there are permits, however much faster the
    /// disk is.
    async fn chunk(
        &self,
        blocks: impl FnOnce() -> Result<Blocks, Skip> + Send + 'static,
        mut builder: Builder,
    ) -> Result<(Blocks, Builder, End), Skip> {
        let text = self.compute.reserve().await?;
        let read = self.pool.reserve().await?;
        let (blocks, chunk) = read.spawn_blocking(|| read_chunk(blocks()?)).await??;
        let tokenised = text.spawn(move || {
            builder.add(&chunk)?;
            Ok((blocks, builder, chunk.end))
        });
        tokenised.await?
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

/// A pool whose queue has room for all that the stream lets run: a file that has a permit for its text
/// waits for a thread, and for nothing before that.
fn reading_pool(options: &Options) -> io::Result<BlockingPool> {
    BlockingPool::builder()
        .name("indexer")
        .max_threads(options.threads)
        .queue_capacity(options.threads * options.running)
        .build()
}

/// A pool with a permit for each text that may be in memory.
fn tokenising_pool(options: &Options) -> io::Result<ComputePool> {
    ComputePool::builder()
        .name("tokeniser")
        .threads(options.cores)
        .max_outstanding(options.threads * options.texts)
        .build()
}

impl Parsed {
    /// Combines the chunks of a file.
    pub(crate) fn new(builder: Builder, blocks: &Blocks) -> Self {
        Self {
            postings: builder.finish(),
            bytes: blocks.len,
        }
    }
}

fn read_chunk(mut blocks: Blocks) -> Result<(Blocks, Chunk), Skip> {
    let chunk = blocks.next_chunk()?;
    Ok((blocks, chunk))
}

fn is_transient(reading: &Reading) -> bool {
    matches!(reading, Err(skip) if skip.is_transient())
}
