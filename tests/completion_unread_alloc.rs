//! What a stream keeps of jobs that have finished and were not read: what they returned, and little besides.
//!
//! One test, as the count of what is allocated in the process allows no others beside it.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{pending, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::task::Poll;

use throng::{BlockingPool, CompletionStream};

use self::support::{current_thread, eventually, poll, wait_until, within};

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

/// How many jobs there are with futures that own much, and how much.
const OWNERS: usize = 500;
const OWNED: usize = 20_000;

/// What is live beside that, for each of them: a fraction of it.
const BESIDE: isize = 2_000;

#[test]
fn memory_is_as_promised() {
    an_allocation_is_counted();
    a_million_unread_items_take_little();
    so_do_those_that_finish_by_a_pattern();
    what_a_future_owns_goes_when_it_ends();
    a_waker_that_a_stranger_keeps_holds_no_future();
    dropping_the_stream_gives_all_back();
}

fn an_allocation_is_counted() {
    let before = live();
    let boxed = black_box(Box::new([1_u8; 1_000]));
    assert_eq!(live(), before + 1_000);
    drop(boxed);
}

/// A million jobs run on a pool, and nobody reads. They take no more than so many bytes each, and what is
/// read is given back.
fn a_million_unread_items_take_little() {
    const JOBS: usize = 1_000_000;
    const EACH: isize = 64;
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
    println!("{each} bytes for each item that is not read");
    assert!((8..=EACH).contains(&each), "{each}");

    let mut sum = 0;
    for item in done.drain_ready() {
        assert_eq!(item.outcome.unwrap(), u64::from(item.tag));
        sum += u64::from(item.tag);
    }
    assert_eq!(sum, (JOBS as u64 - 1) * JOBS as u64 / 2);
    drop((jobs, done));
    // Blocks are the submitting thread's, and it keeps some for its next jobs.
    let kept = live() - before;
    assert!(
        kept < JOBS.cast_signed() * EACH / 8,
        "{kept} bytes are kept"
    );
}

/// Whatever the pattern in which they finish: of every four that were accepted together, the first ends first.
fn so_do_those_that_finish_by_a_pattern() {
    const JOBS: usize = 200_000;
    // With what the table of jobs, which all were in it together, has grown to.
    const EACH: isize = 64 + 32;
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
    println!("{each} bytes for each item that is not read");
    assert!((8..=EACH).contains(&each), "{each}");
    drop(done);
}

/// What a future has allocated goes when it ends, although nobody reads its item.
fn what_a_future_owns_goes_when_it_ends() {
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
        for item in done.drain_ready() {
            assert_eq!(item.outcome.unwrap(), OWNED);
        }
    });
}

/// A waker that a stranger keeps, as a timer wheel may, or a list of those who wait, holds neither what the
/// future owns nor its item.
fn a_waker_that_a_stranger_keeps_holds_no_future() {
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
        // They can still be used.
        kept.lock()
            .unwrap()
            .drain(..)
            .for_each(|waker| waker.wake());
        assert!(poll(&mut pin!(done.next())).is_pending());
    });
}

/// What runs, what has ended, and what was not polled: all of it goes with the stream.
fn dropping_the_stream_gives_all_back() {
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
            // Some have not been polled when the stream goes.
            if tag == OWNERS * 3 / 4 {
                tokio::task::yield_now().await;
            }
        }
        assert!(live() - before > (OWNERS * OWNED).cast_signed());
        drop(done);
        let little = OWNERS.cast_signed() * BESIDE;
        eventually("all is given back", || live() - before < little).await;
    });
}
