//! [`Kind`] and [`TypeSet`]: the types of tasks, as stores identify them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::durable::envelope::KNOWN_PAYLOAD_ENVELOPES;
#[cfg(test)]
use crate::durable::envelope::PAYLOAD_ENVELOPE;

/// The type of a task, as stores identify it: a hash of its name and of the version of its envelope.
///
/// It consists of the first 8 bytes of the SHA-256 hash of the version, in one byte, and the name. The highest bit is
/// set, so the signed number is negative. Stores save it with each task, and use it to find the
/// workers that know the type. Since it includes the version, a build never claims a task whose
/// envelope it cannot read: the task waits for a build that can.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Kind(i64);

impl Kind {
    /// Returns the type of the tasks with this name that this build stores.
    #[cfg(test)]
    pub(crate) fn of(name: &str) -> Self {
        Self::in_envelope(name, PAYLOAD_ENVELOPE)
    }

    /// Returns the types of the tasks with this name that this build can read.
    pub(crate) fn all_of(name: &str) -> [Self; KNOWN_PAYLOAD_ENVELOPES.len()] {
        KNOWN_PAYLOAD_ENVELOPES.map(|version| Self::in_envelope(name, version))
    }

    pub(crate) fn in_envelope(name: &str, version: u8) -> Self {
        Self(hash(&[&[version], name.as_bytes()].concat()) | i64::MIN)
    }

    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }

    #[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({:016x})", self.0)
    }
}

/// The types that a worker has registered.
///
/// A worker declares its set when it opens a session, and a claim of that session contains only tasks of
/// these types. Stores do not distinguish workers with equal sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeSet {
    id: SetId,
    /// Sorted and distinct.
    kinds: Arc<[Kind]>,
}

/// The id of a [`TypeSet`] in stores: a hash of its kinds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct SetId(i64);

impl TypeSet {
    /// Returns the set of the types with these names, in each envelope that this build reads.
    ///
    /// # Errors
    ///
    /// If two different names have the same kind, so no store could distinguish them. Returns the names.
    pub(crate) fn of_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, (&'a str, &'a str)> {
        let kinds_of = |name| Kind::all_of(name).map(|kind| (kind, name));
        let mut named: Vec<_> = names.into_iter().flat_map(kinds_of).collect();
        named.sort_unstable();
        named.dedup();
        match named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err((pair[0].1, pair[1].1)),
            None => Ok(Self::of(named.into_iter().map(|(kind, _)| kind))),
        }
    }

    pub(crate) fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let bytes: Vec<_> = kinds.iter().flat_map(|kind| kind.to_bytes()).collect();
        Self {
            id: SetId(hash(&bytes)),
            kinds: kinds.into(),
        }
    }

    /// The types of the tasks in the tests of the stores.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Option<Self> {
        Some(Self::of(["job", "other", "name", "a", "b"].map(Kind::of)))
    }

    #[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
    pub(crate) fn id(&self) -> SetId {
        self.id
    }

    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Returns `true` if the set contains a kind.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn knows(&self, kind: Kind) -> bool {
        self.kinds.binary_search(&kind).is_ok()
    }
}

impl SetId {
    #[cfg(any(feature = "redis", feature = "sqlite-unbundled"))]
    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }

    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    #[cfg(feature = "redis")]
    pub(crate) fn to_bytes(self) -> [u8; 8] {
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
