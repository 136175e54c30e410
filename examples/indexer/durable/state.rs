//! [`State`]: what stays between two runs.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[cfg(feature = "postgres")]
use throng::durable::PostgresStore;
#[cfg(feature = "redis")]
use throng::durable::RedisStore;
#[cfg(feature = "sqlite")]
use throng::durable::SqliteStore;
use throng::durable::{DurableClient, Store, TaskId};
use tokio::time::sleep;

use super::Fault;
use super::folder::Folder;
use crate::indexer::escape::Escaped;

/// Where the state is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreAddress<'p> {
    /// The file that has the store of tasks. What else there is, is in those beside it whose names
    /// begin with its name.
    pub(crate) file: &'p Path,
    /// The server that has the store instead of the file: Redis or PostgreSQL.
    pub(crate) url: Option<&'p str>,
}

/// The state that persists between two runs: the store of tasks, and the segments.
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
    /// Opens the state at a place, and makes what is not there.
    ///
    /// # Errors
    ///
    /// It cannot be opened, is no state, or another process uses it.
    pub(crate) async fn open(place: StoreAddress<'_>) -> Result<Self, Fault> {
        let at = |error: io::Error| format!("{}: {error}", Escaped(place.file));
        let full = resolve(place.file).map_err(at)?;
        let mut lock = lock(&beside(&full, "-lock")).await.map_err(at)?;
        let name = name(&mut lock).map_err(at)?;
        let store = open_store(&full, place.url, name).await?;
        Ok(Self {
            client: DurableClient::open(store),
            folder: Folder::open(beside(&full, "-segments")).map_err(at)?,
            path: full,
            _lock: lock,
        })
    }

    /// Returns `true` if a file, at its full path, is a part of the state: those are not indexed.
    pub(crate) fn owns(&self, file: &Path) -> bool {
        let own = self.path.as_os_str().as_bytes();
        let rest = file.as_os_str().as_bytes().strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-"))
    }
}

/// Opens the store in the file at `path`, or in a server: there, as the one of that name.
async fn open_store(path: &Path, url: Option<&str>, name: TaskId) -> Result<Store, Fault> {
    match url {
        None => open_file(path).await,
        Some(url) if is_postgres(url) => open_postgres(url, name).await,
        Some(url) => open_redis(url, name).await,
    }
}

fn is_postgres(url: &str) -> bool {
    ["postgres:", "postgresql:"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

#[cfg(feature = "sqlite")]
async fn open_file(path: &Path) -> Result<Store, Fault> {
    Ok(SqliteStore::open(path).await?.into())
}

#[cfg(not(feature = "sqlite"))]
async fn open_file(_: &Path) -> Result<Store, Fault> {
    Err(super::without("SQLite", "sqlite"))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, name: TaskId) -> Result<Store, Fault> {
    let mut store = PostgresStore::builder(url);
    Ok(store.schema(format!("indexer-{name}")).open().await?.into())
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &str, _: TaskId) -> Result<Store, Fault> {
    Err(super::without("PostgreSQL", "postgres"))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str, name: TaskId) -> Result<Store, Fault> {
    let mut store = RedisStore::builder(url);
    let store = store.namespace(format!("indexer-{name}"));
    Ok(store.open().await?.into())
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &str, _: TaskId) -> Result<Store, Fault> {
    Err(super::without("Redis", "redis"))
}

/// The name of this state among all that are in one server: anybody who runs another one's tasks does not
/// have its files.
///
/// It is in the lock's file, and nobody else writes that now. If it is cut short, because its writer
/// was killed, nothing has been stored under it.
fn name(lock: &mut File) -> io::Result<TaskId> {
    let mut text = Vec::new();
    lock.read_to_end(&mut text)?;
    let found = str::from_utf8(&text)
        .ok()
        .and_then(|text| text.parse().ok());
    found.map_or_else(|| rename(lock), Ok)
}

fn rename(lock: &mut File) -> io::Result<TaskId> {
    let name = TaskId::new();
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "{name}")?;
    Ok(name)
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

/// The maximum wait for another process to exit: a killed one may be in the middle of a write.
const MAX_WAIT: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(50);

/// Two programs on one state would take each other's batches for those of an earlier run.
async fn lock(path: &Path) -> io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < MAX_WAIT => sleep(INTERVAL).await,
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another indexer works with it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
