//! [`Cursor`]: a position in a list of tasks or workers.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::durable::Status;

/// A position in a list of tasks or workers: see [`TaskPage::next`](crate::durable::TaskPage::next) and
/// [`WorkersPage::next`](crate::durable::WorkersPage::next).
///
/// A cursor is displayed as letters and digits. Another process that uses the same store can [parse](Self::from_str) this text, for example
/// from a URL. Do not rely on its contents.
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore};
/// use throng::durable::{Cursor, Status, TaskFilter};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let filter = TaskFilter::new(Status::Dead);
/// let first = client.admin().tasks(&filter, None, 50).await?;
/// if let Some(next) = first.next {
///     let parameter = next.to_string(); // for example in a link to the next page
///     let after: Cursor = parameter.parse()?;
///     let second = client.admin().tasks(&filter, Some(&after), 50).await?;
///     println!("{} more tasks", second.tasks.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    list: List,
    position: Vec<u8>,
}

/// A list that has positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum List {
    /// The tasks with a status.
    Tasks(Status),
    Workers,
    /// The waiting tasks, in the order in which they move to another queue.
    Moves,
}

/// The letters that identify the lists.
const LETTERS: [(List, u8); 8] = [
    (List::Tasks(Status::Waiting), b'w'),
    (List::Tasks(Status::Delayed), b'l'),
    (List::Tasks(Status::Running), b'r'),
    (List::Tasks(Status::Done), b'd'),
    (List::Tasks(Status::Dead), b'x'),
    (List::Tasks(Status::Cancelled), b'c'),
    (List::Workers, b'k'),
    (List::Moves, b'm'),
];
/// The maximum length of the text of a cursor, which may come from an untrusted source.
const MAX_TEXT_BYTES: usize = 1024;

impl Cursor {
    for_stores! {
        /// Returns the cursor at a position in the list of tasks with this status.
        fn new(status: Status, position: Vec<u8>) -> Self {
            let list = List::Tasks(status);
            Self { list, position }
        }
    }

    pub(crate) fn of_moves(position: Vec<u8>) -> Self {
        let list = List::Moves;
        Self { list, position }
    }

    for_stores! {
        /// Returns the cursor at a position in the list of workers.
        fn of_workers(position: Vec<u8>) -> Self {
            let list = List::Workers;
            Self { list, position }
        }
    }

    /// Returns the position in a list of tasks with this status, or the reason why there is none.
    pub(crate) fn position_in(&self, status: Status) -> Result<Vec<u8>, String> {
        match self.list {
            List::Tasks(own) if own == status => Ok(self.position.clone()),
            List::Tasks(own) => Err(format!(
                "the cursor is for a list of {own:?} tasks, and the filter selects {status:?} tasks: start with the first page"
            )),
            List::Workers => Err(String::from(
                "the cursor is for the list of workers: start with the first page",
            )),
            List::Moves => Err(String::from(
                "the cursor is for moves to another queue: start with the first page",
            )),
        }
    }

    /// Returns the position among the tasks that move to another queue, or the reason why there is none.
    pub(crate) fn position_in_moves(&self) -> Result<Vec<u8>, String> {
        match self.list {
            List::Moves => Ok(self.position.clone()),
            List::Tasks(_) | List::Workers => Err(String::from(
                "the cursor is not one of moves to another queue: start without a cursor",
            )),
        }
    }

    /// Returns the position in the list of workers, or the reason why there is none.
    pub(crate) fn position_in_workers(&self) -> Result<Vec<u8>, String> {
        match self.list {
            List::Workers => Ok(self.position.clone()),
            List::Tasks(_) | List::Moves => Err(String::from(
                "the cursor is for a list of tasks: start with the first page",
            )),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = LETTERS.iter().find(|it| it.0 == self.list);
        let letter = letter.map_or('?', |it| char::from(it.1));
        write!(f, "{letter}")?;
        let mut bytes = self.position.iter();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A cursor is serialised as its text.
impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let [letter, digits @ ..] = text.as_bytes() else {
            return Err(ParseCursorError);
        };
        let list = LETTERS.iter().find(|it| it.1 == *letter);
        let (pairs, rest) = digits.as_chunks();
        if !rest.is_empty() || text.len() > MAX_TEXT_BYTES {
            return Err(ParseCursorError);
        }
        let position: Option<_> = pairs.iter().map(|&pair| byte_of(pair)).collect();
        match (list, position) {
            (Some(&(list, _)), Some(position)) => Ok(Self { list, position }),
            _ => Err(ParseCursorError),
        }
    }
}

/// Returns the value of two hexadecimal digits.
fn byte_of(pair: [u8; 2]) -> Option<u8> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(16 * high? + low?).ok()
}

/// The error of parsing a text that is not a [`Cursor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCursorError;

impl fmt::Display for ParseCursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a cursor: start with the first page")
    }
}

impl std::error::Error for ParseCursorError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_from_its_text() {
        for (list, _) in LETTERS {
            for position in [vec![], vec![0, 255, 16]] {
                let cursor = Cursor { list, position };
                assert_eq!(cursor.to_string().parse(), Ok(cursor));
            }
        }
        assert_eq!(Cursor::new(Status::Dead, vec![10, 1]).to_string(), "x0a01");
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("w{}", "00".repeat(MAX_TEXT_BYTES));
        for text in ["", "q", "0a", "w0", "w0g", "w+1", "w\u{e9}\u{e9}", &long] {
            assert_eq!(text.parse::<Cursor>(), Err(ParseCursorError), "{text}");
        }
    }
}
