//! [`Overflow`]: what becomes of a task for which there is no room.

use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;

use super::BlockingPool;
use crate::join::{JoinHandle, Work, is_pool_thread};
use crate::task::{Fault, Task, Thunk};
use crate::unwind::contain;

/// What becomes of a task for which there is no room.
///
/// It is about [`spawn_blocking`](BlockingPool::spawn_blocking) and
/// [`spawn_batch`](BlockingPool::spawn_batch): [`try_spawn_blocking`](BlockingPool::try_spawn_blocking)
/// always hands the closure back, and [`reserve`](BlockingPool::reserve) waits. Each such task counts in
/// [`rejected`](super::Metrics::rejected), whatever becomes of it.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// Its handle ends with [`is_rejected`](crate::JoinError::is_rejected).
    #[default]
    Reject,
    /// Its submitter runs it, on its own thread, before it gets the handle: so who submits too fast is
    /// slowed down. A submitter in a Tokio runtime is not, since it would hold up all tasks of its worker:
    /// there, the task is rejected. (A thread of a [`BlockingPool`] is in a runtime, too, and may.)
    RunOnCaller,
    /// The same, also in a Tokio runtime. Use it where submitters run in `block_in_place` or have a
    /// runtime of their own.
    RunOnAnyCaller,
    /// It is dropped, and its handle ends with [`is_cancelled`](crate::JoinError::is_cancelled).
    DropNewest,
    /// The task that has waited the longest is dropped for it, whose handle ends with
    /// [`is_cancelled`](crate::JoinError::is_cancelled). If none waits, it is rejected.
    DropOldest,
    /// It goes to a handler, on the thread of its submitter, which may run it there, hand it to another
    /// executor ([`Spawn`](crate::Spawn)), or drop it: then its handle ends with
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    Custom(OverflowHandler),
}

/// What takes the tasks for which there is no room: see [`Overflow::Custom`].
pub type OverflowHandler = StdArc<dyn Fn(Work) + Send + Sync>;

impl Overflow {
    /// [`Overflow::Custom`], of a closure.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::{BlockingPool, Spawn};
    /// use throng::blocking::Overflow;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let spare = BlockingPool::builder().name("spare").build()?;
    /// let pool = BlockingPool::builder()
    ///     .max_threads(1)
    ///     .queue_capacity(0)
    ///     .overflow(Overflow::custom(move |work| drop(spare.spawn_work(work))))
    ///     .build()?;
    /// let slow = pool.spawn_blocking(|| std::thread::sleep(std::time::Duration::from_millis(50)));
    /// assert_eq!(pool.spawn_blocking(|| "done elsewhere").await?, "done elsewhere");
    /// slow.await?;
    /// # Ok(()) }
    /// ```
    pub fn custom(handler: impl Fn(Work) + Send + Sync + 'static) -> Self {
        Self::Custom(StdArc::new(handler))
    }
}

// A panic of a handler is contained, and changes nothing of ours.
impl UnwindSafe for Overflow {}
impl RefUnwindSafe for Overflow {}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "Reject",
            Self::RunOnCaller => "RunOnCaller",
            Self::RunOnAnyCaller => "RunOnAnyCaller",
            Self::DropNewest => "DropNewest",
            Self::DropOldest => "DropOldest",
            Self::Custom(_) => "Custom(..)",
        })
    }
}

impl BlockingPool {
    /// Does with a closure for which there is no room what the policy says.
    #[cold]
    #[track_caller]
    pub(super) fn overflow<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match &self.shared().options.overflow {
            Overflow::RunOnCaller if is_async_worker() => rejected(f, ON_ASYNC_WORKER),
            Overflow::RunOnCaller | Overflow::RunOnAnyCaller => hand_over(f, Work::run),
            Overflow::DropNewest => hand_over(f, drop),
            Overflow::Custom(handler) => hand_over(f, |work| contain(|| handler(work))),
            Overflow::DropOldest => self.spawn_for_oldest(f),
            Overflow::Reject => rejected(f, FULL),
        }
    }

    #[track_caller]
    fn spawn_for_oldest<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.shared().replace_oldest() {
            true => self.spawn_entered(f).unwrap_or_else(JoinHandle::refused),
            false => rejected(f, FULL),
        }
    }
}

const FULL: &str = "the queue is full";
const ON_ASYNC_WORKER: &str = "the queue is full, and its submitter is in a Tokio runtime, where it must \
                               not block: `Overflow::RunOnAnyCaller` runs it there all the same";

fn rejected<F, R: 'static>(f: F, why: &'static str) -> JoinHandle<R> {
    contain(|| drop(f));
    let why = io::Error::new(io::ErrorKind::WouldBlock, why);
    JoinHandle::failed(Fault::rejected(why))
}

fn hand_over<F, R>(f: F, to: impl FnOnce(Work)) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (task, watch) = Task::joinable(Thunk(f));
    to(Work::new(task));
    JoinHandle::waiting(watch)
}

/// Whether this thread may be one that polls tasks.
fn is_async_worker() -> bool {
    Handle::try_current().is_ok() && !is_pool_thread()
}
