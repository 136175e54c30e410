//! The answers of stores that have an outbox.

use std::time::Duration;

/// The contents of an outbox, as far as an engine needs to know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutboxLook {
    /// `true` if there are rows that this program can move.
    pub(crate) has_rows: bool,
    /// The time after which to look again.
    pub(crate) interval: Duration,
}

/// The rows that a store has moved from its outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainedOutbox {
    /// The number of rows that were removed.
    pub(crate) moved: u64,
    /// The number of these that could not be read, and are dead letters now.
    pub(crate) unreadable: u64,
    /// `true` if there may be more rows that this program can move.
    pub(crate) more: bool,
    /// The number of rows of later versions, which are left for programs that know them. They are counted once no other rows are left.
    pub(crate) newer: u64,
}
