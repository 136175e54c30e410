//! [`Id`]: identifies a task, and [`try_id`]: which task runs.

use std::cell::Cell;
use std::fmt;

use crate::sync::Number;

crate::sync::plain_thread_local! {
    // The id of the task that runs on this thread, or zero, which is no id.
    static RUNNING: Cell<u64> = Cell::new(0);
}

/// Returns the id of the task that runs on this thread, if it is a closure of a
/// [`BlockingPool`](crate::BlockingPool).
///
/// It is the counterpart of [`tokio::task::try_id`]. In tasks of the other parts, and outside of tasks, it returns
/// `None`: closures of a [`ComputePool`](crate::ComputePool) and jobs of a
/// [`SerialExecutor`](crate::SerialExecutor) are so short that recording the id would cost too much.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let task = throng::spawn_blocking(throng::try_id);
/// let id = task.id();
/// assert_eq!(task.await?, Some(id));
/// assert_eq!(throng::try_id(), None);
/// # Ok(()) }
/// ```
pub fn try_id() -> Option<Id> {
    match RUNNING.with(Cell::get) {
        0 => None,
        id => Some(Id(id)),
    }
}

/// Identifies a task among all tasks that this crate has spawned in this process.
///
/// Ids are unique and are not reused. As with [`tokio::task::Id`], their order says nothing about the order in
/// which tasks were spawned.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() {
/// let task = throng::spawn_blocking(|| panic!("on purpose"));
/// let id = task.id();
/// let error = task.await.unwrap_err();
/// assert_eq!(error.id(), id);
/// assert!(error.to_string().starts_with(&format!("task {id} panicked")));
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u64);

impl Id {
    /// Returns a new id.
    ///
    /// Each thread takes a block of ids at a time, so threads that spawn do not contend.
    #[inline]
    pub(crate) fn next() -> Self {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        NEXT.with(|next| {
            let id = match next.get() {
                id if id % BLOCK == 0 => first_of_block(),
                id => id,
            };
            next.set(id + 1);
            Self(id)
        })
    }
}

impl Id {
    /// Makes this the id of the task that runs on this thread, until the guard is dropped.
    #[inline]
    pub(crate) fn enter(self) -> RunningId {
        RunningId(RUNNING.with(|running| running.replace(self.0)))
    }
}

/// The scope in which a task runs. It holds the id of the task that this one is nested in, or zero.
pub(crate) struct RunningId(u64);

impl Drop for RunningId {
    #[inline]
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(self.0));
    }
}

#[cfg(feature = "tracing")]
impl Id {
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Id").field(&self.0).finish()
    }
}

/// The number of ids that a thread takes at a time.
const BLOCK: u64 = 1 << 12;

/// Takes a block, and returns its first id.
#[cold]
fn first_of_block() -> u64 {
    static BLOCKS: Number = Number::new(0);
    // Multiples of the block's size are skipped: `next` takes them for the end of a block.
    BLOCKS.add(1) as u64 * BLOCK + 1
}
