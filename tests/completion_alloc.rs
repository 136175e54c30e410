//! What a `CompletionStream` allocates: nothing for a job in steady state, and little for one that nobody has read.
//!
//! One test, as the count of what is allocated in the process allows no others beside it.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use futures::StreamExt;
use throng::CompletionStream;
use throng::completion::Submitter;

use self::support::current_thread;

/// The system's allocator, which counts.
struct Counting;

/// Allocations of the process so far.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that have not been given back.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

/// How many jobs are in flight, and how many are counted.
const WINDOW: usize = 100;
const JOBS: usize = 20_000;

#[test]
fn allocations_are_as_promised() {
    let runtime = current_thread();
    let tokio = runtime.block_on(bare_tasks());
    assert!(tokio >= 1.0, "an allocation is counted: {tokio}");
    let spawned = runtime.block_on(allocations(false)) - tokio;
    assert!(spawned < 0.02, "{spawned} for each job beside its task");
    let in_place = runtime.block_on(allocations(true));
    assert!(in_place < 0.02, "{in_place} for each job that is ready");
    runtime.block_on(what_a_future_held_is_given_back_when_it_ends());
}

/// Allocations for each task of Tokio.
async fn bare_tasks() -> f64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..JOBS {
        tokio::spawn(async { black_box(7) }).await.unwrap();
    }
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / JOBS as f64
}

/// Allocations for each job of a stream that has been used.
async fn allocations(in_place: bool) -> f64 {
    let (jobs, mut done) = CompletionStream::builder()
        .max_running(WINDOW)
        .max_outstanding(WINDOW)
        .poll_in_place(in_place)
        .build()
        .unwrap();
    submit_and_read(&jobs, &mut done).await;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    submit_and_read(&jobs, &mut done).await;
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / JOBS as f64
}

async fn submit_and_read(jobs: &Submitter<usize>, done: &mut CompletionStream<usize>) {
    for job in 0..JOBS {
        if job >= WINDOW {
            assert!(done.next().await.unwrap().outcome.is_ok());
        }
        jobs.submit((), async move { job }).await.unwrap();
    }
    for _ in 0..WINDOW {
        assert!(done.next().await.unwrap().outcome.is_ok());
    }
}

/// Memory for a result stays until it is read, but not that of its future.
async fn what_a_future_held_is_given_back_when_it_ends() {
    const UNREAD: usize = 1_000;
    const FUTURE: usize = 2_000;
    for in_place in [false, true] {
        let (jobs, done) = CompletionStream::builder()
            .max_running(UNREAD)
            .poll_in_place(in_place)
            .build()
            .unwrap();
        let before = LIVE.load(Ordering::Relaxed);
        for job in 0..UNREAD {
            let captured = [1_u8; FUTURE];
            let future = async move { job + black_box(captured).len() };
            jobs.submit((), future).await.unwrap();
        }
        while jobs.ready() < UNREAD {
            tokio::task::yield_now().await;
        }
        let unread = (LIVE.load(Ordering::Relaxed) - before) / UNREAD.cast_signed();
        assert!(unread < 300, "{unread} bytes for each job");
        drop(jobs);
        let sum = done.map(|completed| completed.outcome.unwrap() - FUTURE);
        let sum = sum.fold(0, async |sum, job| sum + job).await;
        assert_eq!(sum, UNREAD * (UNREAD - 1) / 2);
    }
}
