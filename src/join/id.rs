//! Names of tasks.

use std::cell::Cell;
use std::fmt;

use crate::sync::Number;

/// Names a task among all that this process has spawned with this crate.
///
/// As with [`tokio::task::Id`], the numbers say nothing about the order in which tasks were spawned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u64);

impl Id {
    /// A number that no other task has.
    ///
    /// Each thread takes a block of numbers at a time, so that threads which spawn do not meet here.
    #[inline]
    pub(crate) fn next() -> Self {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        NEXT.with(|next| {
            let id = match next.get() {
                id if id % BLOCK == 0 => block(),
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

/// How many numbers a thread takes at a time.
const BLOCK: u64 = 1 << 12;

/// The first number of a new block.
#[cold]
fn block() -> u64 {
    static BLOCKS: Number = Number::new(0);
    // The block's first number is skipped: it is the one that says that the block is used up.
    BLOCKS.add(1) as u64 * BLOCK + 1
}
