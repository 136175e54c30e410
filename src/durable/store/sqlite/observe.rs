//! Opens a store read-only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::SqliteStore;
use super::endpoint::Endpoint;
use super::error::Fault;
use super::files::checked;
use super::observed_file::{self, ObservedFile};
use super::reader::Reader;
use super::shared::Shared;
use super::writer::Writer;
use crate::durable::DurableError;
use crate::durable::clock::Clock;
use crate::durable::failure::Failure;
use crate::durable::store::Store;
use crate::durable::store::layouts::Layouts;
use crate::durable::store::observer::Observer;
use crate::sync::Mutex;

impl SqliteStore {
    /// Opens the store in the file at `path` read-only. A client of it has no effect on the store.
    ///
    /// It creates and changes no file, and other processes do not see it. It can list and count tasks, and await them: its handles poll
    /// once a second. Requests that would change something, such as spawning a task or starting an executor, fail with an error that
    /// [`is_read_only`](DurableError::is_read_only).
    ///
    /// The process needs permission to read the file and the files beside it, and to search their folders. It needs no permission to write.
    /// If the processes that used the store have crashed, the observer reads all that they stored.
    ///
    /// If the last process that uses the store closes it while an observer reads, the two files ending in `-wal` and `-shm` may remain
    /// beside it. They contain no data then, and the next process that opens the store removes them.
    ///
    /// # Errors
    ///
    /// - if there is no file at `path`, or it is a database without a store ([`is_invalid`](DurableError::is_invalid));
    /// - if the file cannot be read ([`is_read_only`](DurableError::is_read_only), [`is_denied`](DurableError::is_denied));
    /// - if the file is not a SQLite database ([`is_corrupt`](DurableError::is_corrupt));
    /// - if it has a layout that this version of the crate does not know
    ///   ([`is_newer_layout`](DurableError::is_newer_layout), [`is_older_layout`](DurableError::is_older_layout));
    /// - if the file has a log (`-wal`) but no index (`-shm`), for example because it was copied: [`open`](Self::open) it once
    ///   ([`is_unfit`](DurableError::is_unfit)).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{DurableClient, SqliteStore};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("tasks.db");
    /// let error = SqliteStore::observe(&path).await.unwrap_err();
    /// assert!(error.is_invalid()); // there is no such file, and none was created
    ///
    /// # let store = SqliteStore::open(&path).await?;
    /// # drop(store);
    /// let observer = DurableClient::open(SqliteStore::observe(&path).await?);
    /// println!("{} tasks wait", observer.counts().await?.waiting);
    /// # Ok(()) }
    /// ```
    pub async fn observe(path: impl AsRef<Path>) -> Result<Store, DurableError> {
        Self::observe_with(path.as_ref(), Clock::machine()).await
    }

    /// Observes the store with another clock.
    pub(crate) async fn observe_with(path: &Path, clock: Clock) -> Result<Store, DurableError> {
        let name: Arc<str> = path.to_string_lossy().into();
        let observed = match checked(path, &name) {
            Ok(path) => Self::try_observe(path, &name, clock).await,
            Err(failure) => Err(failure),
        };
        let store = observed.map_err(|failure| DurableError::store(&name, None, failure))?;
        Ok(Store::new(Observer::new(store)))
    }

    async fn try_observe(path: PathBuf, name: &Arc<str>, clock: Clock) -> Result<Self, Failure> {
        let path = observed_file::existing(&path).map_err(Fault::without_effect)?;
        let endpoint = Endpoint::observer(&path, mpsc::unbounded_channel().0);
        let shared = Arc::new(Shared::new(endpoint, Layouts::KNOWN));
        let of_reader = Arc::clone(&shared);
        let open = move || ObservedFile::open(path, of_reader, clock);
        Ok(Self {
            writer: Writer::none(),
            reader: Reader::start_with(open).await?,
            shared,
            name: Arc::clone(name),
            events: Mutex::default(),
        })
    }
}
