//! [`DeadLetters`]: the tasks that have failed for good.

use std::fmt;
use std::sync::Arc;

use super::engine::Engine;
use super::envelope::open_payload;
use super::store::Backend;
use super::task::{TaskNames, decode_version};
use super::{DeadFilter, DeadLetter, DurableError, DurableTask, TaskId};

/// The tasks of a store that have failed for good: see
/// [`DurableClient::dead_letters`](super::DurableClient::dead_letters). By default, the newest 10,000 of them are kept, for 30
/// days each: see [`Admin::set_retention`](super::Admin::set_retention). They are kept
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
#[derive(Clone, Copy)]
pub struct DeadLetters<'a> {
    engine: &'a Engine,
}

/// The payload of a dead letter.
struct TypedPayload {
    name: Arc<str>,
    /// The version of the type that has encoded it.
    version: u8,
    bytes: Vec<u8>,
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
    ///
    /// # Examples
    ///
    /// See [`DeadLetters`].
    pub async fn list(
        &self,
        filter: DeadFilter,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        let list = |store: &'a dyn Backend| store.dead_letters(filter.clone(), limit);
        self.engine.ask(None, list).await
    }

    /// Returns the payload of a dead letter, as [`encode`](DurableTask::encode) has returned it: by default, the task as JSON.
    /// Returns `None` if no dead letter has this id: for instance, because it was replayed or deleted, or has expired.
    ///
    /// [`list`](Self::list) does not read payloads, since each may have 1 MiB.
    ///
    /// # Errors
    ///
    /// - The store has lost the payload or cannot read it, and the error [`is_damaged`](DurableError::is_damaged).
    /// - A version of this crate that stores payloads in another way has stored it, and the error
    ///   [`is_decode`](DurableError::is_decode).
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::DeadFilter;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let dead_letters = client.dead_letters();
    /// for letter in dead_letters.list(DeadFilter::all(), 100).await? {
    ///     if let Some(payload) = dead_letters.payload(letter.id).await? {
    ///         println!("{}: {}", letter.name, String::from_utf8_lossy(&payload));
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn payload(&self, id: TaskId) -> Result<Option<Vec<u8>>, DurableError> {
        let found = self.read(id).await?;
        Ok(found.map(|found| found.bytes))
    }

    /// Returns the task of a dead letter, decoded as it is for a run. Returns `None` if no dead letter has this id.
    ///
    /// # Errors
    ///
    /// As [`payload`](Self::payload). The error also [`is_decode`](DurableError::is_decode) if the dead letter has another
    /// [name](DurableTask::NAME) than those that `T` has or had, has a newer [version](DurableTask::VERSION), or cannot be
    /// [decoded](DurableTask::decode).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use throng::durable::{
    ///     DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError,
    /// };
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct SendMail {
    ///     to: String,
    /// }
    ///
    /// impl DurableTask for SendMail {
    ///     const NAME: &'static str = "mail.send";
    ///     type Output = ();
    /// }
    ///
    /// impl Run<()> for SendMail {
    ///     async fn run(self, _cx: TaskContext<()>) -> Result<(), TaskError> {
    ///         Err(TaskError::fatal("no such mailbox"))
    ///     }
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = DurableClient::open(MemoryStore::new());
    /// let executor = DurableExecutor::builder(client.clone()).register::<SendMail>().start(()).await?;
    /// let handle = client.spawn(SendMail { to: "a@b.c".into() }).await?;
    /// let id = handle.id();
    /// assert!(handle.await.is_err_and(|error| error.is_dead()));
    ///
    /// let mail = client.dead_letters().task::<SendMail>(id).await?;
    /// assert!(mail.is_some_and(|mail| mail.to == "a@b.c"));
    /// # drop(executor);
    /// # Ok(()) }
    /// ```
    pub async fn task<T: DurableTask>(&self, id: TaskId) -> Result<Option<T>, DurableError> {
        let Some(found) = self.read(id).await? else {
            return Ok(None);
        };
        let store_name = &self.engine.store_name;
        let name = &found.name;
        if !TaskNames::of::<T>().contains(name) {
            let error = format!("its name is {name:?}, not {:?}", T::NAME);
            return Err(DurableError::decode_task(store_name, id, error));
        }
        let task = decode_version(found.version, &found.bytes);
        task.map(Some)
            .map_err(|error| DurableError::decode_task(store_name, id, error))
    }

    /// Returns the payload of a dead letter, without the envelope.
    async fn read(&self, id: TaskId) -> Result<Option<TypedPayload>, DurableError> {
        let read = |store: &'a dyn Backend| store.dead_letter_payload(id);
        let Some(found) = self.engine.ask(Some(id), read).await? else {
            return Ok(None);
        };
        let store_name = &self.engine.store_name;
        let damaged = |error| DurableError::damaged(store_name, id, error);
        let payload = found.payload.map_err(damaged)?;
        match open_payload(&payload) {
            Some(it) => Ok(Some(TypedPayload {
                name: found.name,
                version: it.version,
                bytes: it.bytes.to_vec(),
            })),
            None if payload.is_empty() => Err(damaged(String::from("its payload is empty"))),
            None => {
                let error = "it was stored by another version of this crate";
                Err(DurableError::decode_task(store_name, id, error))
            }
        }
    }

    /// Makes the dead letters that match wait for a worker again, under their ids and with nothing counted against them.
    /// Handles that are awaited from now on wait for the new end. Returns the number of replayed tasks.
    ///
    /// A dead letter is neither replayed nor counted if another task holds its [`Key`](super::Key). Of several dead letters with the
    /// same key, only one is replayed. This does not apply to a dead letter that held its key only
    /// [until it started](super::Key::until_started): it is replayed without its key.
    ///
    /// # Errors
    ///
    /// The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks may be replayed or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// # impl Run<()> for SendMail {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { Err(TaskError::fatal("no such mailbox")) }
    /// # }
    /// use throng::durable::{DeadFilter, Status};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut executor = DurableExecutor::builder(client.clone()).register::<SendMail>().start_inline(()).await?;
    /// let id = client.spawn(SendMail { to: "a@b.c".into() }).await?.id();
    /// # executor.run_due().await?;
    /// assert_eq!(client.status(id).await?, Status::Dead); // there was no such mailbox
    ///
    /// // The mailbox has been created.
    /// assert_eq!(client.dead_letters().replay(DeadFilter::ids([id])).await?, 1);
    /// assert_eq!(client.status(id).await?, Status::Waiting);
    /// # Ok(()) }
    /// ```
    pub async fn replay(&self, filter: DeadFilter) -> Result<u64, DurableError> {
        let replay = |store: &'a dyn Backend| store.replay_dead_letters(filter.clone());
        self.engine.ask(None, replay).await
    }

    /// Deletes the dead letters that match. Returns the number of deleted tasks. A deleted dead letter no longer holds its
    /// [`Key`](super::Key).
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
            .field("store", &self.engine.store_name)
            .finish()
    }
}
