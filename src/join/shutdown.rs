//! The end of an executor: the one implementation of `shutdown`, `shutdown_now` and `blocking_shutdown`.

use std::time::{Duration, Instant};

use super::block_on::block_on_until;

/// An executor that can be closed.
pub(crate) trait Close {
    /// Accepts no more tasks. What was accepted still runs.
    fn close(&self);

    /// Waits until the executor is closed and everything that it accepted has ended.
    fn closed(&self) -> impl Future<Output = ()> + Send;

    /// Aborts the tasks that have not started, and returns their number.
    fn abort_queued(&self) -> usize;
}

/// Closes, and waits until `timeout` is over at most. Then aborts what has not started, and returns the number of
/// tasks aborted.
pub(crate) async fn shutdown(executor: &impl Close, timeout: Duration) -> usize {
    executor.close();
    // Polls `closed` first, so a timeout of zero never aborts anything in an executor that has ended.
    match tokio::time::timeout(timeout, executor.closed()).await {
        Ok(()) => 0,
        Err(_) => executor.abort_queued(),
    }
}

/// Closes, and aborts what has not started.
pub(crate) fn shutdown_now(executor: &impl Close) -> usize {
    executor.close();
    executor.abort_queued()
}

/// As [`shutdown`], for a thread that is not async: blocks it.
pub(crate) fn blocking_shutdown(executor: &impl Close, timeout: Duration) -> usize {
    executor.close();
    // A timeout that no clock can express has no end.
    let end = Instant::now().checked_add(timeout);
    match block_on_until(executor.closed(), end) {
        true => 0,
        false => executor.abort_queued(),
    }
}
