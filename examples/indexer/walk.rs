//! [`Walk`]: what is in a directory tree, a batch at a time.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::disk::{Entries, Kind};
use super::options::Stop;
use super::source::{Skip, Source};

/// A walk through a directory tree, depth first, that can be left and taken up again.
///
/// It holds one open directory, and the names of the directories that come later; never those of
/// the files: however many there are in a directory, no more than a batch of them is in memory.
pub(crate) struct Walk {
    source: Arc<dyn Source>,
    open: Option<(PathBuf, Entries)>,
    later: Vec<Directory>,
}

/// A directory that is to be opened.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The number of failed attempts to open it.
    pub(crate) failures: u32,
}

/// An item found by a walk.
#[derive(Debug)]
pub(crate) enum Found {
    /// A regular file.
    File(PathBuf),
    /// Something that cannot be read, or must not.
    Skipped(PathBuf, Skip),
}

/// A part of a walk.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The items found.
    pub(crate) found: Vec<Found>,
    /// The directory that could not be opened, if that is where the batch ends.
    /// [Another attempt](Walk::enter_next) can be made.
    pub(crate) refused: Option<(Directory, io::Error)>,
}

impl Walk {
    /// A walk through the tree at `root`, which is opened even if it is a symbolic link.
    pub(crate) fn new(root: PathBuf, source: Arc<dyn Source>) -> Self {
        let mut walk = Self {
            source,
            open: None,
            later: Vec::new(),
        };
        walk.enter_next(Directory {
            path: root,
            failures: 0,
        });
        walk
    }

    /// The next things, at most `max` of them. Blocks.
    pub(crate) fn next_batch(&mut self, max: usize) -> Batch {
        let mut batch = Batch::default();
        while batch.found.len() < max && batch.refused.is_none() && !self.is_over() {
            self.step(&mut batch);
        }
        batch
    }

    /// Returns `true` if there is nothing left.
    pub(crate) fn is_over(&self) -> bool {
        self.open.is_none() && self.later.is_empty()
    }

    /// Has a directory opened before all others that wait.
    pub(crate) fn enter_next(&mut self, directory: Directory) {
        self.later.push(directory);
    }

    /// Returns the number of entries, or fewer if it is told to stop. Blocks.
    #[allow(dead_code, reason = "it is there for the bar")]
    pub(crate) fn count(mut self, stop: &Stop) -> u64 {
        let mut count = 0;
        while !self.is_over() && !stop.is_set() {
            let Batch { found, refused } = self.next_batch(1024);
            count += found.len() as u64 + u64::from(refused.is_some());
        }
        count
    }

    /// Takes an entry of the open directory, or closes it, or opens the next.
    fn step(&mut self, batch: &mut Batch) {
        let Some((path, entries)) = &mut self.open else {
            return self.open_next(batch);
        };
        match entries.next() {
            Some(Ok((name, kind))) => {
                let path = path.join(name);
                batch.found.extend(self.classify(path, kind));
            }
            Some(Err(error)) => batch.found.push(Found::Skipped(path.clone(), error.into())),
            None => self.open = None,
        }
    }

    fn open_next(&mut self, batch: &mut Batch) {
        let Some(mut directory) = self.later.pop() else {
            return;
        };
        match self.source.list(&directory.path) {
            Ok(entries) => self.open = Some((directory.path, entries)),
            Err(error) => {
                directory.failures += 1;
                batch.refused = Some((directory, error));
            }
        }
    }

    /// Classifies an entry; a directory is opened later.
    fn classify(&mut self, path: PathBuf, kind: Kind) -> Option<Found> {
        Some(match kind {
            Kind::File => Found::File(path),
            Kind::Link => Found::Skipped(path, Skip::Link),
            Kind::Special => Found::Skipped(path, Skip::Special),
            Kind::Directory => {
                self.enter_next(Directory { path, failures: 0 });
                return None;
            }
        })
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("open", &self.open)
            .field("later", &self.later)
            .finish_non_exhaustive()
    }
}
