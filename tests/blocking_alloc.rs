//! The memory that a `BlockingPool` keeps of aborted tasks: almost none.
//!
//! A binary of its own with one test, since the allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc;

use throng::{BlockingPool, JoinHandle};

/// The system's allocator, with a count of live bytes.
struct Counting;

/// Bytes that are allocated and not freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is passed to the system's allocator, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

const TASKS: usize = 100_000;

/// The memory of a queued task, at least: its cell.
const CELL_BYTES: isize = 64;

/// The memory that all aborted tasks together may keep.
const MAX_BYTES_LEFT: isize = 512 << 10;

#[test]
fn aborted_tasks_keep_no_memory_behind_a_running_task() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let bulkhead = pool.bulkhead(1, 2 * TASKS).unwrap();
    let (finish, finished) = mpsc::channel::<()>();
    let running = bulkhead.spawn_blocking(move || finished.recv().is_err());
    aborted_leave_little(|| pool.spawn_blocking(|| ()));
    aborted_leave_little(|| bulkhead.spawn_blocking(|| ()));
    assert_eq!((pool.metrics().queued, bulkhead.metrics().queued), (0, 0));
    drop(finish);
    assert!(running.blocking_join().unwrap());
    assert!(pool.spawn_blocking(|| true).blocking_join().unwrap());
    assert!(bulkhead.spawn_blocking(|| true).blocking_join().unwrap());
}

fn aborted_leave_little(spawn: impl Fn() -> JoinHandle<()>) {
    let before = live();
    let handles: Vec<_> = (0..TASKS).map(|_| spawn()).collect();
    let queued = live() - before;
    assert!(queued > CELL_BYTES * TASKS.cast_signed(), "{queued} bytes");
    handles.iter().for_each(JoinHandle::abort);
    drop(handles);
    let left = live() - before;
    assert!(left < MAX_BYTES_LEFT, "{left} bytes");
}
