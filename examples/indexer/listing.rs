//! [`Listing`]: lists a tree on a pool, a batch ahead of anybody who wants it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throng::JoinHandle;
use tokio::time::sleep;

use super::options::Stop;
use super::reading::Reader;
use super::source::is_transient;
use super::walk::{Batch, Directory, Found, Walk};

/// The number of entries that are listed at a time: few enough to hold, and enough to be worth a task of the pool.
const BATCH: usize = 256;

/// Lists a tree on a pool, a batch ahead of anybody who wants it.
#[derive(Debug)]
pub(crate) struct Listing {
    reader: Arc<Reader>,
    root: PathBuf,
    stop: Stop,
    ahead: Option<JoinHandle<(Walk, Batch)>>,
}

impl Listing {
    /// Begins to list the tree at `root`; once `stop` is set, it begins no further batch.
    ///
    /// # Errors
    ///
    /// The pool is closed.
    pub(crate) async fn start(reader: Arc<Reader>, root: &Path, stop: Stop) -> io::Result<Self> {
        let mut listing = Self {
            reader,
            root: root.to_owned(),
            stop,
            ahead: None,
        };
        let walk = Walk::new(listing.root.clone(), Arc::clone(&listing.reader.source));
        listing.list(walk).await?;
        Ok(listing)
    }

    /// Returns the next item, or `None` at the end.
    ///
    /// # Errors
    ///
    /// The root cannot be listed.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<Found>>> {
        let Some(listed) = self.ahead.take() else {
            return Ok(None);
        };
        let (mut walk, Batch { mut found, refused }) = listed.await?;
        if let Some((directory, error)) = refused {
            found.extend(self.refused(&mut walk, directory, error).await?);
        }
        // The pool lists on while somebody works on this batch.
        if !walk.is_over() && !self.stop.is_set() {
            self.list(walk).await?;
        }
        Ok(Some(found))
    }

    /// Lists the next batch on the pool, between the files that it reads.
    async fn list(&mut self, mut walk: Walk) -> io::Result<()> {
        let permit = self.reader.pool.reserve().await.map_err(io::Error::other)?;
        self.ahead = Some(permit.spawn_blocking(move || {
            let batch = walk.next_batch(BATCH);
            (walk, batch)
        }));
        Ok(())
    }

    /// Has a directory opened once more after a while, or skips it; without the root there is nothing
    /// to index.
    async fn refused(
        &self,
        walk: &mut Walk,
        directory: Directory,
        error: io::Error,
    ) -> io::Result<Option<Found>> {
        match self.reader.backoff.delay(directory.failures) {
            Some(delay) if is_transient(&error) => {
                sleep(delay).await;
                walk.enter_next(directory);
                Ok(None)
            }
            _ if directory.path == self.root => Err(error),
            _ => Ok(Some(Found::Skipped(directory.path, error.into()))),
        }
    }
}
