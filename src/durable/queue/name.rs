//! [`QueueName`]: the name of a queue.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a queue, or the default queue, which has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Option<String>", into = "Option<String>")]
pub struct QueueName(Option<Arc<str>>);

/// The maximum length of a name in bytes. Stores keep the length in one byte.
const MAX_BYTES: usize = 64;

/// Checks the name of a queue or of a schedule: `kind` says which.
///
/// # Errors
///
/// The name is invalid. Returns the reason, and the remedy.
pub(crate) fn check_name(name: &str, kind: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    match name.len() {
        1..=MAX_BYTES if name.bytes().all(is_allowed) => Ok(()),
        _ => Err(format!(
            "{name:?} cannot be the name of a {kind}: use 1 to {MAX_BYTES} ASCII letters, digits, and the characters `._:/-`"
        )),
    }
}

impl QueueName {
    /// The default queue.
    pub const DEFAULT: Self = Self(None);

    /// Returns the queue with this name.
    ///
    /// # Errors
    ///
    /// This cannot be the name of a queue. Returns the reason, and the remedy.
    pub fn new(name: &str) -> Result<Self, String> {
        check_name(name, "queue")?;
        Ok(Self(Some(name.into())))
    }

    /// Returns `true` for the default queue.
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the name as it is displayed. The parentheses distinguish the default queue from one that has this name.
    #[cfg(feature = "tracing")]
    pub fn shown(&self) -> &str {
        self.0.as_deref().unwrap_or("(default)")
    }

    /// Returns the name, which is empty for the default queue.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<Option<String>> for QueueName {
    fn from(name: Option<String>) -> Self {
        Self(name.map(Arc::from))
    }
}

impl From<QueueName> for Option<String> {
    fn from(name: QueueName) -> Self {
        name.0.as_deref().map(str::to_owned)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "the queue {name:?}"),
            None => f.write_str("the default queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        let longest = "n".repeat(64);
        for name in ["a", "mail.send", "gpu/eu-1:x_9"] {
            assert!(QueueName::new(name).is_ok(), "{name}");
        }
        assert_eq!(QueueName::new(&longest).unwrap().as_str(), longest);
        for name in [
            "",
            " a",
            "a b",
            "a\n",
            "\u{e4}",
            "{a}",
            &(longest.clone() + "n"),
        ] {
            assert!(QueueName::new(name).is_err(), "{name}");
        }
    }
}
