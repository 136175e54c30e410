//! `poll_in_place`: jobs that are polled once where they are submitted.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use throng::CompletionStream;
use throng::completion::Submitter;

use super::support::{
    Drops, PanicsOnDrop, Wakes, current_thread, eventually, multi_thread, poll, poll_with, ready,
    rounds, wait_until, within,
};
use super::{Ends, take};

fn in_place<T: Send + 'static>() -> Ends<T> {
    CompletionStream::builder()
        .max_running(1 << 20)
        .poll_in_place(true)
        .build()
        .unwrap()
}

/// Submits a job to a stream that has room.
#[track_caller]
fn submit<T, F>(jobs: &Submitter<T, usize>, tag: usize, job: F)
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    assert!(ready(pin!(jobs.submit(tag, job))).is_ok());
}

/// There is no runtime, so the job cannot have been spawned.
#[test]
fn a_job_that_is_ready_runs_where_it_is_submitted() {
    let (jobs, mut done) = in_place();
    let here = thread::current().id();
    submit(&jobs, 1, async { thread::current().id() });
    assert_eq!(jobs.in_flight(), 1);
    let completed = take(&mut done);
    assert_eq!((completed.tag, completed.outcome.unwrap()), (1, here));
    assert_eq!(jobs.in_flight(), 0);
}

#[test]
fn by_default_a_job_is_not_polled_where_it_is_submitted() {
    let runtime = current_thread();
    let _context = runtime.enter();
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    submit(&jobs, 1, async { 7 });
    assert!(poll(&mut pin!(done.next())).is_pending());
    assert_eq!(runtime.block_on(done.next()).unwrap().outcome.unwrap(), 7);
}

/// The job keeps the waker of its last poll, and wakes that.
#[test]
fn a_job_that_waits_is_woken_by_its_own_task() {
    let runtime = multi_thread(1, "worker");
    let _context = runtime.enter();
    let (jobs, mut done) = in_place();
    let kept = Arc::new(Mutex::new(Vec::<Waker>::new()));
    let open = Arc::new(AtomicBool::new(false));
    let job = {
        let (kept, open) = (kept.clone(), open.clone());
        poll_fn(move |cx| {
            let mut kept = kept.lock().unwrap();
            kept.push(cx.waker().clone());
            match open.load(Ordering::SeqCst) {
                true => Poll::Ready(kept.len()),
                false => Poll::Pending,
            }
        })
    };
    let (submitter, waker) = Wakes::new();
    let mut submitted = Box::pin(jobs.submit(1, job));
    assert!(poll_with(&waker, &mut submitted).is_ready());
    // The waker of the submitting task was not kept.
    assert_eq!(Arc::strong_count(&submitter), 2);
    wait_until("the job waits as a task", || {
        kept.lock().unwrap().len() == 2
    });
    open.store(true, Ordering::SeqCst);
    let last = kept.lock().unwrap().last().unwrap().clone();
    last.wake();
    let polls = runtime.block_on(within(done.next())).unwrap().outcome;
    assert_eq!((polls.unwrap(), submitter.count()), (3, 0));
}

#[test]
fn a_wake_up_during_the_first_poll_is_not_missed() {
    let runtime = current_thread();
    runtime.block_on(async {
        let (jobs, mut done) = in_place();
        let mut polls = 0;
        let job = poll_fn(move |cx| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(polls);
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        jobs.submit(1, job).await.ok().unwrap();
        jobs.submit(2, async {
            tokio::task::yield_now().await;
            2
        })
        .await
        .ok()
        .unwrap();
        drop(jobs);
        let completed = within(
            done.by_ref()
                .map(|c| c.outcome.unwrap())
                .collect::<Vec<_>>(),
        );
        assert_eq!(completed.await, [2, 2]);
    });
}

/// Another thread opens the gate at any time: during the first poll, before the second, or after it.
#[test]
fn a_job_that_is_woken_at_any_time_ends() {
    let runtime = multi_thread(2, "worker");
    runtime.block_on(async {
        let (jobs, mut done) = in_place();
        for round in 0..rounds(2_000, 50_000) {
            let (open, gate) = tokio::sync::oneshot::channel();
            let opener = tokio::spawn(async move { open.send(round).unwrap() });
            jobs.submit(round, async { gate.await.unwrap() })
                .await
                .ok()
                .unwrap();
            let completed = within(done.next()).await.unwrap();
            assert_eq!(completed.outcome.unwrap(), round);
            opener.await.unwrap();
        }
    });
}

#[test]
fn a_panic_in_the_first_poll_is_the_item() {
    let (jobs, mut done) = in_place::<()>();
    let drops = Drops::new();
    let captured = drops.value();
    submit(&jobs, 1, async move {
        let _captured = captured;
        panic!("as the test wants it");
    });
    let panics = PanicsOnDrop(drops.value());
    // The captured value is dropped after the last poll.
    submit(
        &jobs,
        2,
        poll_fn(move |_| {
            let _captured = &panics;
            Poll::Ready(())
        }),
    );
    assert_eq!(drops.count(), 2);
    assert!(take(&mut done).outcome.unwrap_err().is_panic());
    assert_eq!(take(&mut done).tag, 2);
    // The next job is polled in place too.
    submit(&jobs, 3, async {});
    assert!(take(&mut done).outcome.is_ok());
}

#[test]
fn a_loop_that_submits_ready_jobs_yields() {
    current_thread().block_on(async {
        let (jobs, done) = in_place();
        let other = Arc::new(AtomicBool::new(false));
        let task = {
            let other = other.clone();
            tokio::spawn(async move { other.store(true, Ordering::SeqCst) })
        };
        let mut submitted = 0;
        while !other.load(Ordering::SeqCst) {
            jobs.submit(submitted, async {}).await.ok().unwrap();
            submitted += 1;
            assert!(submitted < 100_000, "the other task never ran");
        }
        task.await.unwrap();
        assert_eq!(jobs.in_flight(), submitted);
        drop(done);
    });
}

/// A chain of jobs, each of which submits the next before it ends. If all were polled in place, they would overflow the
/// stack.
#[test]
fn jobs_that_submit_jobs_do_not_nest() {
    fn chain(jobs: Submitter<usize, usize>, left: usize) -> BoxFuture<'static, usize> {
        async move {
            if left > 0 {
                let next = chain(jobs.clone(), left - 1);
                jobs.submit(left, next).await.ok().unwrap();
            }
            left
        }
        .boxed()
    }

    const LENGTH: usize = if cfg!(miri) { 100 } else { 50_000 };
    current_thread().block_on(async {
        let (jobs, done) = in_place();
        let first = chain(jobs.clone(), LENGTH);
        jobs.submit(LENGTH, first).await.ok().unwrap();
        drop(jobs);
        assert_eq!(within(done.count()).await, LENGTH + 1);
    });
}

#[test]
fn a_job_that_waits_without_a_runtime_is_rejected() {
    let (jobs, mut done) = in_place::<()>();
    let drops = Drops::new();
    let captured = drops.value();
    submit(&jobs, 1, async move {
        let _captured = captured;
        pending().await
    });
    assert_eq!(drops.count(), 1);
    drop(jobs);
    assert!(take(&mut done).outcome.unwrap_err().is_rejected());
    assert!(ready(pin!(done.next())).is_none());
}

#[test]
fn a_job_that_waits_when_its_runtime_is_gone_is_cancelled() {
    let runtime = multi_thread(1, "worker");
    let handle = runtime.handle().clone();
    drop(runtime);
    let _context = handle.enter();
    let (jobs, mut done) = in_place::<()>();
    submit(&jobs, 1, pending());
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
}

#[test]
fn a_job_that_waits_is_dropped_with_the_stream() {
    let runtime = multi_thread(1, "worker");
    let _context = runtime.enter();
    let (jobs, done) = in_place::<()>();
    let drops = Drops::new();
    let captured = drops.value();
    submit(&jobs, 1, async move {
        let _captured = captured;
        pending().await
    });
    assert_eq!(drops.count(), 0);
    drop(done);
    runtime.block_on(eventually("the job is dropped", || drops.count() == 1));
}

/// The stream is closed or dropped while a job is polled in place.
#[test]
fn a_job_may_end_its_own_stream() {
    let (jobs, done) = in_place::<()>();
    let drops = Drops::new();
    let (captured, mut stream) = (drops.value(), Some(done));
    submit(
        &jobs,
        1,
        poll_fn(move |_| {
            let _captured = &captured;
            drop(stream.take());
            Poll::Pending
        }),
    );
    assert_eq!((drops.count(), jobs.in_flight()), (1, 0));

    let (jobs, mut done) = in_place();
    let closer = jobs.clone();
    submit(&jobs, 1, async move { closer.close() });
    assert!(take(&mut done).outcome.is_ok());
    assert!(ready(pin!(done.next())).is_none());
    assert!(ready(pin!(jobs.submit(2, async {}))).is_err());
}

#[test]
fn max_outstanding_holds() {
    let (jobs, mut done) = CompletionStream::builder()
        .max_running(1)
        .max_outstanding(2)
        .poll_in_place(true)
        .build()
        .unwrap();
    let polled = Arc::new(AtomicUsize::new(0));
    let job = || {
        let polled = polled.clone();
        async move { polled.fetch_add(1, Ordering::SeqCst) }
    };
    submit(&jobs, 0, job());
    submit(&jobs, 1, job());
    let mut third = Box::pin(jobs.submit(2, job()));
    assert!(poll(&mut third).is_pending());
    assert_eq!(polled.load(Ordering::SeqCst), 2);
    assert_eq!(take(&mut done).tag, 0);
    assert!(ready(third).is_ok());
    assert_eq!(polled.load(Ordering::SeqCst), 3);
}

/// Larger than any recycled cell.
#[test]
fn a_large_job_is_polled_in_place() {
    let (jobs, mut done) = in_place();
    let captured = [7_u8; 4_096];
    submit(&jobs, 0, async move {
        captured.iter().map(|&byte| usize::from(byte)).sum()
    });
    let sum: usize = take(&mut done).outcome.unwrap();
    assert_eq!(sum, 7 * 4_096);
}
