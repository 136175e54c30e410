//! [`spawn`]: a Tokio task with a handle of this crate.

use std::future::Future;

use tokio::runtime::Handle;

use super::handle::JoinHandle;
use super::work::Work;
use crate::task::{Polled, Task};

/// Runs a future as a task of the current Tokio runtime.
///
/// This is [`tokio::spawn`] with the [handle and error types](JoinHandle) of this crate, so that one collection can hold
/// handles to futures, to closures on a pool, and to jobs of a [`SerialExecutor`](crate::SerialExecutor). If all tasks are
/// futures, use `tokio::spawn`.
///
/// # Errors
///
/// The handle fails with [`is_panic`](crate::JoinError::is_panic) if the future panics, and with
/// [`is_cancelled`](crate::JoinError::is_cancelled) if the task is aborted, or dropped by its runtime, before it ends. After
/// an abort, the runtime drops the future at its next await point, or soon if it waits already.
///
/// # Panics
///
/// Panics outside of a Tokio runtime.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let tasks = [throng::spawn(async { 1 }), throng::spawn_blocking(|| 2)];
/// let mut sum = 0;
/// for task in tasks {
///     sum += task.await?;
/// }
/// assert_eq!(sum, 3);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let runtime = Handle::current();
    let (task, join_ref) = Task::joinable(Polled(future));
    drop(runtime.spawn(Work::new(task)));
    JoinHandle::waiting(join_ref)
}
