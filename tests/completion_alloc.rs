//! The memory of a `CompletionStream`: no allocation for a job in the steady state, and little more than the output
//! of a job that has finished and was not read.
//!
//! There is one test, because the allocator counts for the whole process.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{pending, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::StreamExt;
use throng::completion::Submitter;
use throng::{BlockingPool, CompletionStream};

use self::support::{current_thread, eventually, poll, wait_until, within};

/// The system's allocator, with counters.
struct Counting;

/// The number of allocations of the process.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The number of bytes that are allocated.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

/// The number of jobs in flight.
const WINDOW: usize = 100;
/// The number of jobs whose allocations are counted.
const JOBS: usize = 20_000;

/// The number of jobs whose futures own memory.
const OWNERS: usize = 500;
/// The number of bytes that each of them owns.
const OWNED: usize = 20_000;
/// The maximum number of bytes that each of them may use besides.
const BESIDE: isize = 2_000;

#[test]
fn a_stream_allocates_as_documented() {
    an_allocation_is_counted();
    jobs_in_the_steady_state_allocate_nothing();
    current_thread().block_on(a_large_future_is_freed_when_it_ends());
    a_million_unread_items_take_little();
    unread_items_that_finish_out_of_order_take_little();
    what_a_future_owns_is_freed_when_it_ends();
    a_waker_that_is_kept_holds_no_future();
    dropping_the_stream_frees_everything();
}

fn jobs_in_the_steady_state_allocate_nothing() {
    let runtime = current_thread();
    let tokio = runtime.block_on(bare_tasks());
    assert!(tokio >= 1.0, "an allocation is counted: {tokio}");
    let spawned = runtime.block_on(allocations(false)) - tokio;
    assert!(spawned < 0.02, "{spawned} for each job besides its task");
    let in_place = runtime.block_on(allocations(true));
    assert!(in_place < 0.02, "{in_place} for each job that is ready");
}

/// Returns the allocations for each Tokio task.
async fn bare_tasks() -> f64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..JOBS {
        tokio::spawn(async { black_box(7) }).await.unwrap();
    }
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / JOBS as f64
}

/// Returns the allocations for each job of a stream that has been used before.
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

/// The memory of an output stays until it is read, but not that of the future.
async fn a_large_future_is_freed_when_it_ends() {
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

fn an_allocation_is_counted() {
    let before = live();
    let boxed = black_box(Box::new([1_u8; 1_000]));
    assert_eq!(live(), before + 1_000);
    drop(boxed);
}

/// A million jobs run on a pool and are not read. Each takes at most `MAX_BYTES` bytes, which are freed when it is read.
fn a_million_unread_items_take_little() {
    const JOBS: usize = 1_000_000;
    const MAX_BYTES: isize = 64;
    let before = live();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (jobs, mut done) = CompletionStream::<u64, u32>::builder()
        .max_running(1_000)
        .max_outstanding(JOBS)
        .build()
        .unwrap();
    current_thread().block_on(async {
        for tag in 0..JOBS {
            let n = tag as u64;
            let submitted = jobs.submit_blocking(&pool, tag as u32, move || n).await;
            submitted.expect("the stream is open");
        }
    });
    wait_until("all have ended", || jobs.ready() == JOBS);
    let each = (live() - before) / JOBS.cast_signed();
    println!("{each} bytes for each unread item");
    assert!((8..=MAX_BYTES).contains(&each), "{each}");

    let mut sum = 0;
    while let Some(item) = done.try_next() {
        assert_eq!(item.outcome.unwrap(), u64::from(item.tag));
        sum += u64::from(item.tag);
    }
    assert_eq!(sum, (JOBS as u64 - 1) * JOBS as u64 / 2);
    drop((jobs, done));
    // Pages belong to the submitting thread, which keeps some for its next jobs.
    let kept = live() - before;
    assert!(
        kept < JOBS.cast_signed() * MAX_BYTES / 8,
        "{kept} bytes are kept"
    );
}

/// Of every four jobs that were accepted one after the other, the first ends before all others end.
fn unread_items_that_finish_out_of_order_take_little() {
    const JOBS: usize = 200_000;
    // Includes the table of records, which has had all jobs at the same time.
    const MAX_BYTES: isize = 64 + 32;
    let before = live();
    let (jobs, done) = CompletionStream::<u64, u32>::builder()
        .max_running(JOBS)
        .build()
        .unwrap();
    let slots = (0..JOBS).map(|tag| jobs.try_slot(tag as u32).expect("there is room"));
    let (first, rest): (Vec<_>, Vec<_>) = slots.enumerate().partition(|(n, _)| n % 4 == 0);
    for (n, slot) in first.into_iter().chain(rest) {
        slot.complete(n as u64);
    }
    let each = (live() - before) / JOBS.cast_signed();
    println!("{each} bytes for each unread item");
    assert!((8..=MAX_BYTES).contains(&each), "{each}");
    drop(done);
}

/// The memory that a future has allocated is freed when it ends, even if its item is not read.
fn what_a_future_owns_is_freed_when_it_ends() {
    current_thread().block_on(async {
        let before = live();
        let (jobs, mut done) = CompletionStream::builder().build().unwrap();
        for tag in 0..OWNERS {
            let owned = vec![1_u8; OWNED];
            let future = async move {
                tokio::task::yield_now().await;
                black_box(&owned).len()
            };
            jobs.submit(tag, future).await.unwrap();
        }
        assert!(live() - before > (OWNERS * OWNED).cast_signed());
        eventually("all have ended", || jobs.ready() == OWNERS).await;
        let each = (live() - before) / OWNERS.cast_signed();
        assert!(each < BESIDE, "{each} bytes for each job that has ended");
        while let Some(item) = done.try_next() {
            assert_eq!(item.outcome.unwrap(), OWNED);
        }
    });
}

/// A waker that outlives its job, in a timer wheel or a wait list, holds neither what the future owns nor its item.
fn a_waker_that_is_kept_holds_no_future() {
    current_thread().block_on(async {
        let before = live();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (jobs, mut done) = CompletionStream::builder().build().unwrap();
        for tag in 0..OWNERS {
            let (owned, kept) = (vec![1_u8; OWNED], Arc::clone(&kept));
            let future = async move {
                let keep = poll_fn(|cx| {
                    kept.lock().unwrap().push(cx.waker().clone());
                    Poll::Ready(())
                });
                keep.await;
                owned
            };
            jobs.submit(tag, future).await.unwrap();
        }
        for _ in 0..OWNERS {
            let owned = within(done.next()).await.unwrap().outcome.unwrap();
            assert_eq!(owned.len(), OWNED);
        }
        assert_eq!(kept.lock().unwrap().len(), OWNERS);
        let each = (live() - before) / OWNERS.cast_signed();
        assert!(each < BESIDE, "{each} bytes for each waker");
        // The wakers can still be used.
        kept.lock()
            .unwrap()
            .drain(..)
            .for_each(|waker| waker.wake());
        assert!(poll(&mut pin!(done.next())).is_pending());
    });
}

/// Dropping the stream frees jobs that run, that have ended, and that were not polled.
fn dropping_the_stream_frees_everything() {
    current_thread().block_on(async {
        let before = live();
        let (jobs, done) = CompletionStream::builder().build().unwrap();
        for tag in 0..OWNERS {
            let owned = vec![1_u8; OWNED];
            let future = async move {
                match tag % 2 {
                    0 => owned,
                    _ => pending().await,
                }
            };
            jobs.submit(tag, future).await.unwrap();
            // Some have not been polled when the stream is dropped.
            if tag == OWNERS * 3 / 4 {
                tokio::task::yield_now().await;
            }
        }
        assert!(live() - before > (OWNERS * OWNED).cast_signed());
        drop(done);
        let little = OWNERS.cast_signed() * BESIDE;
        eventually("everything is freed", || live() - before < little).await;
    });
}
