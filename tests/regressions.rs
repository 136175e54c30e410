//! Faults that a review found, each as the test that shows it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use throng::{BlockingPool, CompletionStream, JoinHandle, SerialExecutor};

/// A waker of a stranger who panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a stranger's waker");
    }
}

/// Polls a future once with a waker that panics, and keeps it waiting.
fn wait_with_a_waker_that_panics<F: Future>(future: std::pin::Pin<&mut F>) {
    let waker = Waker::from(Arc::new(Panics));
    assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_place_is_free_before_the_task_is_seen_as_done() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    for round in 0..2_000 {
        let task = pool.try_spawn_blocking(move || round);
        assert_eq!(task.unwrap().blocking_join().unwrap(), round);
    }
}

#[tokio::test]
async fn a_waker_that_panics_costs_the_pool_no_thread() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let (open, opened) = std::sync::mpsc::channel();
    let running = pool.spawn_blocking(move || opened.recv().unwrap());
    {
        let mut waiting = pin!(pool.reserve());
        wait_with_a_waker_that_panics(waiting.as_mut());
        open.send(()).unwrap();
        running.await.unwrap();
    }
    let permit = pool.reserve().await.unwrap();
    permit.spawn_blocking(|| ()).await.unwrap();
    {
        let permit = pool.reserve().await.unwrap();
        let mut waiting = pin!(pool.reserve());
        wait_with_a_waker_that_panics(waiting.as_mut());
        pool.shutdown();
        drop(permit);
    }
    pool.terminated().await;
    assert_eq!(pool.metrics().threads, 0);
}

#[tokio::test]
async fn a_waker_that_panics_costs_the_stream_no_item() {
    let (jobs, mut done) = CompletionStream::<u32, u32>::builder()
        .max_running(1)
        .build()
        .unwrap();
    let slot = jobs.slot(1).await.unwrap();
    let mut waiting = pin!(jobs.slot(2));
    wait_with_a_waker_that_panics(waiting.as_mut());
    slot.complete(7);
    assert_eq!(done.next().await.unwrap().outcome.unwrap(), 7);
}

#[tokio::test]
async fn the_end_of_a_stream_waits_for_nobody_who_waits_for_room() {
    let (jobs, mut done) = CompletionStream::<u32, u32>::builder()
        .max_running(1)
        .build()
        .unwrap();
    let slot = jobs.slot(1).await.unwrap();
    let mut waiting = pin!(jobs.slot(2));
    wait_with_a_waker_that_panics(waiting.as_mut());
    jobs.close();
    slot.complete(7);
    assert_eq!(done.next().await.unwrap().tag, 1);
    let end = tokio::time::timeout(Duration::from_secs(20), done.next()).await;
    assert!(end.expect("the end does not come").is_none());
    assert!(waiting.await.is_err());
}

#[test]
fn a_posted_job_never_runs_on_the_thread_that_posts() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    pool.shutdown();
    let executor = SerialExecutor::builder().drain_on(pool).build(());
    let here = thread::current().id();
    let posted = executor.post(move |()| assert_ne!(thread::current().id(), here));
    assert!(posted.blocking_join().unwrap_err().is_cancelled());
    executor.submit(|()| ()).blocking_join().unwrap();
}

/// Each executor's job submits to the next one.
fn chain(executors: Arc<Vec<SerialExecutor<usize>>>, at: usize) -> Option<JoinHandle<()>> {
    let next = Arc::clone(&executors);
    Some(executors.get(at)?.submit(move |runs| {
        *runs += 1;
        drop(chain(next, at + 1));
    }))
}

#[test]
fn a_chain_of_executors_does_not_use_up_the_stack() {
    const LENGTH: usize = 100_000;
    let executors: Arc<Vec<_>> = Arc::new((0..LENGTH).map(|_| SerialExecutor::new(0)).collect());
    let walked = Arc::clone(&executors);
    let walk = move || drop(chain(walked, 0));
    // No runtime: whatever is left over, this thread has to run.
    thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(walk)
        .unwrap()
        .join()
        .unwrap();
    for executor in executors.iter() {
        assert_eq!(executor.try_run(|runs| *runs).unwrap(), 1);
    }
}

#[test]
fn the_state_is_given_out_although_its_poison_is_cleared_meanwhile() {
    for _ in 0..500 {
        let executor = SerialExecutor::new(());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            executor.try_run(|()| std::panic::resume_unwind(Box::new(())))
        }));
        assert!(panicked.map(|ran: Result<(), _>| ran.is_ok()).is_err());
        let other = executor.clone();
        let clearing = thread::spawn(move || other.clear_poison());
        let given =
            async { tokio::time::timeout(Duration::from_secs(20), executor.into_inner()).await };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        assert!(
            runtime.block_on(given).is_ok(),
            "the state was not given out"
        );
        clearing.join().unwrap();
    }
}
