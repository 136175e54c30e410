//! [`Timeouts`]: the timeouts of a connection, and the pauses between attempts to connect.

use std::time::Duration;

use crate::retry::Retry;

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
    /// The time without an answer after which a connection is pinged.
    pub(super) ping_interval: Duration,
}

/// The pauses between attempts to connect, and between attempts to send a request that the server defers.
pub(super) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(50))
    .cap(Duration::from_secs(1));
