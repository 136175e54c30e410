//! [`AbortHandle`]: aborts a task from anywhere.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::id::Id;
use crate::task::Abort;

/// Aborts a task: see [`JoinHandle::abort_handle`](crate::JoinHandle::abort_handle).
///
/// It neither keeps the task running nor waits for it, and it can be cloned and can outlive the
/// [`JoinHandle`](crate::JoinHandle). Aborting never panics; cloning panics if the task already has 16 million handles.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let task = throng::spawn_blocking(|| 1);
/// let abort = task.abort_handle();
/// assert_eq!(task.await?, 1);
/// assert!(abort.is_finished());
/// // The task has ended, so this does nothing.
/// abort.abort();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    id: Id,
    /// `None` if the task had ended when the handle was created.
    task: Option<Abort>,
}

impl AbortHandle {
    pub(crate) fn new(id: Id, task: Option<Abort>) -> Self {
        Self { id, task }
    }

    /// Aborts the task, as [`JoinHandle::abort`](crate::JoinHandle::abort) does.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(1).build()?;
    /// let (release, released) = std::sync::mpsc::channel::<()>();
    /// let busy = pool.spawn_blocking(move || released.recv());
    /// let queued = pool.spawn_blocking(|| unreachable!("it is aborted first"));
    /// queued.abort_handle().abort();
    /// assert!(queued.await.unwrap_err().is_cancelled());
    /// # drop(release);
    /// # assert!(busy.await?.is_err());
    /// # Ok(()) }
    /// ```
    pub fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// Returns `true` if the task has ended, whether with an output or with an error.
    ///
    /// # Examples
    ///
    /// See [`AbortHandle`].
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(Abort::is_complete)
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.id
    }
}

// As Tokio's.
impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("id", &self.id)
            .field("finished", &self.is_finished())
            .finish()
    }
}
