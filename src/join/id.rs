//! [`Id`]: identifies a task.

use std::cell::Cell;
use std::fmt;

use crate::sync::Number;

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
