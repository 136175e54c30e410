//! [`Queue`]: changes the limits of a named queue, and pauses it.

use std::fmt;

use super::engine::Engine;
use super::queue::name::QueueName;
use super::store::{Backend, QueueChange};
use super::{DurableError, QueueInfo, QueueSettings};

/// A named queue: see [`DurableClient::queue`](super::DurableClient::queue).
///
/// A queue exists as soon as its name is used. [`SpawnOptions::queue`](super::SpawnOptions::queue) or
/// [`DurableTask::QUEUE`](super::DurableTask::QUEUE) puts a task into it, and the executors that [serve](super::Builder::serve) it
/// run its tasks. The store keeps its limits, and whether it is paused. So these hold for all processes, and remain when all
/// processes exit.
///
/// Tasks without the name of a queue are in the default queue, which has no limits and cannot be paused.
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

    /// Sets the limits of the queue, and returns `true`. They replace the limits that were set before. If those have a later
    /// [revision](QueueSettings::revision), nothing changes, and this returns `false`. A paused queue stays paused.
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
    /// If the future is dropped, the limits may or may not be set.
    ///
    /// # Examples
    ///
    /// See [`Queue`].
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
    /// - The name of the queue is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may or may not be paused.
    ///
    /// # Examples
    ///
    /// See [`Queue`].
    pub async fn pause(&self) -> Result<(), DurableError> {
        self.change(QueueChange::Paused(true)).await.map(drop)
    }

    /// Resumes the queue. Does nothing if it is not paused.
    ///
    /// # Errors
    ///
    /// - The name of the queue is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may or may not be resumed.
    ///
    /// # Examples
    ///
    /// See [`Queue`].
    pub async fn resume(&self) -> Result<(), DurableError> {
        self.change(QueueChange::Paused(false)).await.map(drop)
    }

    /// Returns the limits of the queue, whether it is paused, and how many of its tasks wait and run.
    ///
    /// # Errors
    ///
    /// - The name of the queue is [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`Queue`].
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
