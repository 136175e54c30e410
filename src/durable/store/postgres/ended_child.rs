//! [`EndedChild`]: a child of which its parent is to be told.

use crate::durable::TaskId;
use crate::durable::store::TaskState;

/// A child that has ended, of which its parent is still to be told.
#[derive(Debug)]
pub(super) struct EndedChild {
    pub(super) parent: TaskId,
    pub(super) child: TaskId,
    pub(super) end: TaskState,
}
