//! [`TaskTypes`]: pauses and resumes types of tasks.

use std::fmt;

use super::DurableError;
use super::engine::Engine;
use super::store::Backend;

/// The types of tasks in a store: see [`DurableClient::types`](super::DurableClient::types).
///
/// A type is identified by its [`NAME`](super::DurableTask::NAME), so an administration program does not need the code of the
/// tasks.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::DurableTask;
/// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
/// use throng::durable::{DurableClient, MemoryStore};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(MemoryStore::new());
/// client.types().pause(SendMail::NAME).await?; // the mail server is down
/// assert_eq!(client.types().paused().await?, ["mail.send"]);
/// client.types().resume(SendMail::NAME).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct TaskTypes<'a> {
    engine: &'a Engine,
}

impl<'a> TaskTypes<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Pauses a type: no worker starts its tasks until the type is [resumed](Self::resume), including workers that start
    /// later. Does nothing if the type is paused.
    ///
    /// Running tasks continue. Tasks can still be spawned and cancelled, and delayed tasks still become due. Tasks of other
    /// types are not delayed. The type stays paused even after all processes exit.
    ///
    /// # Errors
    ///
    /// The store does not answer. Then the type may be paused in only some of the partitions of a store in Redis. It is safe to
    /// call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the type may be paused or not; in Redis, it may be paused in only some of the partitions. Call
    /// this again to complete the change.
    ///
    /// # Examples
    ///
    /// See [`TaskTypes`].
    pub async fn pause(&self, name: &str) -> Result<(), DurableError> {
        self.set_paused(name, true).await
    }

    /// Resumes a type. Its tasks of one [version](super::DurableTask::VERSION) start in the order in which they became ready.
    /// Does nothing if the type is not paused.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    ///
    /// # Cancel safety
    ///
    /// As [`pause`](Self::pause).
    ///
    /// # Examples
    ///
    /// See [`TaskTypes`].
    pub async fn resume(&self, name: &str) -> Result<(), DurableError> {
        self.set_paused(name, false).await
    }

    /// Returns the names of the paused types, in order.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`TaskTypes`].
    pub async fn paused(&self) -> Result<Vec<String>, DurableError> {
        let paused = |store: &'a dyn Backend| store.paused_types();
        self.engine.ask(None, paused).await
    }

    async fn set_paused(&self, name: &str, is_paused: bool) -> Result<(), DurableError> {
        let set = |store: &'a dyn Backend| store.set_paused(name.to_owned(), is_paused);
        self.engine.ask(None, set).await
    }
}

impl fmt::Debug for TaskTypes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTypes").finish_non_exhaustive()
    }
}
