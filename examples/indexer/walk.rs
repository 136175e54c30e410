//! [`Walk`]: what is in a directory tree, a batch at a time.

use std::fmt;
use std::fs::{DirEntry, ReadDir};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::source::{Skip, Source};

/// A walk through a directory tree, depth first, that can be left and taken up again.
///
/// It holds one open directory, and the names of the directories that come later; never those of
/// the files: however many there are in a directory, no more than a batch of them is in memory.
pub(crate) struct Walk {
    source: Arc<dyn Source>,
    open: Option<(PathBuf, ReadDir)>,
    later: Vec<Directory>,
}

/// A directory that is to be opened.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// How often it could not be opened.
    pub(crate) failures: u32,
}

/// What a walk came by.
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
    /// What the walk came by.
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

    /// Whether there is nothing left.
    pub(crate) fn is_over(&self) -> bool {
        self.open.is_none() && self.later.is_empty()
    }

    /// Has a directory opened before all others that wait.
    pub(crate) fn enter_next(&mut self, directory: Directory) {
        self.later.push(directory);
    }

    /// Takes an entry of the open directory, or closes it, or opens the next.
    fn step(&mut self, batch: &mut Batch) {
        let Some((path, entries)) = &mut self.open else {
            return self.open_next(batch);
        };
        match entries.next() {
            Some(Ok(entry)) => batch.found.extend(self.classify(&entry)),
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

    /// What an entry is; a directory is opened later.
    fn classify(&mut self, entry: &DirEntry) -> Option<Found> {
        let path = entry.path();
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return Some(Found::Skipped(path, error.into())),
        };
        if kind.is_dir() {
            self.enter_next(Directory { path, failures: 0 });
            return None;
        }
        Some(match kind {
            kind if kind.is_file() => Found::File(path),
            kind if kind.is_symlink() => Found::Skipped(path, Skip::Link),
            _ => Found::Skipped(path, Skip::Special),
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
