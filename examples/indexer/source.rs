//! [`Source`]: where files come from; and [`Skip`]: why one is not in the index.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use throng::{Closed, JoinError, TrySpawnError};

use super::disk::{self, Entries};
use super::index::Full;

/// Where files come from: the [`Disk`], or, in a test, something less reliable.
pub(crate) trait Source: Send + Sync + 'static {
    /// Opens a directory.
    fn list(&self, dir: &Path) -> io::Result<Entries>;

    /// Opens a file.
    fn open(&self, file: &Path) -> io::Result<File>;
}

/// The file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk;

impl Source for Disk {
    fn list(&self, dir: &Path) -> io::Result<Entries> {
        disk::list(dir)
    }

    fn open(&self, file: &Path) -> io::Result<File> {
        disk::open(file)
    }
}

/// Why a file, or a whole directory, is not in the index.
#[derive(Debug)]
pub(crate) enum Skip {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is no text.
    Binary,
    /// It is longer than [`MAX_FILE`](super::blocks::MAX_FILE), or its postings would be.
    TooLarge,
    /// It is a symbolic link, and those are not followed.
    Link,
    /// It is a pipe, a socket or a device.
    Special,
    /// The index is full.
    Full(Full),
    /// Reading it ended without a result.
    Lost(Box<dyn Error + Send + Sync>),
}

impl Skip {
    /// The kind of reason, to count by.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Binary => "binary",
            Self::TooLarge => "too large",
            Self::Link => "symbolic link",
            Self::Special => "pipe, socket or device",
            Self::Full(_) => "index full",
            Self::Lost(_) => "lost",
        }
    }

    /// Returns `true` if the file should be in the index: what is found may not be all there is.
    pub(crate) fn is_error(&self) -> bool {
        !matches!(self, Self::Binary | Self::Link | Self::Special)
    }

    /// Whether the same attempt may succeed a little later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreadable(error) if is_transient(error))
    }
}

impl From<io::Error> for Skip {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Full> for Skip {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl From<JoinError> for Skip {
    fn from(error: JoinError) -> Self {
        Self::Lost(error.into())
    }
}

impl From<Closed> for Skip {
    fn from(error: Closed) -> Self {
        Self::Lost(error.into())
    }
}

impl From<TrySpawnError<()>> for Skip {
    fn from(error: TrySpawnError<()>) -> Self {
        Self::Lost(error.into())
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        match self {
            Self::Unreadable(error) => write!(f, ": {error}"),
            Self::Lost(error) => write!(f, ": {error}"),
            Self::Binary | Self::TooLarge | Self::Link | Self::Special | Self::Full(_) => Ok(()),
        }
    }
}

/// Whether the system was only busy, or short of something that others will give back.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let kind = matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::ResourceBusy
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::OutOfMemory
    );
    kind || error
        .raw_os_error()
        .is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

/// Too many open files, in the process (`EMFILE`) or in the system (`ENFILE`): no [`ErrorKind`] says
/// so.
#[cfg(unix)]
const TOO_MANY_FILES: &[i32] = &[24, 23];
#[cfg(windows)]
const TOO_MANY_FILES: &[i32] = &[4];
#[cfg(not(any(unix, windows)))]
const TOO_MANY_FILES: &[i32] = &[];
