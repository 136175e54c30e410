//! [`Registry`]: holds the watched parts, and reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use super::group::Group;
use super::kind::PartKind;
use super::numbers::{MAX_NAMES, OTHER};
use super::part::Part;
#[cfg(feature = "metrics")]
use super::published::Published;
use super::snapshot::{PartSnapshot, Snapshot};
use super::watched::NewPart;
use crate::sync::{Arc, Mutex, lock};
use crate::weak_part::Owned;

/// Parts of this process whose numbers are read on demand. Clones are the same registry.
///
/// See the [module documentation](super) for what holds for watched parts.
///
/// # Examples
///
/// ```
/// use throng::watch::Registry;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = throng::BlockingPool::builder().max_threads(4).build()?;
/// let registry = Registry::new();
/// registry.watch("db", &pool);
/// assert!(registry.prometheus().contains("\nthrong_blocking_threads_max{pool=\"db\"} 4\n"));
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    state: Arc<Mutex<State>>,
}

/// The watched parts by kind and name.
#[derive(Default)]
struct State {
    groups: BTreeMap<(PartKind, String), Group>,
    #[cfg(feature = "metrics")]
    published: Published,
}

impl Registry {
    /// Makes a registry that watches nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// let registry = throng::watch::Registry::new();
    /// assert!(registry.snapshot().parts().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the registry of the process, which programs can use instead of passing one around. No part is in it unless it
    /// is put there.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::watch::Registry;
    ///
    /// let pool = throng::ComputePool::new();
    /// Registry::global().watch("parse", &pool);
    /// assert!(Registry::global().prometheus().contains("pool=\"parse\""));
    /// ```
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        GLOBAL.get_or_init(Self::new)
    }

    /// Watches a part under a name, until the part is gone.
    ///
    /// Parts of one kind with the same name are added up; a part that is watched twice under one name counts once. For each
    /// kind, the first 64 names are distinguished, and parts with further names are added up under the name `other`. Use
    /// names that the program has, such as `"db"`, rather than data such as ids.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::watch::{PartKind, Registry};
    ///
    /// let registry = Registry::new();
    /// let sessions = [1, 2, 3].map(SerialExecutor::new);
    /// for session in &sessions {
    ///     registry.watch("session", session);
    /// }
    /// let snapshot = registry.snapshot();
    /// let sessions = snapshot.part(PartKind::SerialExecutor, "session").expect("they are watched");
    /// assert_eq!(sessions.live(), 3);
    /// ```
    pub fn watch(&self, name: impl Into<String>, part: &impl Part) {
        let (name, part) = (name.into(), part.new_part());
        lock(&self.state).add(name, part);
    }

    /// Reads all watched parts.
    ///
    /// If the last handle of a part goes away meanwhile, this call drops what the part holds, such as the state of a
    /// [`SerialExecutor`](crate::SerialExecutor). A panic of that drop is contained.
    ///
    /// The numbers of all tasks of a store are not part of it: see `snapshot_with_stores`, with the feature `durable`.
    ///
    /// # Examples
    ///
    /// See [`Snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        let mut owned = Vec::new();
        let snapshot = lock(&self.state).read(&mut owned);
        // Without the lock, since this may drop values of the user.
        drop(owned);
        snapshot
    }

    /// Reads all watched parts, and returns their numbers in the text format of Prometheus, version 0.0.4.
    ///
    /// A short form of [`snapshot`](Self::snapshot) and [`Snapshot::prometheus`].
    ///
    /// # Examples
    ///
    /// ```
    /// let text = throng::watch::Registry::new().prometheus();
    /// assert!(text.starts_with("# HELP throng_build_info "));
    /// ```
    pub fn prometheus(&self) -> String {
        self.snapshot().prometheus()
    }

    #[cfg(feature = "metrics")]
    pub(super) fn with_published<R>(&self, f: impl FnOnce(&mut Published) -> R) -> R {
        f(&mut lock(&self.state).published)
    }
}

impl State {
    fn add(&mut self, name: String, NewPart { kind, part }: NewPart) {
        let mut key = (kind, name);
        if !self.groups.contains_key(&key) {
            let names = self.groups.keys().filter(|(other, _)| *other == kind);
            if names.count() >= MAX_NAMES {
                key.1 = OTHER.into();
            }
        }
        self.groups.entry(key).or_default().add(part);
    }

    fn read(&mut self, owned: &mut Vec<Owned>) -> Snapshot {
        let now = Instant::now();
        let parts = self.groups.iter_mut().map(|((kind, name), group)| {
            let read = group.read(now, owned);
            PartSnapshot::new(*kind, name, read)
        });
        let parts = parts.filter(|part| !part.samples.is_empty()).collect();
        let took = now.elapsed();
        Snapshot { parts, took }
    }
}

#[cfg(feature = "durable")]
mod durable {
    use super::{Instant, Owned, Registry, Snapshot, State, lock};
    use crate::watch::kind::PartKind;
    use crate::watch::names::durable::STORE;
    use crate::watch::numbers::Sample;
    use crate::watch::snapshot::PartSnapshot;
    use crate::watch::stores::{OverviewAnswer, Question, answer_of, numbers_of};
    use crate::watch::value::Value;

    impl Registry {
        /// As [`snapshot`](Self::snapshot), and also asks the watched stores for the numbers of all their tasks.
        ///
        /// A store is asked at most every five seconds, however often this is called: later calls within this time get the
        /// same answer. If a store does not answer within two seconds, its numbers are absent, and `throng_durable_store_up`
        /// is 0. Clients that are watched under one name are taken for clients of one store.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future has no effect.
        ///
        /// # Examples
        ///
        /// ```
        /// use throng::durable::{DurableClient, MemoryStore};
        /// use throng::watch::Registry;
        ///
        /// # #[tokio::main] async fn main() {
        /// let client = DurableClient::open(MemoryStore::new());
        /// let registry = Registry::new();
        /// registry.watch("jobs", &client);
        /// let text = registry.snapshot_with_stores().await.prometheus();
        /// assert!(text.contains("\nthrong_durable_tasks{store=\"jobs\",state=\"waiting\"} 0\n"));
        /// # }
        /// ```
        pub async fn snapshot_with_stores(&self) -> Snapshot {
            let mut owned = Vec::new();
            let questions = lock(&self.state).ask_stores(&mut owned);
            drop(owned);
            let mut answers = Vec::with_capacity(questions.len());
            for (name, answer) in questions {
                answers.push((name, answer_of(answer).await));
            }
            let mut snapshot = self.snapshot();
            for (name, overview) in answers {
                let mut parts = snapshot.parts.iter_mut();
                let store = parts.find(|it| it.kind == PartKind::DurableStore && it.name == name);
                match (store, overview) {
                    (Some(store), Some(overview)) => {
                        store.samples.extend(numbers_of(overview).into_samples());
                    }
                    (Some(store), None) => store.is_down(),
                    (None, _) => {}
                }
            }
            snapshot
        }
    }

    impl State {
        /// Asks the stores that were not asked for a while. Returns the questions that were asked last, by name.
        fn ask_stores(&mut self, owned: &mut Vec<Owned>) -> Vec<(String, Vec<OverviewAnswer>)> {
            let now = Instant::now();
            let groups = self.groups.iter_mut();
            let stores = groups.filter(|((kind, _), _)| *kind == PartKind::DurableStore);
            let questions = stores.map(|((_, name), group)| {
                if group.question.is_due(now) {
                    let asked = group.parts().filter_map(|part| part.ask_overview());
                    let asked = asked.map(|(answer, client)| {
                        owned.push(client);
                        answer
                    });
                    group.question = Question::new(now, asked.collect());
                }
                (name.clone(), group.question.answers())
            });
            questions.collect()
        }
    }

    impl PartSnapshot {
        /// The store has not answered, whatever this process has seen before.
        fn is_down(&mut self) {
            let up = &STORE[0].family;
            let samples = self.samples.iter_mut();
            for Sample { value, .. } in samples.filter(|it| std::ptr::eq(it.family, up)) {
                *value = Value::Count(0);
            }
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_set().entries(state.groups.keys()).finish()
    }
}
