//! [`EncodedTask`]: a task of a type that this program does not have.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use super::queue::Priority;
use super::task::{DEFAULT_RETENTION, SpawnedType};
use super::{DurableClient, DurableError, DurableHandle, SpawnOptions};

/// A task that is already encoded, with the name of its type: see [`DurableClient::spawn_encoded`].
///
/// # Examples
///
/// ```
/// use throng::durable::EncodedTask;
///
/// let task = EncodedTask::new("mail.send", br#"{"to":"a@b.c"}"#);
/// assert_ne!(task, task.clone().version(2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTask {
    name: String,
    version: u8,
    bytes: Vec<u8>,
}

impl EncodedTask {
    /// Returns a task of the type with this [name](super::DurableTask::NAME). The bytes are what [`encode`](super::DurableTask::encode)
    /// returns, which is JSON by default. They are not checked: a worker that cannot decode them makes the task a dead letter.
    ///
    /// # Examples
    ///
    /// See [`EncodedTask`].
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            version: 1,
            bytes: bytes.into(),
        }
    }

    /// Sets the [version](super::DurableTask::VERSION) of the type with which the bytes are encoded. The default is 1.
    ///
    /// # Examples
    ///
    /// See [`EncodedTask`].
    #[must_use]
    pub fn version(mut self, version: u8) -> Self {
        self.version = version;
        self
    }
}

impl DurableClient {
    /// Stores a task of a type that this program does not have. Programs that have the type use [`spawn_with`](Self::spawn_with), which
    /// checks the task. This method is for tools that operate a store.
    ///
    /// Options that are not set have the defaults of [`DurableTask`](super::DurableTask), even if the type has others: the default queue,
    /// the normal priority and a retention of 10 minutes. The output of the task is decoded as an `O`, such as a `serde_json::Value`.
    ///
    /// # Errors
    ///
    /// - The name is empty, the version is 0, or the options are [invalid](DurableError::is_invalid). The message names the remedy.
    /// - The others of [`spawn`](Self::spawn).
    ///
    /// # Cancel safety
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::{DurableHandle, EncodedTask, SpawnOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let task = EncodedTask::new("mail.send", br#"{"to":"a@b.c"}"#);
    /// let handle: DurableHandle<serde_json::Value> =
    ///     client.spawn_encoded(task, SpawnOptions::new().queue("mail")).await?;
    /// let detail = client.admin().task(handle.id()).await?.expect("it is stored");
    /// assert_eq!(detail.task.name.as_deref(), Some("mail.send"));
    /// # Ok(()) }
    /// ```
    pub async fn spawn_encoded<O: DeserializeOwned>(
        &self,
        task: EncodedTask,
        options: SpawnOptions,
    ) -> Result<DurableHandle<O>, DurableError> {
        if task.name.is_empty() {
            let reason = "the task has no name: use the `NAME` of its type";
            return Err(self.invalid(reason.into()));
        }
        if task.version == 0 {
            let reason = "the version of the task is 0: the first version is 1";
            return Err(self.invalid(reason.into()));
        }
        let spawned_type = SpawnedType {
            name: Cow::Owned(task.name.clone()),
            version: task.version,
            queue: None,
            priority: Priority::Normal,
            retention: DEFAULT_RETENTION,
        };
        let spawn = self.new_tasks(&task.name, |trace| {
            let task = self.new_task(spawned_type, &options, trace, || Ok(task.bytes))?;
            Ok(vec![task])
        })?;
        self.spawn_new(spawn, |id| DurableHandle::untyped(self.engine(), id))
            .await
    }
}
