//! [`Feeder`]: finds what is in a tree, and submits it as the stream has room.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throng::completion::Submitter;

use super::listing::Listing;
use super::options::Stop;
use super::reading::{Reader, Reading};
use super::source::Skip;
use super::walk::Found;

/// The end of the stream where files go in, each under its path.
pub(crate) type Jobs = Submitter<Reading, Arc<Path>>;

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
    pub(crate) fn new(reader: Arc<Reader>, jobs: Jobs, root: &Path, stop: Stop) -> Self {
        Self {
            reader,
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
        let (reader, stop) = (Arc::clone(&self.reader), self.stop.clone());
        let mut listing = Listing::start(reader, &self.root, stop).await?;
        while let Some(found) = listing.next().await? {
            self.submit_all(found).await?;
        }
        Ok(self.most_in_flight)
    }

    async fn submit_all(&mut self, found: Vec<Found>) -> io::Result<()> {
        for found in found {
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

    /// Sends a file that is not read through the stream, too, because the one reader of the stream
    /// counts all files.
    async fn skip(&self, path: Arc<Path>, skip: Skip) -> io::Result<()> {
        let slot = self.jobs.slot(path).await.map_err(|_| stream_is_closed())?;
        slot.complete(Err(skip));
        Ok(())
    }
}

fn stream_is_closed() -> io::Error {
    io::Error::other("nobody reads the stream of files any more")
}
