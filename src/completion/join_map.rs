//! [`JoinMap`]: a [`JoinSet`] whose tasks have keys.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};

use tokio::runtime::Handle;
use tokio::task::LocalSet;

use super::join_set::JoinSet;
use crate::join::{AbortHandle, Id, JoinError};

/// A [`JoinSet`] whose tasks have keys, with the interface of `JoinMap` in `tokio_util::task`.
///
/// Each key has at most one task. Spawning a task under a key that is in the map aborts the previous task, whose outcome
/// is not returned. When the map is dropped, its tasks are aborted.
///
/// Unlike `tokio_util`'s `JoinMap`, this one has no `spawn_blocking_on`.
///
/// # Examples
///
/// ```
/// use throng::completion::JoinMap;
///
/// # #[tokio::main] async fn main() {
/// let mut map = JoinMap::new();
/// map.spawn("query", std::future::pending());
/// // A newer query replaces the first.
/// map.spawn("query", async { 7 });
///
/// let (key, outcome) = map.join_next().await.expect("one task is left");
/// assert_eq!((key, outcome.unwrap()), ("query", 7));
/// assert!(map.join_next().await.is_none());
/// # }
/// ```
#[must_use = "dropping a map aborts its tasks"]
pub struct JoinMap<K, V, S = RandomState> {
    /// Also has the tasks that were replaced and have not ended.
    set: JoinSet<V>,
    tasks: HashMap<Id, KeyedTask<K>>,
    /// The ids of `tasks` by the hashes of their keys: a key is in one place only, so that it need not be `Clone`.
    ids: HashMap<u64, Vec<Id>>,
    hasher: S,
}

struct KeyedTask<K> {
    key: K,
    hash: u64,
    abort: AbortHandle,
}

impl<K, V> JoinMap<K, V> {
    /// An empty map.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// let map = JoinMap::<&str, u32>::new();
    /// assert!(map.is_empty());
    /// ```
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty map with room for at least `capacity` tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// let map = JoinMap::<&str, u32>::with_capacity(10);
    /// assert!(map.capacity() >= 10);
    /// ```
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S> JoinMap<K, V, S> {
    /// Creates an empty map that hashes keys with `hasher`.
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Creates an empty map with room for at least `capacity` tasks, which hashes keys with `hasher`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::hash::RandomState;
    ///
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut map = JoinMap::with_capacity_and_hasher(10, RandomState::new());
    /// map.spawn("index", async { 7 });
    /// assert!(map.contains_key("index"));
    /// # }
    /// ```
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self {
            set: JoinSet::new(),
            tasks: HashMap::with_capacity(capacity),
            ids: HashMap::with_capacity(capacity),
            hasher,
        }
    }

    /// Returns the number of tasks that the map can hold before its tables grow.
    pub fn capacity(&self) -> usize {
        self.tasks.capacity().min(self.ids.capacity())
    }

    /// Reserves room in the tables of the map for at least `additional` more tasks.
    ///
    /// # Panics
    ///
    /// Panics if the new capacity overflows [`usize`].
    pub fn reserve(&mut self, additional: usize) {
        self.tasks.reserve(additional);
        self.ids.reserve(additional);
    }

    /// Shrinks the tables of the map as far as possible.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// let mut map = JoinMap::<&str, u32>::new();
    /// map.reserve(100);
    /// map.shrink_to_fit();
    /// assert!(map.capacity() < 100);
    /// ```
    pub fn shrink_to_fit(&mut self) {
        self.shrink_to(0);
    }

    /// Shrinks the tables of the map, but keeps room for at least `min_capacity` tasks.
    pub fn shrink_to(&mut self, min_capacity: usize) {
        self.tasks.shrink_to(min_capacity);
        self.ids.shrink_to(min_capacity);
    }

    /// The number of tasks that are in the map: spawned, not replaced and not joined.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", async {});
    /// map.spawn("query", std::future::pending());
    /// // A newer query replaces the first, which no longer counts.
    /// map.spawn("query", async {});
    /// assert_eq!(map.len(), 2);
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns `true` if no task is in the map.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The keys of the tasks in the map, in no particular order.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", async {});
    /// assert!(map.keys().eq([&"index"]));
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.tasks.values().map(|task| &task.key)
    }

    /// Returns `true` if the map contains a task with this id.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut map = JoinMap::new();
    /// map.spawn("endless", std::future::pending::<()>());
    /// map.abort("endless");
    /// let (_, outcome) = map.join_next().await.expect("one task was spawned");
    /// let id = outcome.unwrap_err().id();
    /// // It was joined, so it is no longer in the map.
    /// assert!(!map.contains_task(&id));
    /// # }
    /// ```
    pub fn contains_task(&self, id: &Id) -> bool {
        self.tasks.contains_key(id)
    }
}

impl<K, V: 'static, S> JoinMap<K, V, S> {
    /// Aborts the tasks whose keys match. They stay in the map until they are joined.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut map = JoinMap::new();
    /// map.spawn("crawl example.org", std::future::pending());
    /// map.spawn("index", async {});
    /// map.abort_matching(|key| key.starts_with("crawl"));
    /// while let Some((key, outcome)) = map.join_next().await {
    ///     assert_eq!(outcome.is_err(), key.starts_with("crawl"));
    /// }
    /// # }
    /// ```
    pub fn abort_matching(&mut self, mut matches: impl FnMut(&K) -> bool) {
        let matching = self.tasks.values().filter(|task| matches(&task.key));
        matching.for_each(|task| task.abort.abort());
    }

    /// Aborts all tasks. They stay in the map until they are joined.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", std::future::pending::<()>());
    /// map.abort_all();
    /// let (key, outcome) = map.join_next().await.expect("one task was spawned");
    /// assert!(key == "index" && outcome.unwrap_err().is_cancelled());
    /// # Ok(()) }
    /// ```
    pub fn abort_all(&mut self) {
        self.set.abort_all();
    }

    /// Lets all tasks run on, and removes them from the map.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// let (finished, is_finished) = tokio::sync::oneshot::channel();
    /// map.spawn("index", async move { finished.send(()) });
    /// map.detach_all();
    /// assert!(map.is_empty());
    /// assert!(is_finished.await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn detach_all(&mut self) {
        self.set.detach_all();
        self.tasks.clear();
        self.ids.clear();
    }

    /// Aborts all tasks, and waits until they have ended. Their outputs are dropped.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks are aborted, and those that have not ended stay in the map.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", std::future::pending::<()>());
    /// map.shutdown().await;
    /// assert!(map.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
        // Those that were replaced.
        self.set.shutdown().await;
    }

    /// Waits until a task in the map has ended, and returns its key and its output. Returns `None` if the map is
    /// empty.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", async { 7 });
    /// while let Some((key, outcome)) = map.join_next().await {
    ///     assert_eq!((key, outcome?), ("index", 7));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn join_next(&mut self) -> Option<(K, Result<V, JoinError>)> {
        while !self.is_empty() {
            let joined = self.set.join_next_with_id().await?;
            let next = self.remove(joined);
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Returns the key and the output of a task that has ended. Returns `None` if there is none, without waiting.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", std::future::pending::<()>());
    /// assert!(map.try_join_next().is_none());
    /// # Ok(()) }
    /// ```
    pub fn try_join_next(&mut self) -> Option<(K, Result<V, JoinError>)> {
        loop {
            let joined = self.set.try_join_next_with_id()?;
            let next = self.remove(joined);
            if next.is_some() {
                return next;
            }
        }
    }

    /// Removes a task that has ended. `None` if it was replaced.
    fn remove(&mut self, joined: Result<(Id, V), JoinError>) -> Option<(K, Result<V, JoinError>)> {
        let (id, outcome) = match joined {
            Ok((id, output)) => (id, Ok(output)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.remove_task(id)?.key, outcome))
    }

    fn remove_task(&mut self, id: Id) -> Option<KeyedTask<K>> {
        let task = self.tasks.remove(&id)?;
        if let Some(ids) = self.ids.get_mut(&task.hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.ids.remove(&task.hash);
            }
        }
        Some(task)
    }
}

impl<K: Hash + Eq, V: 'static, S: BuildHasher> JoinMap<K, V, S> {
    /// Runs a future on the current Tokio runtime, and aborts the previous task with this key.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn("index", async { 7 });
    /// assert!(map.contains_key("index"));
    /// # Ok(()) }
    /// ```
    pub fn spawn<F>(&mut self, key: K, future: F)
    where
        F: Future<Output = V> + Send + 'static,
        V: Send,
    {
        let abort = self.set.spawn(future);
        self.insert(key, abort);
    }

    /// Runs a future on this Tokio runtime, and aborts the previous task with this key.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn_on("index", async { 7 }, &tokio::runtime::Handle::current());
    /// let (key, outcome) = map.join_next().await.expect("one task was spawned");
    /// assert_eq!((key, outcome?), ("index", 7));
    /// # Ok(()) }
    /// ```
    pub fn spawn_on<F>(&mut self, key: K, future: F, runtime: &Handle)
    where
        F: Future<Output = V> + Send + 'static,
        V: Send,
    {
        let abort = self.set.spawn_on(future, runtime);
        self.insert(key, abort);
    }

    /// Runs a closure that may block on the blocking threads of the current Tokio runtime, and aborts the previous task
    /// with this key. A closure that has started cannot be aborted: it runs to its end, and its output is dropped.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut map = JoinMap::new();
    /// map.spawn_blocking("manifest", || std::fs::read_to_string("Cargo.toml"));
    /// let (key, manifest) = map.join_next().await.expect("a task is in the map");
    /// assert_eq!(key, "manifest");
    /// assert!(manifest??.contains("[package]"));
    /// # Ok(()) }
    /// ```
    pub fn spawn_blocking<F>(&mut self, key: K, f: F)
    where
        F: FnOnce() -> V + Send + 'static,
        V: Send,
    {
        let abort = self.set.spawn_blocking(f);
        self.insert(key, abort);
    }

    /// Runs a future, which need not be `Send`, on the current [`LocalSet`] or local runtime, and aborts the previous
    /// task with this key.
    ///
    /// # Panics
    ///
    /// Panics outside of a [`LocalSet`] and of a local runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    /// use std::rc::Rc;
    /// use tokio::task::LocalSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let local = LocalSet::new();
    /// let joined = local.run_until(async {
    ///     let mut map = JoinMap::new();
    ///     map.spawn_local("index", async { Rc::new(7) });
    ///     map.join_next().await
    /// });
    /// let (key, outcome) = joined.await.expect("one task was spawned");
    /// assert_eq!((key, *outcome?), ("index", 7));
    /// # Ok(()) }
    /// ```
    pub fn spawn_local<F>(&mut self, key: K, future: F)
    where
        F: Future<Output = V> + 'static,
    {
        let abort = self.set.spawn_local(future);
        self.insert(key, abort);
    }

    /// Runs a future, which need not be `Send`, on this [`LocalSet`], and aborts the previous task with this key.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    /// use std::rc::Rc;
    /// use tokio::task::LocalSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (local, mut map) = (LocalSet::new(), JoinMap::new());
    /// map.spawn_local_on("index", async { Rc::new(7) }, &local);
    /// let (key, outcome) = local.run_until(map.join_next()).await.expect("one task was spawned");
    /// assert_eq!((key, *outcome?), ("index", 7));
    /// # Ok(()) }
    /// ```
    pub fn spawn_local_on<F>(&mut self, key: K, future: F, local_set: &LocalSet)
    where
        F: Future<Output = V> + 'static,
    {
        let abort = self.set.spawn_local_on(future, local_set);
        self.insert(key, abort);
    }

    /// Aborts the task with this key, which stays in the map until it is joined. Returns `false` if there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut map = JoinMap::new();
    /// map.spawn("endless".to_string(), std::future::pending::<()>());
    /// assert!(map.abort("endless"));
    /// let (_, outcome) = map.join_next().await.expect("one task was spawned");
    /// assert!(outcome.unwrap_err().is_cancelled());
    /// # }
    /// ```
    pub fn abort<Q>(&mut self, key: &Q) -> bool
    where
        Q: Hash + Eq + ?Sized,
        K: Borrow<Q>,
    {
        let task = self.id_of(key).and_then(|id| self.tasks.get(&id));
        task.inspect(|task| task.abort.abort()).is_some()
    }

    /// Returns `true` if the map contains a task with this key.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinMap;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut map = JoinMap::new();
    /// map.spawn("index".to_string(), async {});
    /// assert!(map.contains_key("index"));
    ///
    /// map.join_next().await;
    /// assert!(!map.contains_key("index"));
    /// # }
    /// ```
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Eq + ?Sized,
        K: Borrow<Q>,
    {
        self.id_of(key).is_some()
    }

    fn id_of<Q>(&self, key: &Q) -> Option<Id>
    where
        Q: Hash + Eq + ?Sized,
        K: Borrow<Q>,
    {
        let ids = self.ids.get(&self.hasher.hash_one(key))?;
        let has_key = |id: &&Id| {
            self.tasks
                .get(id)
                .is_some_and(|task| task.key.borrow() == key)
        };
        ids.iter().find(has_key).copied()
    }

    fn insert(&mut self, key: K, abort: AbortHandle) {
        let replaced = self.id_of(&key).and_then(|id| self.remove_task(id));
        let id = abort.id();
        let hash = self.hasher.hash_one(&key);
        self.ids.entry(hash).or_default().push(id);
        self.tasks.insert(id, KeyedTask { key, hash, abort });
        // Last: the drop of the replaced key may panic.
        if let Some(replaced) = replaced {
            replaced.abort.abort();
        }
    }
}

impl<K, V, S: Default> Default for JoinMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V, S> fmt::Debug for JoinMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.tasks.values().map(|task| &task.key);
        f.debug_set().entries(keys).finish()
    }
}
