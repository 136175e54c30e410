//! [`TaskDetail`]: what a store knows about one task.

use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::json;
use crate::durable::{AttemptError, Priority, TaskInfo};

/// What a store knows about one task: see [`Admin::task`](crate::durable::Admin::task).
///
/// A field is `None` if it does not apply to tasks of this [status](TaskInfo::status), or if the store does not know it. Which changes
/// apply depends on the status: see [`TaskChange::applies_to`](crate::durable::TaskChange::applies_to).
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
/// use throng::durable::TaskChange;
///
/// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let handle = client.spawn(SendMail { to: "a@b.c".into() }).await?;
///
/// let detail = client.admin().task(handle.id()).await?.expect("it was spawned");
/// let payload = detail.payload.as_ref().expect("the store has it");
/// assert_eq!(payload.as_str(), Some(r#"{"to":"a@b.c"}"#));
/// assert!(TaskChange::Cancel.applies_to(detail.task.status));
/// println!("{}", serde_json::to_string_pretty(&detail)?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskDetail {
    /// What a list says about the task.
    pub task: TaskInfo,
    /// The priority of the task, or `None` if the task has succeeded or was cancelled, or its payload is not known.
    pub priority: Option<Priority>,
    /// The state of the task's [key](crate::durable::SpawnOptions::key). It is `None` if the task has no key, has succeeded or was
    /// cancelled. A store may also forget a key that the task held [until it started](crate::durable::Key::until_started).
    pub key: Option<KeyState>,
    /// The [version](crate::durable::DurableTask::VERSION) of the type that has encoded the payload, or `None` without a payload.
    pub version: Option<u8>,
    /// The [encoded](crate::durable::DurableTask::encode) task, or `None` if the task has succeeded or was cancelled, or if the payload is
    /// [lost](Self::damage). With Redis, it is also `None` if the task waits, its payload has at most about 500 bytes, and the task is
    /// neither among the first nor among the last hundred tasks of its list.
    pub payload: Option<Excerpt>,
    /// The output of a task that has succeeded, which is JSON.
    pub output: Option<Excerpt>,
    /// Why a part of the task cannot be read, or `None` if the store has found no damage.
    pub damage: Option<String>,
    /// The errors of the attempts after which the task was tried again: at most the last 8, the oldest first.
    pub errors: Vec<AttemptError>,
    /// The whole last error of a dead letter.
    pub error: Option<String>,
    /// The last [progress](crate::durable::TaskContext::progress) that a run of the task has reported, which is JSON.
    pub progress: Option<Excerpt>,
    /// `true` if the task is running, and is to be [cancelled](crate::durable::DurableHandle::cancel).
    pub is_cancel_requested: bool,
    /// The time until the lease of a running task expires, unless its worker renews it.
    #[serde(serialize_with = "json::optional_millis")]
    pub lease_left: Option<Duration>,
    /// The worker that runs the task.
    pub runner: Option<Runner>,
}

/// The state of the key of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyState {
    /// The task holds its key.
    Held,
    /// The task does not hold its key any more.
    Released,
}

/// The worker that runs a task, as far as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Runner {
    /// The number of the worker's [session](crate::durable::WorkerInfo::session) in the store. It is serialised as a text, since JavaScript
    /// would round it.
    #[serde(serialize_with = "json::number")]
    pub session: u64,
    /// A description of the process, or `None` if the store has none: the session may be gone, and
    /// [`MemoryStore`](crate::durable::MemoryStore) belongs to one process.
    pub process: Option<String>,
    /// `true` if the worker has not renewed its lease in time. If it does not do so before the lease expires again, the task goes to
    /// another worker.
    pub is_suspect: bool,
}

/// The beginning of some bytes: at most 64 KiB.
///
/// It is serialised as an object with the length `len`, and with the bytes as `text` if they are UTF-8 and else as hexadecimal digits in
/// `hex`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Excerpt {
    /// The bytes, of which a longer text is cut before a character that does not fit.
    pub bytes: Vec<u8>,
    /// The length of all bytes.
    pub len: usize,
}

/// The maximum number of bytes of an excerpt.
pub(crate) const MAX_EXCERPT_BYTES: usize = 64 << 10;

impl Excerpt {
    /// Returns the excerpt of `len` bytes, given at least its part of them.
    pub(crate) fn new(bytes: &[u8], len: usize) -> Self {
        let bytes = &bytes[..bytes.len().min(MAX_EXCERPT_BYTES)];
        Self {
            bytes: if bytes.len() < len { cut(bytes) } else { bytes }.to_vec(),
            len,
        }
    }

    /// Returns `true` if these are all bytes.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() == self.len
    }

    /// Returns the bytes as a text, or `None` if they are not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

/// Removes the part of a character at the end of a text.
fn cut(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

impl Serialize for Excerpt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Excerpt", 2)?;
        fields.serialize_field("len", &self.len)?;
        match self.as_str() {
            Some(text) => fields.serialize_field("text", text)?,
            None => {
                let hex = self.bytes.iter().map(|byte| format!("{byte:02x}"));
                fields.serialize_field("hex", &hex.collect::<String>())?;
            }
        }
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_ends_with_a_whole_character() {
        let text = "\u{fc}".repeat(MAX_EXCERPT_BYTES / 2);
        let odd = format!("x{text}");
        let excerpt = Excerpt::new(odd.as_bytes(), odd.len());
        assert_eq!(excerpt.bytes.len(), MAX_EXCERPT_BYTES - 1);
        assert_eq!(excerpt.as_str(), Some(&odd[..MAX_EXCERPT_BYTES - 1]));
        assert!(!excerpt.is_whole());
        let even = Excerpt::new(text.as_bytes(), text.len());
        assert!(even.is_whole() && even.as_str() == Some(&text));
    }

    #[test]
    fn bytes_that_are_no_text_are_cut_anywhere() {
        let bytes = vec![255; MAX_EXCERPT_BYTES + 1];
        let excerpt = Excerpt::new(&bytes, bytes.len());
        assert_eq!(excerpt.bytes.len(), MAX_EXCERPT_BYTES);
        assert_eq!(excerpt.as_str(), None);
        // A whole value that ends within a character is shown as it is.
        assert_eq!(Excerpt::new(b"x\xc3", 2).bytes, b"x\xc3");
    }

    #[test]
    fn an_excerpt_is_serialised_as_text_or_as_digits() {
        let json = |bytes: &[u8]| serde_json::to_string(&Excerpt::new(bytes, 9)).unwrap();
        assert_eq!(json(b"{}"), r#"{"len":9,"text":"{}"}"#);
        assert_eq!(json(b"\xff\x01"), r#"{"len":9,"hex":"ff01"}"#);
    }
}
