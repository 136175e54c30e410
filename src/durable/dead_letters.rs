//! [`DeadLetters`]: the tasks that have failed for good.

use std::fmt;

use super::engine::Engine;
use super::store::Backend;
use super::{DeadFilter, DeadLetter, DurableError};

/// The tasks of a store that have failed for good: see
/// [`DurableClient::dead_letters`](super::DurableClient::dead_letters). The newest 10,000 of them are kept, for 30 days each,
/// or for longer while no executor runs on the store.
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore};
/// use throng::durable::DeadFilter;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// for letter in client.dead_letters().list(DeadFilter::all(), 100).await? {
///     println!("{} {}: {}: {}", letter.id, letter.name, letter.reason, letter.error);
/// }
/// let replayed = client.dead_letters().replay(DeadFilter::name("mail.send")).await?;
/// # assert_eq!(replayed, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct DeadLetters<'a> {
    engine: &'a Engine,
}

impl<'a> DeadLetters<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Returns at most `limit` of the dead letters that match, the newest first.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn list(
        &self,
        filter: DeadFilter,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        let list = |store: &'a dyn Backend| store.dead_letters(filter.clone(), limit);
        self.engine.ask(None, list).await
    }

    /// Makes the dead letters that match wait for a worker again, under their ids and with nothing counted against them.
    /// Handles that are awaited from now on wait for the new end. Returns the number of replayed tasks.
    ///
    /// # Errors
    ///
    /// The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks may be replayed or not.
    pub async fn replay(&self, filter: DeadFilter) -> Result<u64, DurableError> {
        let replay = |store: &'a dyn Backend| store.replay_dead_letters(filter.clone());
        self.engine.ask(None, replay).await
    }

    /// Deletes the dead letters that match. Returns the number of deleted tasks.
    ///
    /// # Errors
    ///
    /// The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the dead letters may be deleted or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DeadFilter, DurableClient, MemoryStore, TaskId};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let id = TaskId::new();
    /// let deleted = client.dead_letters().delete(DeadFilter::ids([id])).await?;
    /// assert_eq!(deleted, 0); // there is none with this id
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self, filter: DeadFilter) -> Result<u64, DurableError> {
        let delete = |store: &'a dyn Backend| store.delete_dead_letters(filter.clone());
        self.engine.ask(None, delete).await
    }
}

impl fmt::Debug for DeadLetters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("queue", &self.engine.queue)
            .finish()
    }
}
