//! A global allocator that can count.
//!
//! Calls are counted only in the child of a counting run, and live bytes only in a child that reports them, so that
//! timed children pay relaxed loads of flags that nobody writes, and use the same allocator as everyone else.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

static LIVE_ON: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// The system's allocator (or the preloaded one), counted on request.
pub(crate) struct Counting;

/// The number of allocations and reallocations that `work` makes, on all threads.
pub(crate) fn count(work: impl FnOnce()) -> u64 {
    COUNT.store(0, Relaxed);
    ON.store(true, Relaxed);
    work();
    ON.store(false, Relaxed);
    COUNT.load(Relaxed)
}

/// The number of allocations and reallocations since they are counted for good, which they are from the first call on.
pub(crate) fn counted() -> u64 {
    ON.store(true, Relaxed);
    COUNT.load(Relaxed)
}

/// From now on, keeps account of [`live_bytes`].
pub(crate) fn track_live() {
    LIVE_ON.store(true, Relaxed);
}

/// Bytes that were requested and not given back since they are tracked. What was there before and is given back
/// counts as negative, so that only differences say something.
pub(crate) fn live_bytes() -> i64 {
    LIVE.load(Relaxed)
}

fn note() {
    if ON.load(Relaxed) {
        COUNT.fetch_add(1, Relaxed);
    }
}

fn note_live(grown: usize, shrunk: usize) {
    if LIVE_ON.load(Relaxed) {
        LIVE.fetch_add(grown as i64 - shrunk as i64, Relaxed);
    }
}

// SAFETY: every call goes unchanged to `System`, whose contract is the one that our caller keeps; counting
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        note_live(layout.size(), 0);
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        note_live(layout.size(), 0);
        // SAFETY: passed on as it came.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        note_live(size, layout.size());
        // SAFETY: passed on as it came.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note_live(0, layout.size());
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_bytes_are_those_not_given_back() {
        const LARGE: usize = 1 << 26;
        // Other tests may allocate meanwhile, or give back what was there before: much less than this.
        let is_near = |bytes: i64, size: usize| (bytes - size as i64).unsigned_abs() < 1 << 24;
        track_live();
        let before = live_bytes();
        let mut block: Vec<u8> = Vec::with_capacity(LARGE);
        assert!(is_near(live_bytes() - before, LARGE));
        block.reserve_exact(2 * LARGE);
        assert!(is_near(live_bytes() - before, 2 * LARGE));
        drop(block);
        assert!(is_near(live_bytes() - before, 0));
    }
}
