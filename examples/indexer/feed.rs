//! The way in: what is in the tree is found, read and tokenised on a pool, and the result of each
//! file goes into a stream.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throng::completion::Submitter;
use throng::{BlockingPool, JoinHandle};

use super::attempt::{Attempt, Reader, Reading};
use super::options::Stop;
use super::source::{Skip, is_transient};
use super::walk::{Batch, Directory, Found, Walk};

/// The end of the stream where files go in, each under its path.
pub type Jobs = Submitter<Reading, Arc<Path>>;

/// How many entries are listed at a time: few enough to hold, enough for one trip to the pool.
const BATCH: usize = 256;

/// Finds what is in a tree, and submits it as the stream has room.
#[derive(Debug)]
pub struct Feeder {
    reader: Arc<Reader>,
    jobs: Jobs,
    root: PathBuf,
    stop: Stop,
}

impl Feeder {
    /// A feeder for the tree at `root`.
    pub fn new(reader: Reader, jobs: Jobs, root: &Path, stop: Stop) -> Self {
        Self {
            reader: Arc::new(reader),
            jobs,
            root: root.to_owned(),
            stop,
        }
    }

    /// Submits everything that is in the tree, or ends early if it was told to stop. The stream is
    /// closed then.
    ///
    /// # Errors
    ///
    /// The root cannot be listed; or the stream or the pool is closed.
    pub async fn run(self) -> io::Result<()> {
        let walk = Walk::new(self.root.clone(), Arc::clone(&self.reader.source));
        let mut listing = Some(self.list(walk).await?);
        while let Some(listed) = listing {
            let (mut walk, batch) = listed.await?;
            if let Some((directory, error)) = batch.refused {
                self.refused(&mut walk, directory, error).await?;
            }
            // The pool lists on while this batch is submitted.
            listing = match walk.is_over() {
                true => None,
                false => Some(self.list(walk).await?),
            };
            if self.submit_all(batch.found).await?.is_break() { return Ok(()) }
        }
        Ok(())
    }
}
