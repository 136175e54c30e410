//! [`Queue`]: changes the limits of a named queue, and pauses it.

use std::fmt;

use super::engine::Engine;
use super::queue::name::QueueName;
use super::store::{Backend, QueueChange};
use super::{DurableError, QueueInfo, QueueSettings};

/// A named queue: see [`DurableClient::queue`](super::DurableClient::queue).
///
/// A queue exists as soon as somebody uses its name. Tasks get into it by [`SpawnOptions::queue`](super::SpawnOptions::queue) or
/// [`DurableTask::QUEUE`](super::DurableTask::QUEUE), and are run by the executors that [serve](super::Builder::serve) it. Its
/// limits and its pause are kept in the store, so they hold for all processes, and outlast them.
///
/// Tasks without a queue are in the default queue, which has no limits.
///
/// # Examples
///
/// ```
/// use throng::durable::{DurableClient, MemoryStore, QueueSettings, Rate};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(MemoryStore::new());
/// let settings = QueueSettings::new().max_running(4).rate(Rate::per_minute(100).burst(20));
/// client.queue("gpu").set(settings).await?; // every process may do this when it starts
///
/// client.queue("gpu").pause().await?;
/// assert!(client.queue("gpu").info().await?.is_paused);
/// client.queue("gpu").resume().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Queue<'a> {
    engine: &'a Engine,
    name: Result<QueueName, String>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(engine: &'a Engine, name: &str) -> Self {
        Self {
            engine,
            name: QueueName::new(name),
        }
    }

    /// Sets the limits of the queue. They replace those that were set before, unless those have a later
    /// [revision](QueueSettings::revision): then nothing changes, and this returns `false`.
    ///
    /// Running tasks continue even if they exceed the new limits.
    ///
    /// # Errors
    ///
    /// - The name of the queue or a limit is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the limits may be set or not.
    pub async fn set(&self, settings: QueueSettings) -> Result<bool, DurableError> {
        let checked = settings.check();
        checked.map_err(|reason| DurableError::invalid(&self.engine.store_name, reason))?;
        self.change(QueueChange::Settings(settings)).await
    }

    /// Pauses the queue: no worker starts its tasks until it is [resumed](Self::resume). Does nothing if the queue is paused.
    ///
    /// Running tasks continue. Tasks can still be spawned and cancelled, and delayed tasks still become due. The queue stays paused
    /// even after all processes exit.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may be paused or not.
    pub async fn pause(&self) -> Result<(), DurableError> {
        self.change(QueueChange::Paused(true)).await.map(drop)
    }

    /// Resumes the queue. Does nothing if it is not paused.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may be resumed or not.
    pub async fn resume(&self) -> Result<(), DurableError> {
        self.change(QueueChange::Paused(false)).await.map(drop)
    }

    /// Returns the limits of the queue, whether it is paused, and the numbers of its tasks.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn info(&self) -> Result<QueueInfo, DurableError> {
        let name = self.name()?;
        let info = |store: &'a dyn Backend| store.queue(name.clone());
        self.engine.ask(None, info).await
    }

    async fn change(&self, change: QueueChange) -> Result<bool, DurableError> {
        let name = self.name()?;
        let change = |store: &'a dyn Backend| store.change_queue(name.clone(), change);
        self.engine.ask(None, change).await
    }

    fn name(&self) -> Result<QueueName, DurableError> {
        let invalid = |reason| DurableError::invalid(&self.engine.store_name, reason);
        self.name.clone().map_err(invalid)
    }
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.name).finish()
    }
}
