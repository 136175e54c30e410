//! [`Folder`]: where the segments are.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use throng::durable::TaskId;

use super::segment::{self, Damage, Segment};

/// Where the segments are: one file for each batch, which bears the id of its task.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// Why there is no segment.
#[derive(Debug)]
pub(crate) enum Missing {
    /// None was written.
    Absent,
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is not what was written.
    Damaged(Damage),
    /// A file could not be read when it was written, and now can be opened.
    Outdated,
}

impl Folder {
    /// The folder at `path`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// It is not a directory, or cannot be made.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Where the segment of a batch is.
    pub(crate) fn segment(&self, id: TaskId) -> PathBuf {
        self.path.join(format!("{id}.segment"))
    }

    /// Reads the segment of a batch. Blocks.
    pub(crate) fn read(&self, id: TaskId) -> Result<Segment, Missing> {
        let bytes = fs::read(self.segment(id)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Missing::Absent,
            _ => Missing::Unreadable(error),
        })?;
        segment::decode(id, &bytes).map_err(Missing::Damaged)
    }

    /// Puts the segment of a batch into its place, on the disk, and as a whole: whenever the program
    /// or the machine ends, the segment is there, or it is not. Blocks.
    ///
    /// `run` is what no other run of the batch has: two of them, of which one was given up, do not
    /// write the same file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn write(&self, id: TaskId, run: u64, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.path.join(format!("{id}.{run}.unfinished"));
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.segment(id))?;
        sync_directory(&self.path)
    }

    /// Removes all segments but those of these batches, and what was not finished. Returns how many
    /// files that were. Blocks.
    ///
    /// # Errors
    ///
    /// One cannot be removed.
    pub(crate) fn keep_only(&self, ids: &HashSet<TaskId>) -> io::Result<usize> {
        let kept: HashSet<_> = ids.iter().map(|&id| self.segment(id)).collect();
        let mut removed = 0;
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let is_ours = matches!(
                path.extension().and_then(|extension| extension.to_str()),
                Some("segment" | "unfinished")
            );
            if is_ours && !kept.contains(&path) {
                fs::remove_file(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Makes sure that what was renamed in a directory stays so if the machine loses power.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("it is not there"),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Self::Damaged(damage) => write!(f, "it is damaged: {damage}"),
            Self::Outdated => f.write_str("a file can be read that could not be read before"),
        }
    }
}
