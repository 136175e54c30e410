//! [`Walk`]: what is in a directory tree, a batch at a time.

use std::ffi::OsStr;
use std::fs::{DirEntry, ReadDir};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::source::{Skip, Source};

/// A walk through a directory tree, depth first, that can be left and taken up again.
///
/// It holds one open directory and the names of directories that come later, but never a list of
/// files: however large a directory is, no more of it is in memory than a batch.
pub struct Walk {
    source: Arc<dyn Source>,
    open: Option<ReadDir>,
    later: Vec<Directory>,
}

/// A directory that is to be opened.
#[derive(Debug)]
pub struct Directory {
    /// Where it is.
    pub path: PathBuf,
    /// How often that was tried in vain.
    pub failures: u32,
}

/// What a walk came by.
#[derive(Debug)]
pub enum Found {
    /// A regular file.
    File(PathBuf),
    /// Something that is not going to be read.
    Skipped(PathBuf, Skip),
    /// A directory that could not be opened. The batch ends here, so that the reader can
    /// [try again](Walk::try_later).
    Refused(Directory, io::Error),
}

impl Walk {
    /// A walk through the tree at `root`, which is opened also if it is a symbolic link.
    pub fn new(root: PathBuf, source: Arc<dyn Source>) -> Self {
        let root = Directory { path: root, failures: 0 };
        Self { source, open: None, later: vec![root] }
    }

    /// The next `max` things, or fewer. Blocks.
    pub fn next_batch(&mut self, max: usize) -> Vec<Found> {
        let mut batch = Vec::with_capacity(max);
        while batch.len() < max && !self.is_over() {
            batch.extend(self.step());
            if let Some(Found::Refused(..)) = batch.last() {
                break;
            }
        }
        batch
    }

    /// Whether there is nothing left.
    pub fn is_over(&self) -> bool {
        self.open.is_none() && self.later.is_empty()
    }

    /// Opens a directory once more, next.
    pub fn try_later(&mut self, directory: Directory) {
        self.later.push(directory);
    }

    /// Takes the next entry of the open directory, or opens the next directory.
    fn step(&mut self) -> Option<Found> {
        let Some(open) = &mut self.open else {
            let directory = self.later.pop()?;
            return self.enter(directory);
        };
        match open.next() {
            Some(entry) => self.look_at(entry),
            None => {
                self.open = None;
                None
            }
        }
    }

    fn enter(&mut self, mut directory: Directory) -> Option<Found> {
        match self.source.list(&directory.path) {
            Ok(entries) => {
                self.open = Some(entries);
                None
            }
            Err(error) => {
                directory.failures += 1;
                Some(Found::Refused(directory, error))
            }
        }
    }
}
