//! [`TaskId`]: the id of a durable task.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The id of a durable task: 16 bytes, written as a UUID.
///
/// A [new](Self::new) id is ordered by time (version 7). A [derived](Self::derive) id is a hash, so the same data identify
/// the same task.
///
/// # Examples
///
/// ```
/// use throng::durable::TaskId;
///
/// let id = TaskId::derive("invoice", b"2026-11/4711");
/// assert_eq!(id, TaskId::derive("invoice", b"2026-11/4711"));
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; 16]);

impl TaskId {
    /// Returns a new id, which no other task has.
    ///
    /// # Examples
    ///
    /// See [`SpawnOptions::id`](super::SpawnOptions::id).
    #[allow(
        clippy::new_without_default,
        reason = "two ids by default are not equal"
    )]
    pub fn new() -> Self {
        Self(Uuid::now_v7().into_bytes())
    }

    /// Returns the id of `bytes` in the namespace `name`: the start of a SHA-256 hash of both, as a UUID of version 8.
    ///
    /// # Examples
    ///
    /// See [`TaskId`].
    pub fn derive(name: &str, bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(bytes);
        let hash = hash.finalize();
        let start = std::array::from_fn(|i| hash[i]);
        Self(Uuid::new_v8(start).into_bytes())
    }

    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the id.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    for_stores! {
        /// Returns the time since 1970 at which a [new](Self::new) id was created, in whole milliseconds, or `None` for other ids.
        fn created(self) -> Option<Duration> {
            let is_new = self.0[6] >> 4 == 7 && self.0[8] >> 6 == 2;
            let bytes = self.0[..6].iter();
            let millis = bytes.fold(0, |millis: u64, &byte| millis << 8 | u64::from(byte));
            is_new.then(|| Duration::from_millis(millis))
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl FromStr for TaskId {
    type Err = ParseTaskIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = Uuid::try_parse(text).map_err(|error| ParseTaskIdError(error.to_string()))?;
        Ok(Self(id.into_bytes()))
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The error of parsing a text that is not a [`TaskId`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTaskIdError(String);

impl fmt::Display for ParseTaskIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a task id, which looks like a uuid: {}", self.0)
    }
}

impl std::error::Error for ParseTaskIdError {}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_new_id_has_a_time_and_a_derived_one_has_none() {
        let before = SystemTime::now() - Duration::from_millis(1);
        let time = SystemTime::UNIX_EPOCH + TaskId::new().created().unwrap();
        assert!(before <= time && time <= SystemTime::now(), "{time:?}");
        for number in 0..100_u8 {
            assert_eq!(TaskId::derive("job", &[number]).created(), None);
        }
    }
}
