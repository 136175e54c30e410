//! [`Feeder`]: finds what is in a tree, and submits it as the stream has room.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throng::JoinHandle;
use throng::completion::Submitter;
use tokio::time::sleep;

use super::options::Stop;
use super::reading::{Reader, Reading};
use super::source::{Skip, is_transient};
use super::walk::{Batch, Directory, Found, Walk};

/// The end of the stream where files go in, each under its path.
pub(crate) type Jobs = Submitter<Reading, Arc<Path>>;

/// How many entries are listed at a time: few enough to hold, enough for a trip to the pool.
const BATCH: usize = 256;

/// Finds what is in a tree, and submits it as the stream has room.
///
/// It is a task of its own, not a part of the one that reads the stream: while it waits for room,
/// somebody must make some.
#[derive(Debug)]
pub(crate) struct Feeder {
    reader: Arc<Reader>,
    jobs: Jobs,
    root: PathBuf,
    stop: Stop,
    most_in_flight: usize,
}

impl Feeder {
    /// A feeder for the tree at `root`.
    pub(crate) fn new(reader: Reader, jobs: Jobs, root: &Path, stop: Stop) -> Self {
        Self {
            reader: Arc::new(reader),
            jobs,
            root: root.to_owned(),
            stop,
            most_in_flight: 0,
        }
    }

    /// Submits everything, or less if it is told to stop, and then closes the stream. Returns how
    /// many files were in flight at most.
    ///
    /// # Errors
    ///
    /// The root cannot be listed, or the reader of the stream is gone.
    pub(crate) async fn run(mut self) -> io::Result<usize> {
        let walk = Walk::new(self.root.clone(), Arc::clone(&self.reader.source));
        let mut listing = Some(self.list(walk).await?);
        while let Some(listed) = listing {
            let (mut walk, batch) = listed.await?;
            if let Some((directory, error)) = batch.refused {
                self.refused(&mut walk, directory, error).await?;
            }
            // The pool lists on while this batch is submitted.
            listing = match walk.is_over() || self.stop.is_set() {
                true => None,
                false => Some(self.list(walk).await?),
            };
            self.submit_all(batch.found).await?;
        }
        Ok(self.most_in_flight)
    }

    /// Lists the next batch on the pool, between the files that it reads.
    async fn list(&self, mut walk: Walk) -> io::Result<JoinHandle<(Walk, Batch)>> {
        let permit = self.reader.pool.reserve().await.map_err(io::Error::other)?;
        Ok(permit.spawn_blocking(move || {
            let batch = walk.next_batch(BATCH);
            (walk, batch)
        }))
    }

    /// Has a directory opened once more after a while, or skips it; without the root there is nothing
    /// to index.
    async fn refused(
        &self,
        walk: &mut Walk,
        directory: Directory,
        error: io::Error,
    ) -> io::Result<()> {
        match self.reader.backoff.delay(directory.failures) {
            Some(delay) if is_transient(&error) => {
                sleep(delay).await;
                walk.enter_next(directory);
                Ok(())
            }
            _ if directory.path == self.root => Err(error),
            _ => self.skip(directory.path.into(), error.into()).await,
        }
    }

    async fn submit_all(&mut self, batch: Vec<Found>) -> io::Result<()> {
        for found in batch {
            if self.stop.is_set() {
                break;
            }
            match found {
                Found::File(path) => self.submit(path.into()).await?,
                Found::Skipped(path, skip) => self.skip(path.into(), skip).await?,
            }
            self.most_in_flight = self.most_in_flight.max(self.jobs.in_flight());
        }
        Ok(())
    }

    async fn submit(&self, path: Arc<Path>) -> io::Result<()> {
        let reading = Arc::clone(&self.reader).read(Arc::clone(&path));
        let submitted = self.jobs.submit(path, reading).await;
        submitted.map(drop).map_err(|_| stream_is_closed())
    }

    /// What is not read goes through the stream all the same: it has one reader, who counts.
    async fn skip(&self, path: Arc<Path>, skip: Skip) -> io::Result<()> {
        let slot = self.jobs.slot(path).await.map_err(|_| stream_is_closed())?;
        slot.complete(Err(skip));
        Ok(())
    }
}

fn stream_is_closed() -> io::Error {
    io::Error::other("nobody reads the stream of files any more")
}
