//! What a `BlockingPool` keeps of tasks that were aborted: next to nothing.
//!
//! One test, as the count of what is allocated in the process allows no others beside it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc;

use throng::{BlockingPool, JoinHandle};

/// The system's allocator, which counts.
struct Counting;

/// Bytes that have not been given back.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

const TASKS: usize = 100_000;

/// What a task takes up, at least: a cell.
const EACH: isize = 64;

/// How much there may be left of all of them.
const LEFT: isize = 512 << 10;

#[test]
fn what_was_aborted_takes_up_no_memory_behind_a_task_that_runs() {
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
    assert!(queued > EACH * TASKS.cast_signed(), "{queued} bytes");
    handles.iter().for_each(JoinHandle::abort);
    drop(handles);
    let left = live() - before;
    assert!(left < LEFT, "{left} bytes");
}
