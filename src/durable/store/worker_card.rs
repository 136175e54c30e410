//! [`WorkerCard`]: the description of a worker that its session stores.

use serde::{Deserialize, Serialize};

use super::shortened;
use crate::durable::queue::name::QueueName;

/// The maximum size in bytes of a card in a store.
pub(crate) const MAX_CARD_BYTES: usize = 1024;
/// The maximum number of names of types on a card.
const MAX_NAMES: usize = 64;
/// The maximum size of the name of a program or of a host. In JSON, each byte may need six.
const MAX_NAME_BYTES: usize = 48;

/// A description of the worker whose session it belongs to. It is stored once, when the session is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerCard {
    /// The name of the queue, which is empty for the default queue.
    pub queue: String,
    /// The maximum number of tasks that the worker runs at once in this queue.
    pub permits: usize,
    /// The first names of the types that the worker knows, in alphabetical order.
    pub types: Vec<String>,
    /// The number of the other names.
    pub other_types: usize,
    /// The name of the program.
    pub program: String,
    /// The name of the machine.
    pub host: String,
    /// The number of the process.
    pub process: u32,
    /// The version of this crate.
    pub version: String,
    /// The oldest and the newest layout that the process knows. A store in memory has no layout.
    pub layouts: Option<(i64, i64)>,
}

impl WorkerCard {
    /// Returns the card of a worker of this process.
    pub fn new(
        queue: &QueueName,
        permits: usize,
        names: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let mut types: Vec<_> = names.into_iter().map(String::from).collect();
        types.sort_unstable();
        let program = std::env::current_exe().unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        let system = rustix::system::uname();
        Self {
            queue: queue.as_str().to_owned(),
            permits,
            other_types: types.len().saturating_sub(MAX_NAMES),
            types: types.into_iter().take(MAX_NAMES).collect(),
            program: shortened(program.into_owned(), MAX_NAME_BYTES),
            host: shortened(
                system.nodename().to_string_lossy().into_owned(),
                MAX_NAME_BYTES,
            ),
            process: std::process::id(),
            version: String::from(env!("CARGO_PKG_VERSION")),
            layouts: None,
        }
        .fitting()
    }

    /// Removes names of types until the card is not too large.
    fn fitting(mut self) -> Self {
        // The layouts may be added later.
        const ROOM: usize = 32;
        while self.to_bytes().len() > MAX_CARD_BYTES - ROOM && self.types.pop().is_some() {
            self.other_types += 1;
        }
        self
    }

    /// Returns the card in its stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a card. One that cannot be read is empty.
    #[cfg(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> QueueName {
        QueueName::DEFAULT
    }

    fn names(number: usize, name: impl Fn(usize) -> String) -> Vec<&'static str> {
        (0..number).map(|n| &*name(n).leak()).collect()
    }

    #[test]
    fn a_card_is_read_as_it_was_written() {
        let card = WorkerCard::new(&queue(), 7, ["b", "a"]);
        assert_eq!(card.types, ["a", "b"]);
        assert_eq!((card.other_types, card.permits), (0, 7));
        assert_eq!(card.process, std::process::id());
        assert!(!card.program.is_empty() && !card.host.is_empty());
        assert_eq!(WorkerCard::read(&card.to_bytes()), card);
    }

    #[test]
    fn a_card_that_cannot_be_read_is_empty() {
        for bytes in [&b""[..], b"{", b"[1]", b"\xff", b"{\"permits\":-1}"] {
            assert_eq!(WorkerCard::read(bytes), WorkerCard::default());
        }
        assert_eq!(WorkerCard::read(b"{\"permits\":3,\"new\":1}").permits, 3);
    }

    #[test]
    fn a_card_has_the_first_names() {
        let names = names(100, |n| format!("{n:02}"));
        let card = WorkerCard::new(&queue(), 1, names.iter().copied());
        assert_eq!(card.types, names[..MAX_NAMES]);
        assert_eq!(card.other_types, 100 - MAX_NAMES);
    }

    #[test]
    fn a_card_is_not_larger_than_its_maximum() {
        let long = names(100, |n| format!("{n:03}-{}", "x".repeat(96)));
        let controls = names(9, |n| format!("{n}{}", "\u{1}".repeat(250)));
        let largest = names(1, |_| "x".repeat(2_000));
        for names in [long, controls, largest] {
            let mut card = WorkerCard::new(&queue(), usize::MAX, names.iter().copied());
            card.layouts = Some((1_000_000, 1_000_001));
            let (kept, len) = (card.types.len(), card.to_bytes().len());
            assert!(len <= MAX_CARD_BYTES, "{len}");
            assert_eq!(card.other_types, names.len() - kept);
            assert_eq!(card.types, names[..kept]);
        }
        let mut card = WorkerCard::new(&queue(), usize::MAX, []);
        card.queue = "q".repeat(64);
        (card.program, card.host) = (
            "\u{1}".repeat(MAX_NAME_BYTES),
            "\u{1}".repeat(MAX_NAME_BYTES),
        );
        assert!(card.fitting().to_bytes().len() <= MAX_CARD_BYTES);
    }
}
