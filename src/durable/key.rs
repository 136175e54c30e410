//! [`Key`]: a text that only one task can hold at a time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::TaskId;
use super::queue::name::QueueName;

/// A text that only one task can hold at a time, so that the same work is not stored twice.
///
/// [`SpawnOptions::key`](super::SpawnOptions::key) gives a task a key. A stored task *holds* its key. While it does, a spawn with the
/// same key stores no task: it *joins* the task that holds the key, so its [`DurableHandle`](super::DurableHandle) resolves to the
/// output of that task. The other options of such a spawn have no effect. [`reject`](Self::reject) and
/// [`replace`](Self::replace) make a spawn fail or replace the payload instead.
///
/// A task holds its key until it succeeds, is cancelled, or becomes a dead letter. It keeps the key while it is delayed, waits for a
/// retry, or is taken back from a worker that has died. With [`until_started`](Self::until_started), [`replace`](Self::replace) or
/// [`debounce`](Self::debounce), it holds the key only until it starts. With [`throttle`](Self::throttle), it holds the key for at
/// least a given time.
///
/// A key belongs to one [type](super::DurableTask::NAME) of tasks in one [queue](super::Queue). Tasks of other types, or in other
/// queues, can have the same text as their key.
///
/// A run that spawns a task with its own key joins itself. To await that handle is an error that
/// [`is_would_deadlock`](super::DurableError::is_would_deadlock). Tasks must not join each other in a circle, either: two runs that
/// await each other wait until one of them is cancelled. With [`until_started`](Self::until_started), neither can happen.
///
/// Some options exclude each other. A spawn with such a key fails with an error that
/// [`is_invalid`](super::DurableError::is_invalid).
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
/// # #[derive(Serialize, Deserialize)] struct Report { user: u64 }
/// # impl DurableTask for Report { const NAME: &'static str = "report"; type Output = (); }
/// use throng::durable::{Key, SpawnOptions};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let once = || SpawnOptions::new().key(Key::new("user 7"));
/// let report = client.spawn_with(Report { user: 7 }, once()).await?;
/// let same = client.spawn_with(Report { user: 7 }, once()).await?;
/// assert!(same.was_joined());
/// assert_eq!(same.id(), report.id());
/// # Ok(()) }
/// ```
///
/// The search index of a document is updated 30 s after the last change, but at most 5 minutes after the first one:
///
/// ```
/// use std::time::Duration;
///
/// use throng::durable::{Key, SpawnOptions};
///
/// let key = Key::new("document 7")
///     .debounce(Duration::from_secs(30))
///     .at_latest(Duration::from_secs(5 * 60));
/// let options = SpawnOptions::new().key(key);
/// # drop(options);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    text: String,
    is_until_started: bool,
    window: Duration,
    rejects: bool,
    replaces: bool,
    debounce: Option<Duration>,
    latest: Option<Duration>,
}

/// The action of a spawn if another task holds its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// It stores nothing, and its handle awaits the other task.
    Join,
    /// It stores nothing and fails.
    Reject,
    /// It stores nothing, and gives its payload and its delay to the other task.
    Replace,
}

/// The form in which stores keep a key: the first 16 bytes of the SHA-256 hash of the type's name, the queue and the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 16]);

/// The key of a task that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// The key.
    pub hash: KeyHash,
    /// The action if another task holds the key.
    pub conflict: Conflict,
    /// `true` if the task holds the key only until a worker claims it for the first time.
    pub is_until_started: bool,
    /// The time for which the task holds the key after it was stored, even if it ends earlier.
    pub window: Duration,
    /// The time for which replacements can postpone the task, counted from the time at which it was stored.
    pub latest: Option<Duration>,
}

/// The answer to a request that stores tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// The tasks that were not stored because other tasks hold their keys, in the order of the request. All others are stored.
    pub conflicts: Vec<KeyConflict>,
}

impl Enqueued {
    /// Returns the part of the answer for `count` tasks from `first` on. Its positions count from `first`.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let conflicts = self.conflicts.iter();
        let own = conflicts.filter(|it| (first..first + count).contains(&it.position));
        let own = own.map(|&it| KeyConflict {
            position: it.position - first,
            ..it
        });
        Self {
            conflicts: own.collect(),
        }
    }
}

/// A task that was not stored because another task holds its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyConflict {
    /// The position of the task in the request.
    pub position: usize,
    /// The task that holds the key.
    pub holder: TaskId,
    /// The resolution of the conflict.
    pub resolution: Conflict,
}

impl Key {
    /// Returns a key with this text, which may have any length and any characters. A task holds it until it ends.
    ///
    /// # Examples
    ///
    /// See [`Key`].
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_until_started: false,
            window: Duration::ZERO,
            rejects: false,
            replaces: false,
            debounce: None,
            latest: None,
        }
    }

    /// Lets a task hold the key only until a worker claims it for the first time. So after each spawn that succeeds, at least one
    /// run starts. It cannot be combined with [`throttle`](Self::throttle).
    ///
    /// Use it for all spawns with this key. Otherwise, a spawn may join a task that was spawned without it, and that task may have
    /// started or even ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Index { document: u64 }
    /// # impl DurableTask for Index { const NAME: &'static str = "index"; type Output = (); }
    /// # impl Run<()> for Index {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { Ok(()) }
    /// # }
    /// use throng::durable::{Key, SpawnOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut executor = DurableExecutor::builder(client.clone()).register::<Index>().start_inline(()).await?;
    /// let changed = || SpawnOptions::new().key(Key::new("document 7").until_started());
    /// client.spawn_with(Index { document: 7 }, changed()).await?;
    /// let same = client.spawn_with(Index { document: 7 }, changed()).await?;
    /// assert!(same.was_joined());
    /// # executor.run_due().await?;
    ///
    /// // The task has started, so it may have missed this change.
    /// let next = client.spawn_with(Index { document: 7 }, changed()).await?;
    /// assert!(!next.was_joined());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn until_started(mut self) -> Self {
        self.is_until_started = true;
        self
    }

    /// Lets a task hold the key for at least this time, the *window*, after it was stored, even if it ends earlier. A spawn that joins
    /// the task does not extend the window. The store keeps the end of the task for at least as long, so the handle of such a spawn
    /// resolves to the same output or error. If the task becomes a dead letter and is deleted, the key is free at once: by
    /// [`DeadLetters::delete`](super::DeadLetters::delete), or because of the limits of dead letters.
    ///
    /// It cannot be combined with [`until_started`](Self::until_started), [`replace`](Self::replace) or
    /// [`debounce`](Self::debounce).
    ///
    /// # Examples
    ///
    /// At most one mail an hour and user:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::durable::{Key, SpawnOptions};
    ///
    /// let key = Key::new("user 7").throttle(Duration::from_secs(3600));
    /// let options = SpawnOptions::new().key(key);
    /// # drop(options);
    /// ```
    #[must_use]
    pub fn throttle(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Delays the task until no spawn with the key has come for this time. Each spawn [replaces](Self::replace) the payload and starts
    /// the time again. If spawns never pause for so long, the task never starts, unless [`at_latest`](Self::at_latest) is set.
    ///
    /// It cannot be combined with [`SpawnOptions::delay`](super::SpawnOptions::delay) or [`reject`](Self::reject).
    ///
    /// # Examples
    ///
    /// See [`Key`].
    #[must_use]
    pub fn debounce(mut self, time: Duration) -> Self {
        self.debounce = Some(time);
        self.replace()
    }

    /// Limits a [`debounce`](Self::debounce): the task is due no later than this time after it was stored. It needs a `debounce`.
    ///
    /// # Examples
    ///
    /// See [`Key`].
    #[must_use]
    pub fn at_latest(mut self, time: Duration) -> Self {
        self.latest = Some(time);
        self
    }

    /// If another task holds the key, the spawn fails with an error that [`is_conflict`](super::DurableError::is_conflict). Nothing is
    /// stored, and [`task_id`](super::DurableError::task_id) returns the id of the task that holds the key.
    ///
    /// It cannot be combined with [`replace`](Self::replace) or [`debounce`](Self::debounce).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Import { user: u64 }
    /// # impl DurableTask for Import { const NAME: &'static str = "import"; type Output = (); }
    /// use throng::durable::{Key, SpawnOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let exclusive = || SpawnOptions::new().key(Key::new("user 7").reject());
    /// let import = client.spawn_with(Import { user: 7 }, exclusive()).await?;
    /// let error = client.spawn_with(Import { user: 7 }, exclusive()).await.unwrap_err();
    /// assert!(error.is_conflict());
    /// assert_eq!(error.task_id(), Some(import.id()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reject(mut self) -> Self {
        self.rejects = true;
        self
    }

    /// If another task holds the key, gives that task the payload and the delay of this spawn; the delay starts again. The handles of
    /// all spawns await that task, which keeps its id, its priority, its group and its other options. As with
    /// [`until_started`](Self::until_started), a task holds the key only until a worker claims it, so a payload is never replaced
    /// once a run has started.
    ///
    /// If the task that holds the key was spawned without `replace`, `debounce` and `until_started`, this spawn joins it, and the new
    /// payload is dropped.
    ///
    /// The last payload counts only if each spawn is awaited before the next one. If spawns overlap, an older payload may replace a
    /// newer one. This also applies within a [`spawn_all_with`](super::DurableClient::spawn_all_with) of more than one request.
    ///
    /// In Redis, it takes about 40 ns for each task that waits behind it to replace the payload of a task that is no longer delayed.
    /// With 100,000 of them, a replacement takes 4 ms, in which the server does nothing else.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Index { revision: u32 }
    /// # impl DurableTask for Index { const NAME: &'static str = "index"; type Output = u32; }
    /// # impl Run<()> for Index {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.revision) }
    /// # }
    /// use throng::durable::{Key, SpawnOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let latest = || SpawnOptions::new().key(Key::new("document 7").replace());
    /// client.spawn_with(Index { revision: 1 }, latest()).await?;
    /// let handle = client.spawn_with(Index { revision: 2 }, latest()).await?;
    /// assert!(handle.has_replaced());
    /// # let _executor = DurableExecutor::builder(client.clone()).register::<Index>().start(()).await?;
    ///
    /// assert_eq!(handle.await?, 2); // the task runs once, with the second payload
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replaces = true;
        self.until_started()
    }

    /// Returns the delay that `debounce` and `at_latest` set, if any.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let latest = self.latest.unwrap_or(Duration::MAX);
        self.debounce.map(|time| time.min(latest))
    }

    /// Returns the key for a task with this name in this queue.
    ///
    /// # Errors
    ///
    /// The options exclude each other. The error is the reason and the remedy.
    pub(crate) fn of(&self, name: &str, queue: &QueueName) -> Result<NewKey, String> {
        let reason = if self.replaces && !self.window.is_zero() {
            "`throttle` cannot be combined with `replace` or `debounce`: a task that has ended cannot get a new payload; \
             remove one of them"
        } else if self.is_until_started && !self.window.is_zero() {
            "`throttle` cannot be combined with `until_started`: a spawn within the window would start no task; remove \
             one of them"
        } else if self.replaces && self.rejects {
            "`reject` cannot be combined with `replace` or `debounce`: a new task does one or the other; remove one of them"
        } else if self.latest.is_some() && self.debounce.is_none() {
            "`at_latest` limits a `debounce`: add one, or remove `at_latest`"
        } else {
            return Ok(self.new_key(name, queue));
        };
        Err(String::from(reason))
    }

    fn new_key(&self, name: &str, queue: &QueueName) -> NewKey {
        NewKey {
            hash: KeyHash::of(name, queue, &self.text),
            conflict: match (self.rejects, self.replaces) {
                (true, _) => Conflict::Reject,
                (_, true) => Conflict::Replace,
                _ => Conflict::Join,
            },
            is_until_started: self.is_until_started,
            window: self.window,
            latest: self.latest,
        }
    }
}

impl KeyHash {
    fn of(name: &str, queue: &QueueName, text: &str) -> Self {
        let mut hash = Sha256::new();
        // The lengths keep ("ab", "c") and ("a", "bc") apart.
        for part in [name, queue.as_str()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(text);
        let hash = hash.finalize();
        Self(std::array::from_fn(|i| hash[i]))
    }

    /// Returns the key of the tasks of a schedule. The hash begins with a length that no name of a type has, so it differs from
    /// that of every [`Key`].
    pub fn of_schedule(name: &str) -> Self {
        let hash = Sha256::new().chain_update(u64::MAX.to_le_bytes());
        let hash = hash.chain_update(name).finalize();
        Self(std::array::from_fn(|i| hash[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_a_type_and_a_queue() {
        let (default, gpu) = (QueueName::DEFAULT, QueueName::new("gpu").unwrap());
        let hash = |name, queue, text| Key::new(text).of(name, queue).unwrap().hash;
        assert_eq!(hash("a", &gpu, "b"), hash("a", &gpu, "b"));
        let all = [
            hash("a", &gpu, "b"),
            hash("a", &default, "b"),
            hash("a", &default, "gpub"),
            hash("agpu", &default, "b"),
            hash("a", &gpu, ""),
        ];
        for (nth, one) in all.iter().enumerate() {
            assert!(!all[nth + 1..].contains(one), "{nth}");
        }
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        let (second, key) = (Duration::from_secs(1), || Key::new("k"));
        // The message names the options to choose from, so it also says which check has refused the key.
        let refused = |key: Key, options: &str| {
            let reason = key.of("a", &QueueName::DEFAULT).unwrap_err();
            assert!(reason.starts_with(options), "{reason}");
        };
        let replaces = "`throttle` cannot be combined with `replace`";
        refused(key().replace().throttle(second), replaces);
        refused(key().throttle(second).debounce(second), replaces);
        let starts = "`throttle` cannot be combined with `until_started`";
        refused(key().until_started().throttle(second), starts);
        let rejects = "`reject` cannot be combined with `replace`";
        refused(key().debounce(second).reject(), rejects);
        refused(key().reject().debounce(second), rejects);
        refused(key().replace().reject(), rejects);
        refused(key().at_latest(second), "`at_latest` limits a `debounce`");
    }

    #[test]
    fn a_debounced_key_delays_no_longer_than_its_limit() {
        let second = Duration::from_secs(1);
        let debounced = Key::new("k").debounce(3 * second).at_latest(second);
        assert_eq!(debounced.delay(), Some(second));
        let debounced = debounced.of("a", &QueueName::DEFAULT).unwrap();
        assert!(debounced.is_until_started);
        assert_eq!(debounced.conflict, Conflict::Replace);
    }
}
