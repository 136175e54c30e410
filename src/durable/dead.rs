//! [`DeadLetters`]: what has failed for good.

use super::{DeadFilter, DeadLetter, DurableClient, DurableError};

/// The tasks of a store that have failed for good. The newest 10,000 of them are kept, for 30 days each, or
/// for longer while no executor runs on the store.
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
#[derive(Clone, Copy, Debug)]
pub struct DeadLetters<'a> {
    client: &'a DurableClient,
}

impl<'a> DeadLetters<'a> {
    pub(crate) fn new(client: &'a DurableClient) -> Self {
        Self { client }
    }

    /// At most `limit` of those that match, the newest first.
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
        let list = |store: &'a dyn super::store::Backend| store.dead_letters(filter.clone(), limit);
        self.client.ask(None, list).await
    }

    /// Gives those that match another life: they wait for a worker, under the same ids, and nothing
    /// is counted against them. Handles that are awaited from now on wait for that. Returns how many
    /// there were.
    ///
    /// # Errors
    ///
    /// The store does not answer. To ask again does no harm.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, they may be replayed or not.
    pub async fn replay(&self, filter: DeadFilter) -> Result<u64, DurableError> {
        let replay =
            |store: &'a dyn super::store::Backend| store.replay_dead_letters(filter.clone());
        self.client.ask(None, replay).await
    }

    /// Removes those that match. Returns how many there were.
    ///
    /// # Errors
    ///
    /// The store does not answer. To ask again does no harm.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, they may be removed or not.
    pub async fn delete(&self, filter: DeadFilter) -> Result<u64, DurableError> {
        let delete =
            |store: &'a dyn super::store::Backend| store.delete_dead_letters(filter.clone());
        self.client.ask(None, delete).await
    }
}
