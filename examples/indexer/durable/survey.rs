//! [`Survey`]: what is in a tree, before any of it is read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::Entry;
use super::state::State;
use crate::indexer::disk;
use crate::indexer::listing::Listing;
use crate::indexer::options::Stop;
use crate::indexer::reading::Reader;
use crate::indexer::source::Skip;
use crate::indexer::walk::Found;

/// The entries of a tree, before any file is read. They are all listed at once, because the batches are
/// parts of the sorted list.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The files, in the order of their paths.
    pub(crate) files: Vec<Entry>,
    /// The files that are skipped.
    pub(crate) skipped: Vec<(PathBuf, Skip)>,
}

impl Survey {
    /// Looks at all of the tree at `dir`, but not at what belongs to `state`.
    ///
    /// # Errors
    ///
    /// `dir` cannot be listed.
    pub(crate) async fn of(
        dir: &Path,
        state: &State,
        reader: &Arc<Reader>,
        stop: Stop,
    ) -> io::Result<Self> {
        let mut survey = Self::default();
        let root = fs::canonicalize(dir)?;
        let mut listing = Listing::start(Arc::clone(reader), dir, stop).await?;
        while let Some(found) = listing.next().await? {
            let owned = dir.to_owned();
            let permit = reader.pool.reserve().await.map_err(io::Error::other)?;
            let seen = permit.spawn_blocking(move || look_at(&owned, found));
            for seen in seen.await? {
                survey.add(dir, seen, |path| state.owns(&root.join(path)));
            }
        }
        survey.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(survey)
    }

    /// Adds what was found in `dir`, but not what is our own: files, sockets, and what has been removed
    /// meanwhile.
    fn add(&mut self, dir: &Path, seen: Seen, is_own: impl Fn(&Path) -> bool) {
        match seen {
            Seen::File(file) if !is_own(&file.path.path()) => self.files.push(file),
            Seen::Skipped(path, skip) if !is_own(inside(dir, &path)) => {
                self.skipped.push((path, skip));
            }
            Seen::File(_) | Seen::Skipped(..) => {}
        }
    }
}

enum Seen {
    File(Entry),
    Skipped(PathBuf, Skip),
}

/// Asks the system about each file. Blocks.
fn look_at(dir: &Path, found: Vec<Found>) -> Vec<Seen> {
    let seen = found.into_iter().map(|found| match found {
        Found::Skipped(path, skip) => Seen::Skipped(path, skip),
        Found::File(path) => match disk::look(&path) {
            Ok(stat) => Seen::File(Entry::new(inside(dir, &path).into(), &stat)),
            Err(error) => Seen::Skipped(path, error.into()),
        },
    });
    seen.collect()
}

/// Where something is in the tree at `dir`.
fn inside<'p>(dir: &Path, path: &'p Path) -> &'p Path {
    path.strip_prefix(dir).unwrap_or(path)
}
