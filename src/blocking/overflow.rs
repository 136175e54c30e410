//! [`Overflow`]: what happens to a task that finds the queue full.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::join::Work;

/// The policy for a task that finds the queue full.
///
/// The policy applies to [`spawn_blocking`](crate::BlockingPool::spawn_blocking) and
/// [`spawn_batch`](crate::BlockingPool::spawn_batch). [`try_spawn_blocking`](crate::BlockingPool::try_spawn_blocking)
/// always returns the closure, and [`reserve`](crate::BlockingPool::reserve) waits. Each task that finds the queue
/// full counts as [`rejected`](super::Metrics::rejected), whatever the policy does with it.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use throng::{BlockingPool, Spawn};
/// use throng::blocking::Overflow;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let spare = BlockingPool::builder().name("spare").build()?;
/// let pool = BlockingPool::builder()
///     .max_threads(1)
///     .queue_capacity(0)
///     .overflow(Overflow::Custom(Arc::new(move |work| drop(spare.spawn_work(work)))))
///     .build()?;
/// let slow = pool.spawn_blocking(|| std::thread::sleep(std::time::Duration::from_millis(50)));
/// assert_eq!(pool.spawn_blocking(|| "done elsewhere").await?, "done elsewhere");
/// slow.await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// The handle fails with [`is_rejected`](crate::JoinError::is_rejected).
    #[default]
    Reject,
    /// The submitting thread runs the task before it gets the handle, which slows down a caller that submits too
    /// fast. Inside a Tokio runtime the task is rejected instead, since running it there would hold up all tasks of
    /// the worker. (A thread of a [`BlockingPool`](crate::BlockingPool) may run it, although it is in a runtime.)
    RunOnCaller,
    /// The task that has waited longest is dropped to make room, and its handle fails with
    /// [`is_cancelled`](crate::JoinError::is_cancelled). If none waits, the new task is rejected.
    DropOldest,
    /// A handler receives the task on the submitting thread. It can [run](Work::run) the task there, even inside a Tokio
    /// runtime, pass it to another executor ([`Spawn`](crate::Spawn)), or drop it, in which case the handle fails with
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    Custom(Arc<dyn Fn(Work) + Send + Sync>),
}

// A panic of a handler is contained, and leaves nothing of the pool half changed.
impl UnwindSafe for Overflow {}
impl RefUnwindSafe for Overflow {}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "Reject",
            Self::RunOnCaller => "RunOnCaller",
            Self::DropOldest => "DropOldest",
            Self::Custom(_) => "Custom(..)",
        })
    }
}
