//! The asynchronous job of an executor that has reached the front of the queue, and the guard that it was given.
//!
//! The job is a future in a cell. Its *guard* is the [`Exclusive`](super::Exclusive) that gives it the state. The
//! guard may be moved to another thread, and may outlive the future. So the owner and the guard agree on one word:
//!
//! | word | meaning | set by |
//! |---|---|---|
//! | `FREE` | there is no guard | the guard, when it is dropped |
//! | `HELD` | there is a guard, and the owner waits for it | the owner, when it creates the guard |
//! | `ORPHANED` | there is a guard, and the ownership of the executor has passed to it | the owner, when its drain is dropped |

use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, UnsafeCell, lock};
use crate::task::Task;
use crate::waker::WakerCell;

const FREE: u32 = 0;
const HELD: u32 = 1;
const ORPHANED: u32 = 2;

/// The asynchronous job whose turn it is, if there is one. `L` is what it runs on.
pub(super) struct Suspended<L> {
    /// The job, until its future has ended. The owner's.
    job: UnsafeCell<Option<AsyncJob<L>>>,
    /// The word of the module's table.
    guard: AtomicU32,
    /// Wakes the drain when the guard is dropped. Used while the future has ended and the guard has not.
    waker: WakerCell,
    /// The runtime or pool has refused the drain, so nothing can wait. Written by the owner, and read by the drain
    /// that gets the ownership from it.
    drain_refused: AtomicBool,
    /// The runtime that the latest asynchronous job was submitted in. The thread that reaches the job may have
    /// none.
    runtime: Mutex<Option<Handle>>,
}

/// An asynchronous job that has started, or is the next to start.
pub(super) struct AsyncJob<L> {
    pub(super) task: Task<L>,
    pub(super) started: bool,
}

impl<L> Suspended<L> {
    pub(super) fn new() -> Self {
        Self {
            job: UnsafeCell::new(None),
            guard: AtomicU32::new(FREE),
            waker: WakerCell::new(),
            drain_refused: AtomicBool::new(false),
            runtime: Mutex::new(None),
        }
    }

    /// Lends the job to the owner.
    ///
    /// # Safety
    ///
    /// The caller owns the executor, and `f` does not call this again.
    pub(super) unsafe fn with_job<R>(&self, f: impl FnOnce(&mut Option<AsyncJob<L>>) -> R) -> R {
        // SAFETY: the job is the owner's, which the caller is, and `f` has the only reference.
        self.job.with_mut(|job| f(unsafe { &mut *job }))
    }

    /// Remembers the runtime of this thread, which submits an asynchronous job.
    pub(super) fn remember_runtime(&self) {
        if let Ok(here) = Handle::try_current() {
            let before = lock(&self.runtime).replace(here);
            drop(before);
        }
    }

    /// The runtime that the latest asynchronous job was submitted in.
    pub(super) fn runtime(&self) -> Option<Handle> {
        lock(&self.runtime).clone()
    }

    /// Records whether the drain that runs next was refused by what should run it.
    pub(super) fn set_drain_refused(&self, refused: bool) {
        // Relaxed is enough: what hands the drain over publishes more than this.
        self.drain_refused.store(refused, Ordering::Relaxed);
    }

    pub(super) fn is_drain_refused(&self) -> bool {
        self.drain_refused.load(Ordering::Relaxed)
    }

    // ===== the guard =====

    /// Records a new guard. For the owner.
    pub(super) fn hold(&self) {
        // Relaxed is enough: the owner sets it, and the guard reaches another thread through the owner.
        self.guard.store(HELD, Ordering::Relaxed);
    }

    pub(super) fn is_held(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `release`.
        self.guard.load(Ordering::Acquire) != FREE
    }

    /// Records that the guard is dropped, and wakes the drain. Returns `true` if the guard had become the owner.
    pub(super) fn release(&self) -> bool {
        // Ordering: Release publishes what was done to the state to the Acquire of `is_held` and of
        // `orphan`; Acquire pairs with the Release of `orphan`, for a guard that is now the owner.
        let orphaned = self.guard.swap(FREE, Ordering::AcqRel) == ORPHANED;
        if !orphaned {
            self.waker.wake();
        }
        orphaned
    }

    /// Passes the ownership of the executor to the guard. Returns `false` if there is no guard. For the owner.
    pub(super) fn orphan(&self) -> bool {
        // Ordering: Release publishes what the owner did to the Acquire of `release`; Acquire pairs with the
        // Release of `release`, if that came first.
        let orphaned =
            self.guard
                .compare_exchange(HELD, ORPHANED, Ordering::Release, Ordering::Acquire);
        orphaned.is_ok()
    }

    /// Waits until the guard is dropped. For the owner.
    pub(super) fn poll_released(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_held() {
            self.waker.register(cx.waker());
            if self.is_held() {
                return Poll::Pending;
            }
            // It will not be used, and would keep its task alive.
            self.waker.clear();
        }
        Poll::Ready(())
    }
}
