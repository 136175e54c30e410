//! [`RelayedOutbox`]: an outbox in a database without a store, as a relay sees it.

use std::future::Future;
use std::pin::Pin;

use super::{OutboxEntry, OutboxLook};
use crate::durable::TaskId;
use crate::durable::failure::Failure;

/// The answer of an outbox. It is awaited on the thread of the relay.
pub(crate) type RelayedAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>;

/// An outbox in a database without a store.
///
/// Several relays may move its rows. A request that fails has changed nothing, or has removed rows whose tasks are stored. The next request
/// connects again if that is necessary.
pub(crate) trait RelayedOutbox: Send {
    /// Checks that there is an outbox, and that this process may move its rows.
    fn open(&mut self) -> RelayedAnswer<'_, ()>;

    /// Looks for rows.
    fn look(&mut self) -> RelayedAnswer<'_, OutboxLook>;

    /// Returns the number of rows of later versions, which stay in the outbox.
    fn count_newer(&mut self) -> RelayedAnswer<'_, u64>;

    /// Reads the next rows, which are removed or given back afterwards.
    fn take(&mut self) -> RelayedAnswer<'_, TakenRows>;

    /// Removes rows that were taken.
    fn remove<'a>(&'a mut self, rows: &'a [TakenRow]) -> RelayedAnswer<'a, ()>;

    /// Lets other relays take the rows that were taken.
    fn give_back(&mut self) -> RelayedAnswer<'_, ()>;

    /// Returns those of these tasks that are in the outbox.
    fn find(&mut self, ids: Vec<TaskId>) -> RelayedAnswer<'_, Vec<TaskId>>;
}

/// Rows that a relay is to move.
pub(crate) struct TakenRows {
    pub(crate) rows: Vec<TakenRow>,
    /// `true` if there may be more.
    pub(crate) more: bool,
}

/// A row that a relay is to move.
#[derive(PartialEq)]
pub(crate) struct TakenRow {
    /// The bytes by which the outbox finds the row. Rows with different ids have different keys, whether or not the ids are those of tasks.
    pub(crate) key: Vec<u8>,
    pub(crate) entry: OutboxEntry,
}
