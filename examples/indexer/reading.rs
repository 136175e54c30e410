//! [`Reader`]: reads and tokenises files on a pool, each again and again if need be.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use throng::BlockingPool;
use tokio::time::sleep;

use super::options::Backoff;
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

/// Reads and tokenises files on a pool.
pub(crate) struct Reader {
    /// The pool.
    pub(crate) pool: BlockingPool,
    /// Where files come from.
    pub(crate) source: Arc<dyn Source>,
    /// When to try again.
    pub(crate) backoff: Backoff,
}

impl Reader {
    /// Reads and tokenises a file. While it waits for another attempt, it has no thread.
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

    /// Reading and tokenising are one job. Two would take as long, with more memory for the texts
    /// that wait for the second; and if that were this task, a large file would keep a thread of
    /// Tokio's from all others.
    async fn attempt(&self, path: Arc<Path>) -> Reading {
        let source = Arc::clone(&self.source);
        let permit = self.pool.reserve().await?;
        permit
            .spawn_blocking(move || parse(&*source, &path))
            .await?
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("pool", &self.pool)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// Reads and tokenises a file, or says why it is not in the index. Blocks.
pub(crate) fn parse(source: &dyn Source, path: &Path) -> Reading {
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

fn is_transient(reading: &Reading) -> bool {
    matches!(reading, Err(skip) if skip.is_transient())
}
