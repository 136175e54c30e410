//! The allocations of a `SerialExecutor`: none while it is idle, one cell for each job while it is busy.
//!
//! There is one test, because it counts the allocations of the whole process.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use throng::SerialExecutor;

use self::support::{Gate, current_thread, multi_thread, poll, ready, receive};

/// The allocator of the system, with counters.
struct Counting;

thread_local! {
    /// The allocations of this thread so far.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The live allocations of the process.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on to the allocator of the system, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most pages that a hundred jobs need, with the slab itself: a page has at least 31 cells.
const MAX_PAGES: usize = 5;

/// Counts the allocations of this thread while `f` runs.
fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

#[test]
fn allocations_are_as_promised() {
    an_allocation_is_counted();
    an_idle_executor_allocates_nothing();
    a_large_output_of_an_idle_executor_goes_into_a_cell();
    an_idle_executor_allocates_nothing_in_a_runtime();
    a_busy_executor_allocates_a_page_for_dozens_of_jobs();
    running_queued_jobs_allocates_nothing();
    a_post_allocates_at_most_a_page_besides_the_drain();
    nothing_leaks();
}

fn an_allocation_is_counted() {
    let live = LIVE.load(Ordering::Relaxed);
    let mut boxed = None;
    assert_eq!(allocations(|| boxed = Some(Box::new(1))), 1);
    assert!(LIVE.load(Ordering::Relaxed) > live);
    drop(boxed);
}

fn an_idle_executor_allocates_nothing() {
    let executor = SerialExecutor::new(0_u64);
    let submit = || {
        let large = [1_u64; 64];
        let handle = executor.submit(move |n| {
            *n += large[0];
            // An output of two words is stored in the handle.
            [*n; 2]
        });
        assert!(handle.is_finished());
        assert!(handle.abort_handle().is_finished());
        ready(handle).unwrap();
    };
    let abandon = || drop(executor.submit(|n| *n += 1));
    let run = || executor.try_run(|n| *n += 1).unwrap();
    assert_eq!(allocations(submit), 0);
    assert_eq!(allocations(abandon), 0);
    assert_eq!(allocations(run), 0);
}

/// The handle does not grow with its output, so a larger one needs memory of its own: a recycled cell, or, beyond
/// its size, one allocation.
fn a_large_output_of_an_idle_executor_goes_into_a_cell() {
    let executor = SerialExecutor::new(0_u64);
    let in_cell = || assert_eq!(ready(executor.submit(|n| [*n; 8])).unwrap(), [0; 8]);
    (0..1_000).for_each(|_| in_cell());
    assert_eq!(allocations(|| (0..100).for_each(|_| in_cell())), 0);
    let large = || assert_eq!(ready(executor.submit(|n| [*n; 64])).unwrap()[63], 0);
    assert_eq!(allocations(large), 1);
}

fn an_idle_executor_allocates_nothing_in_a_runtime() {
    let executor = SerialExecutor::new(0_u64);
    current_thread().block_on(async {
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            executor.submit(|n| *n += 1).await.unwrap();
        }
        assert_eq!(ALLOCATIONS.get() - before, 0);
    });
}

fn a_busy_executor_allocates_a_page_for_dozens_of_jobs() {
    let executor = SerialExecutor::new(0_u64);
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let holder = thread::spawn({
        let (executor, gate) = (executor.clone(), gate.clone());
        move || {
            let job = executor.submit(move |_| {
                entered.send(()).unwrap();
                gate.pass();
            });
            ready(job).unwrap();
        }
    });
    receive(&has_entered);

    let mut handles = Vec::with_capacity(100);
    let queue = || {
        for _ in 0..100 {
            let mut handle = executor.submit(|n| *n += 1);
            assert!(poll(&mut handle).is_pending());
            handles.push(handle);
        }
    };
    assert!(allocations(queue) <= MAX_PAGES);
    let last = || handles[99].abort_handle().abort();
    // The error of the aborted job.
    assert_eq!(allocations(last), 1);

    gate.open();
    holder.join().unwrap();
    assert!(ready(handles.pop().unwrap()).unwrap_err().is_cancelled());
    let read = || handles.drain(..).for_each(|handle| ready(handle).unwrap());
    assert_eq!(allocations(read), 0);
}

fn running_queued_jobs_allocates_nothing() {
    let executor = SerialExecutor::new(0_u64);
    let again = executor.clone();
    let handle = executor.submit(move |_| {
        let queue = || {
            for _ in 0..100 {
                drop(again.submit(|n| *n += 1));
            }
        };
        assert!(allocations(queue) <= MAX_PAGES);
        // The queued jobs run now, before the outer `submit` returns.
        ALLOCATIONS.get()
    });
    let before = ready(handle).unwrap();
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 100);
}

fn a_post_allocates_at_most_a_page_besides_the_drain() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(0_u64);
    let _in = runtime.enter();
    // The first one hands the queue over.
    let first = executor.post(|n| *n += 1);
    let mut handle = None;
    assert!(allocations(|| handle = Some(executor.post(|n| *n += 1))) <= 1);
    runtime.block_on(first).unwrap();
    runtime.block_on(handle.unwrap()).unwrap();
}

fn nothing_leaks() {
    const JOBS: usize = 20_000;
    let runtime = multi_thread(2, "drain");
    let _in = runtime.enter();
    let executor = SerialExecutor::new(0_usize);
    let round = || {
        let last = (0..JOBS).map(|index| {
            let handle = match index % 2 {
                0 => executor.submit(|n| *n += 1),
                _ => executor.post(|n| *n += 1),
            };
            match index % 3 {
                0 => handle.abort(),
                1 => drop(handle),
                _ => return Some(handle),
            }
            None
        });
        for handle in last.flatten().collect::<Vec<_>>() {
            handle.blocking_join().unwrap();
        }
    };
    round();
    let before = LIVE.load(Ordering::Relaxed);
    round();
    let left = LIVE.load(Ordering::Relaxed) - before;
    // Less than one for a hundred jobs: a runtime keeps some buffers.
    assert!(left < JOBS as isize / 100, "{left} allocations leaked");
}
