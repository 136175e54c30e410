//! The positions of tasks in lists, as cursors contain them.

use uuid::Uuid;

use crate::durable::store::ListTasks;

/// The position after an entry in a line: the columns of the table `ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AfterLine {
    pub(super) kind: i64,
    /// The name of the group as it is stored, which is empty for tasks without one.
    pub(super) group: String,
    pub(super) place: i64,
}

/// The position after a task in a list that is in the order of a number and of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AfterId {
    pub(super) number: i64,
    pub(super) id: Uuid,
}

/// The bytes of a kind and a place.
const LINE_BYTES: usize = 16;

impl AfterLine {
    /// Returns the position at which a page begins, or `None` if it is not valid. The first page begins after the last line: lines are
    /// listed from their ends on, and kinds are negative.
    pub(super) fn of(request: &ListTasks) -> Option<Self> {
        match &request.after {
            Some(bytes) => Self::read(bytes),
            None => Some(Self {
                kind: 0,
                group: String::new(),
                place: 0,
            }),
        }
    }

    /// Reads a position, which may come from a stranger.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let ([len], group) = rest.split_first_chunk()?;
        let group = std::str::from_utf8(group).ok()?;
        let is_valid = group.len() == usize::from(*len) && !group.contains('\0');
        is_valid.then(|| Self {
            kind: i64::from_be_bytes(*kind),
            group: group.to_owned(),
            place: i64::from_be_bytes(*place),
        })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { kind, group, place } = self;
        let mut bytes = Vec::with_capacity(LINE_BYTES + 1 + group.len());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(place.to_be_bytes());
        // The length tells such a position from those of other lists.
        bytes.push(group.len() as u8);
        bytes.extend(group.as_bytes());
        bytes
    }
}

impl AfterId {
    pub(super) const FIRST: Self = Self {
        number: 0,
        id: Uuid::nil(),
    };

    /// Returns the position after all tasks with a number.
    pub(super) const fn last_at(number: i64) -> Self {
        let id = Uuid::max();
        Self { number, id }
    }

    /// Returns the position at which a page begins, given that of the first page, or `None` if it is not valid.
    pub(super) fn of(request: &ListTasks, first: Self) -> Option<Self> {
        match &request.after {
            Some(bytes) => Self::read(bytes),
            None => Some(first),
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (number, id) = bytes.split_first_chunk()?;
        Some(Self {
            number: i64::from_be_bytes(*number),
            id: Uuid::from_bytes(id.try_into().ok()?),
        })
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], self.id.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        for group in ["", "a", "\u{1}\u{2}\u{fc}", &"g".repeat(128)] {
            let position = AfterLine {
                kind: -7,
                group: group.to_owned(),
                place: i64::MIN,
            };
            assert_eq!(AfterLine::read(&position.to_bytes()), Some(position));
        }
        let position = AfterId::last_at(-3);
        assert_eq!(AfterId::read(&position.to_bytes()), Some(position));
    }

    #[test]
    fn other_bytes_are_no_position() {
        let line = |group: &[u8]| [&[7; 16], &[group.len() as u8][..], group].concat();
        assert!(AfterLine::read(&line(b"a")).is_some());
        for bytes in [&line(b"\0")[..], &line(b"\xff"), &line(b"a")[..17], &[]] {
            assert_eq!(AfterLine::read(bytes), None);
        }
        for len in [0, 23, 25] {
            assert_eq!(AfterId::read(&vec![1; len]), None);
        }
    }
}
