//! [`Kind`] and [`TypeSet`]: the types of tasks, as stores identify them.

use std::fmt;
use std::iter;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::durable::envelope::{KNOWN_PAYLOAD_ENVELOPES, LONG_ENVELOPE, SHORT_ENVELOPE};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;

/// The type of a task, as stores identify it: a hash of its name and of the version of its envelope.
///
/// It consists of the first 7 bytes of the SHA-256 hash of the version of the envelope, in one byte, and the name, and of the
/// [version](crate::durable::DurableTask::VERSION) of the type minus 1. The highest bit is set, so the signed number is negative.
/// Stores save it with each task, and use it to find the workers that know the type. Since it includes both versions, a build never
/// claims a task that it cannot read: the task waits for a build that can.
///
/// In a named queue, or with a [`Priority`] other than normal, the type has another kind: see [`placed`](Self::placed).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Kind(i64);

impl Kind {
    /// Returns the type of the tasks with this name that this build stores.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub fn of(name: &str) -> Self {
        Self::in_envelope(name, SHORT_ENVELOPE)
    }

    /// Returns the types of the tasks with this name that are in envelopes which this build can read, as those of version 1.
    pub fn all_of(name: &str) -> [Self; KNOWN_PAYLOAD_ENVELOPES.len()] {
        KNOWN_PAYLOAD_ENVELOPES.map(|envelope| Self::in_envelope(name, envelope))
    }

    /// Returns the types of the tasks with this name that a build can read which knows the versions up to `newest`.
    fn readable(name: &str, newest: u8) -> impl Iterator<Item = Self> {
        let long = Self::in_envelope(name, LONG_ENVELOPE);
        let short = Self::in_envelope(name, SHORT_ENVELOPE);
        iter::once(short).chain((1..=newest).map(move |version| long.with_version(version)))
    }

    /// Returns the type of the tasks with this name that are in an envelope, and of version 1.
    pub fn in_envelope(name: &str, envelope: u8) -> Self {
        let hash = hash(&[&[envelope], name.as_bytes()].concat());
        Self(hash | i64::MIN).with_version(1)
    }

    /// Returns another version of this type. Versions begin with 1.
    pub fn with_version(self, version: u8) -> Self {
        Self(self.0 & !0xff | i64::from(version.saturating_sub(1)))
    }

    /// Returns the kind of the tasks of this type that are in a queue and have a priority. In the default queue, with the normal
    /// priority, it is this kind itself. Otherwise, it consists of the first 8 bytes of a SHA-256 hash, with the highest bit set. The
    /// hash is that of this kind, the priority in one byte, and the name of the queue.
    pub fn placed(self, queue: &QueueName, priority: Priority) -> Self {
        if queue.is_default() && priority == Priority::Normal {
            return self;
        }
        let placed = [
            &self.to_bytes()[..],
            &[priority as u8],
            queue.as_str().as_bytes(),
        ];
        Self(hash(&placed.concat()) | i64::MIN)
    }

    /// Returns the kind that a task with this kind and name has after it moves from one queue to another, and its priority. Returns `None`
    /// if this build reads no type with this name that has this kind in the first queue.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn moved(self, name: &str, from: &QueueName, to: &QueueName) -> Option<(Self, Priority)> {
        let types = Self::readable(name, u8::MAX);
        let mut all = types.flat_map(|kind| Priority::ALL.map(|priority| (kind, priority)));
        let found = all.find(|(kind, priority)| kind.placed(from, *priority) == self);
        found.map(|(kind, priority)| (kind.placed(to, priority), priority))
    }

    /// Returns the kind with a number that [`number`](Self::number) has returned.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number by which a store identifies the kind. It is negative.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn number(self) -> i64 {
        self.0
    }

    /// Returns the number in big-endian bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({:016x})", self.0)
    }
}

/// The types that a worker has registered, and the queue of which it runs the tasks.
///
/// A worker declares its set when it opens a session, and a claim of that session contains only tasks of
/// these types in this queue. A worker that serves several queues has a session for each. Stores do not distinguish
/// workers with equal sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "StoredTypeSet", into = "StoredTypeSet")]
pub struct TypeSet {
    id: SetId,
    queue: QueueName,
    /// Sorted and distinct.
    types: Arc<[Kind]>,
    /// The kinds of the types in the queue, with their types and priorities; sorted.
    placed: Arc<[(Kind, Kind, Priority)]>,
}

/// The id of a [`TypeSet`] in stores: a hash of its types and its queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetId(i64);

/// A [`TypeSet`] in a store.
#[derive(Serialize, Deserialize)]
struct StoredTypeSet {
    types: Vec<Kind>,
    #[serde(default, skip_serializing_if = "QueueName::is_default")]
    queue: QueueName,
}

impl From<StoredTypeSet> for TypeSet {
    fn from(stored: StoredTypeSet) -> Self {
        Self::of(stored.types).in_queue(stored.queue)
    }
}

impl From<TypeSet> for StoredTypeSet {
    fn from(set: TypeSet) -> Self {
        Self {
            types: set.types.to_vec(),
            queue: set.queue,
        }
    }
}

impl TypeSet {
    /// Returns the set of version 1 of the types with these names: see [`of_versions`](Self::of_versions).
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub fn of_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, (&'a str, &'a str)> {
        Self::of_versions(names.into_iter().map(|name| (name, 1)))
    }

    /// Returns the set of the types with these names, in each envelope that this build reads, in the default queue. A type has all
    /// versions up to the one beside its name.
    ///
    /// # Errors
    ///
    /// If two different names have the same kind, so no store could distinguish them. Returns the names.
    pub fn of_versions<'a>(
        types: impl IntoIterator<Item = (&'a str, u8)>,
    ) -> Result<Self, (&'a str, &'a str)> {
        let kinds_of = |(name, newest)| Kind::readable(name, newest).map(move |kind| (kind, name));
        let mut named: Vec<_> = types.into_iter().flat_map(kinds_of).collect();
        named.sort_unstable();
        named.dedup();
        match named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err((pair[0].1, pair[1].1)),
            None => Ok(Self::of(named.into_iter().map(|(kind, _)| kind))),
        }
    }

    /// Returns the set of these types in the default queue.
    pub fn of(types: impl IntoIterator<Item = Kind>) -> Self {
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_unstable();
        types.dedup();
        Self::new(types.into(), QueueName::DEFAULT)
    }

    /// Returns the set of the same types in another queue.
    pub fn in_queue(&self, queue: QueueName) -> Self {
        Self::new(Arc::clone(&self.types), queue)
    }

    fn new(types: Arc<[Kind]>, queue: QueueName) -> Self {
        let mut bytes: Vec<_> = types.iter().flat_map(|kind| kind.to_bytes()).collect();
        bytes.extend(queue.as_str().as_bytes());
        let all = Priority::ALL.into_iter().flat_map(|priority| {
            let queue = &queue;
            let place = move |&kind: &Kind| (kind.placed(queue, priority), kind, priority);
            types.iter().map(place)
        });
        let mut placed: Vec<_> = all.collect();
        placed.sort_unstable();
        Self {
            id: SetId(hash(&bytes)),
            placed: placed.into(),
            types,
            queue,
        }
    }

    /// The types of the tasks in the tests of the stores.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(crate) fn of_tests() -> Option<Self> {
        Some(Self::of(["job", "other", "name", "a", "b"].map(Kind::of)))
    }

    /// Returns the id of the set.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn id(&self) -> SetId {
        self.id
    }

    /// Returns the queue of the set.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Returns the types, in order.
    pub fn types(&self) -> &[Kind] {
        &self.types
    }

    /// Returns the kinds of the tasks in this set, with their types and priorities.
    pub fn placed(&self) -> &[(Kind, Kind, Priority)] {
        &self.placed
    }

    /// Returns the type and the priority of the tasks of a kind, if the set contains them.
    pub fn find(&self, kind: Kind) -> Option<(Kind, Priority)> {
        let found = self.placed.binary_search_by_key(&kind, |placed| placed.0);
        found.ok().map(|at| (self.placed[at].1, self.placed[at].2))
    }

    /// Returns `true` if the set contains a kind.
    #[cfg(any(test, feature = "test-util", feature = "unstable-store"))]
    pub fn knows(&self, kind: Kind) -> bool {
        self.find(kind).is_some()
    }
}

impl SetId {
    /// Returns the id with a number that [`number`](Self::number) has returned.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Returns the id as a number.
    #[cfg(any(feature = "sqlite-unbundled", feature = "unstable-store"))]
    pub fn number(self) -> i64 {
        self.0
    }

    /// Returns the number in big-endian bytes.
    #[cfg(any(feature = "redis", feature = "unstable-store"))]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetId({:016x})", self.0)
    }
}

fn hash(bytes: &[u8]) -> i64 {
    let digest = Sha256::digest(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}
