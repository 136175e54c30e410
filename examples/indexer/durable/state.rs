//! [`State`]: what stays between two runs.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, SqliteStore};
use tokio::time::sleep;

use super::Fault;
use super::folder::Folder;

/// What stays between two runs: the store of tasks, and beside it the segments.
#[derive(Debug)]
pub(crate) struct State {
    /// The store.
    pub(crate) client: DurableClient,
    /// The segments.
    pub(crate) folder: Folder,
    path: PathBuf,
    /// Held as long as the state is used. The system gives it back also after `kill -9`.
    _lock: File,
}

impl State {
    /// Opens the state that has its store at `path`, and makes what is not there.
    ///
    /// # Errors
    ///
    /// It cannot be opened, is no state, or another process uses it.
    pub(crate) async fn open(path: &Path) -> Result<Self, Fault> {
        let at = |error: io::Error| format!("{}: {error}", path.display());
        let full = resolve(path).map_err(at)?;
        let lock = lock(&beside(&full, "-lock")).await.map_err(at)?;
        let store = SqliteStore::open(&full).await?;
        Ok(Self {
            client: DurableClient::open(store),
            folder: Folder::open(beside(&full, "-segments")).map_err(at)?,
            path: full,
            _lock: lock,
        })
    }

    /// Whether a file, at its full path, is a part of the state: those are not indexed.
    pub(crate) fn owns(&self, file: &Path) -> bool {
        let own = self.path.as_os_str().as_bytes();
        let rest = file.as_os_str().as_bytes().strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"))
    }
}

/// The full path of a file that need not be there.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidFilename.into());
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    Ok(fs::canonicalize(parent)?.join(name))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// How long to wait for another process to end: one that was killed may be in the midst of a write.
const PATIENCE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(50);

/// Two programs on one state would take each other's batches for those of an earlier run.
async fn lock(path: &Path) -> io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => sleep(INTERVAL).await,
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another indexer works with it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
