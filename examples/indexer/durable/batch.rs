//! [`Batch`]: files that are indexed together, as one durable task; and [`cut`], which makes them.

use std::fmt;

use rustix::fs::{RawMode, Stat};
use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, TaskId};

use super::Fault;
use super::name::Name;
use super::task::Tally;
use crate::indexer::escape::Escaped;

/// Files that are indexed together, as one durable task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The directory that the paths start at.
    pub(crate) root: Name,
    /// In the order of their paths.
    pub(crate) files: Vec<Entry>,
}

/// A file, and what shows that it has changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Where it is, from the root.
    pub(crate) path: Name,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, u32),
    /// The permissions to read it.
    mode: RawMode,
}

impl DurableTask for Batch {
    const NAME: &'static str = "indexer.batch";
    type Output = Tally;
}

impl Batch {
    /// The id that belongs to these files, as long as none of them changes.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn id(&self) -> Result<TaskId, Fault> {
        Ok(TaskId::derive(Self::NAME, &self.encode()?))
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files", self.files.len())?;
        match (self.files.first(), self.files.last()) {
            (Some(first), Some(last)) => {
                let (first, last) = (first.path.path(), last.path.path());
                write!(f, " from {} to {}", Escaped(&first), Escaped(&last))
            }
            _ => Ok(()),
        }
    }
}

impl Entry {
    /// A file that the system says this of.
    pub(crate) fn new(path: Name, stat: &Stat) -> Self {
        Self {
            path,
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            mode: stat.st_mode,
        }
    }
}

/// The average and the maximum number of files of a batch.
const FILES: u64 = 64;
const MOST_FILES: usize = 4 * FILES as usize;
/// With how many bytes of files, and of paths, it ends at the latest: those are its work, and those
/// are what the store keeps of it.
const MOST_BYTES: u64 = 8 << 20;
const MOST_PATHS: usize = 64 << 10;

/// Cuts files, in the order of their paths, into batches.
///
/// A batch ends with a file whose path has a certain hash. So a file that comes, goes or changes is
/// the business of its own batch only (one that comes may cut it in two), and all others stay as they
/// are, with their ids. Where a limit ends a batch, a change can be felt up to the next such file.
pub(crate) fn cut(root: &Name, files: Vec<Entry>) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut open = Open::default();
    for file in files {
        if open.take(file) {
            batches.extend(open.close(root));
        }
    }
    batches.extend(open.close(root));
    batches
}

/// A batch that may get more files.
#[derive(Default)]
struct Open {
    files: Vec<Entry>,
    bytes: u64,
    paths: usize,
}

impl Open {
    /// Adds a file. Returns whether the batch ends with it.
    fn take(&mut self, file: Entry) -> bool {
        let cuts = hash(file.path.bytes()).is_multiple_of(FILES);
        self.bytes += file.size;
        self.paths += file.path.bytes().len();
        self.files.push(file);
        cuts || self.files.len() == MOST_FILES
            || self.bytes >= MOST_BYTES
            || self.paths >= MOST_PATHS
    }

    fn close(&mut self, root: &Name) -> Option<Batch> {
        let files = std::mem::take(self).files;
        let root = root.clone();
        (!files.is_empty()).then_some(Batch { root, files })
    }
}

/// A hash that is the same in all versions of this program, and of the standard library: FNV-1a, with
/// its better half mixed into the other.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    hash ^ hash >> 32
}
