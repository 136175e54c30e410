//! Aborting a task from elsewhere.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::Id;
use crate::task::Abort;

/// Aborts a task, from wherever it is kept: see [`JoinHandle::abort_handle`](crate::JoinHandle::abort_handle).
///
/// It neither keeps the task running nor waits for it. Cloning it panics if the task already has 16 million
/// handles; aborting never panics.
#[derive(Clone)]
pub struct AbortHandle {
    id: Id,
    /// `None`: the task was complete at birth.
    cell: Option<Abort>,
}

impl AbortHandle {
    pub(crate) fn new(id: Id, cell: Option<Abort>) -> Self {
        Self { id, cell }
    }

    /// Ends the task, as [`JoinHandle::abort`](crate::JoinHandle::abort) does.
    pub fn abort(&self) {
        if let Some(cell) = &self.cell {
            cell.abort();
        }
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.cell.as_ref().is_none_or(Abort::is_complete)
    }

    /// The task's name.
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
