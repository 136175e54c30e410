//! [`Key`]: keeps tasks from being stored more than once.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::TaskId;
use super::queue::name::QueueName;

/// Keeps tasks from being stored more than once: see [`SpawnOptions::key`](super::SpawnOptions::key).
///
/// A task that is stored with a key *holds* it. While it does, another task with this key is not stored: its
/// [`DurableHandle`](super::DurableHandle) awaits the task that holds the key, so it resolves to the same output.
/// [`reject`](Self::reject) and [`replace`](Self::replace) change that.
///
/// A task holds its key until it ends: it succeeds, is cancelled, or becomes a dead letter. It keeps the key while it is
/// delayed, tried again, or taken back from a worker that has died. [`until_started`](Self::until_started) and
/// [`throttle`](Self::throttle) change that.
///
/// A key belongs to one [type](super::DurableTask::NAME) of tasks in one [queue](super::Queue): tasks of other types or in other
/// queues may have the same one.
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
/// The search index of a document is written 30 s after the last of several changes, and 5 minutes after the first one at the
/// latest:
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
    conflict: Conflict,
    debounce: Option<Duration>,
    latest: Option<Duration>,
}

/// What happens to a task whose key another task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Conflict {
    /// It is not stored, and its handle awaits the other task.
    Join,
    /// It is not stored, and this is an error.
    Reject,
    /// The other task gets its payload.
    Replace,
}

/// A key in stores: the first 16 bytes of a SHA-256 hash of the name of the type, the queue, and the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(pub(crate) [u8; 16]);

/// The key of a task that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewKey {
    pub(crate) hash: KeyHash,
    pub(crate) conflict: Conflict,
    /// `true` if a worker that claims the task takes the key from it.
    pub(crate) is_until_started: bool,
    /// The time after it was stored in which the task holds the key although it has ended.
    pub(crate) window: Duration,
    /// If the payload is replaced: the time after it was first stored at which the task is due at the latest.
    pub(crate) latest: Option<Duration>,
}

/// The answer to a request that stores tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Enqueued {
    /// The tasks that were not stored because another task holds their key, in the order of the tasks. All others are
    /// stored.
    pub(crate) conflicts: Vec<KeyConflict>,
}

impl Enqueued {
    /// Returns the answer for `count` tasks from `first` on, as if they were all.
    pub(crate) fn part(&self, first: usize, count: usize) -> Self {
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
pub(crate) struct KeyConflict {
    /// The position of the task in the request.
    pub(crate) position: usize,
    /// The task that holds the key.
    pub(crate) holder: TaskId,
    /// What has happened to the task.
    pub(crate) resolution: Conflict,
}

impl Key {
    /// Returns a key that a task holds until it ends. The text may have any length and any characters.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_until_started: false,
            window: Duration::ZERO,
            conflict: Conflict::Join,
            debounce: None,
            latest: None,
        }
    }

    /// The task holds the key only until a worker claims it for the first time. So after each successful spawn, the task is started
    /// at least once. This excludes [`throttle`](Self::throttle).
    ///
    /// All spawns with the key should use this. If the task that holds the key was spawned without it, that task is joined although
    /// it may have started, or even have ended.
    #[must_use]
    pub fn until_started(mut self) -> Self {
        self.is_until_started = true;
        self
    }

    /// The task holds the key for at least this time after it was stored, even if it ends before. Its end is kept as long, so
    /// handles of others resolve to its output. This excludes [`until_started`](Self::until_started) and [`replace`](Self::replace).
    #[must_use]
    pub fn throttle(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Starts the task after this time without another spawn with the key: each one [replaces](Self::replace) the payload, and the
    /// time begins again. It replaces [`SpawnOptions::delay`](super::SpawnOptions::delay), and excludes [`reject`](Self::reject).
    #[must_use]
    pub fn debounce(mut self, time: Duration) -> Self {
        self.debounce = Some(time);
        self.replace()
    }

    /// Bounds a [debounce](Self::debounce): the task starts no later than this time after its first spawn.
    #[must_use]
    pub fn at_latest(mut self, time: Duration) -> Self {
        self.latest = Some(time);
        self
    }

    /// If another task holds the key, the spawn fails with an error that
    /// [`is_conflict`](super::DurableError::is_conflict).
    #[must_use]
    pub fn reject(mut self) -> Self {
        self.conflict = Conflict::Reject;
        self
    }

    /// If another task holds the key, that task gets the payload of this one and its delay, and all handles await it. A worker
    /// that claims a task takes the key from it, as with [`until_started`](Self::until_started), so no run has seen
    /// the payload that is replaced. If the other task was spawned without this and was claimed before, it is joined instead.
    ///
    /// Spawns are stored in their order only if each one is awaited before the next. Otherwise, also within a large
    /// [`spawn_all_with`](super::DurableClient::spawn_all_with), an older payload may replace a newer one.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.conflict = Conflict::Replace;
        self.until_started()
    }

    /// Returns the delay of the task, if the key sets one.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let latest = self.latest.unwrap_or(Duration::MAX);
        self.debounce.map(|time| time.min(latest))
    }

    /// Returns the key of a task with this name in a queue.
    ///
    /// # Errors
    ///
    /// Its options exclude each other. Returns the reason.
    pub(crate) fn of(&self, name: &str, queue: &QueueName) -> Result<NewKey, String> {
        if self.conflict == Conflict::Replace && !self.window.is_zero() {
            return Err(String::from(
                "a key cannot both throttle and replace: the payload of a task that has ended cannot be replaced",
            ));
        }
        if self.is_until_started && !self.window.is_zero() {
            return Err(String::from(
                "a key cannot both throttle and be held until the task starts: a spawn in the window would start no task",
            ));
        }
        if self.debounce.is_some() && self.conflict != Conflict::Replace {
            return Err(String::from(
                "a key cannot both debounce and reject: a debounce replaces the payload",
            ));
        }
        if self.latest.is_some() && self.debounce.is_none() {
            return Err(String::from("`at_latest` needs `debounce`"));
        }
        Ok(NewKey {
            hash: KeyHash::of(name, queue, &self.text),
            conflict: self.conflict,
            is_until_started: self.is_until_started,
            window: self.window,
            latest: self.latest,
        })
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

    /// Returns the key of the tasks of a schedule. No name of a type is as long as this hash says, so no [`Key`] is the same.
    pub(crate) fn of_schedule(name: &str) -> Self {
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
        let (second, of) = (Duration::from_secs(1), |key: Key| {
            key.of("a", &QueueName::DEFAULT)
        });
        assert!(of(Key::new("k").replace().throttle(second)).is_err());
        assert!(of(Key::new("k").until_started().throttle(second)).is_err());
        assert!(of(Key::new("k").debounce(second).reject()).is_err());
        assert!(of(Key::new("k").at_latest(second)).is_err());
        let debounced = Key::new("k").debounce(3 * second).at_latest(second);
        assert_eq!(debounced.delay(), Some(second));
        let debounced = of(debounced).unwrap();
        assert!(debounced.is_until_started);
        assert_eq!(debounced.conflict, Conflict::Replace);
    }
}
