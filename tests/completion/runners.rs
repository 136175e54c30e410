//! Futures are polled for the first time by a few tasks of their runtime. Apart from the cost, this is not observable.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use throng::CompletionStream;
use throng::completion::Submitter;
use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, oneshot};
use tokio::task::block_in_place;

use super::support::{
    Drops, Gate, block_on, current_thread, eventually, multi_thread, ready, receive, rounds, within,
};
use super::{take, unbounded};

/// Submits a job to a stream that has room, and to a runtime that is not the current one.
#[track_caller]
fn submit_on<T, F>(jobs: &Submitter<T, usize>, runtime: &Handle, tag: usize, job: F) -> throng::Id
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    match ready(pin!(super::submit_on(jobs, runtime, tag, job))) {
        Ok(id) => id,
        Err(_) => panic!("there is no room"),
    }
}

/// Reads a number of items, and returns how many have an output. The others must be cancelled.
async fn succeeded<T: Send + 'static>(
    done: &mut CompletionStream<T, usize>,
    items: usize,
) -> usize {
    let mut succeeded = 0;
    for _ in 0..items {
        match done.next().await.expect("it is open").outcome {
            Ok(_) => succeeded += 1,
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    succeeded
}

// ===== jobs that block, and jobs that wait =====

/// As many jobs as there are workers block their threads until a job that was submitted later has run.
#[test]
fn jobs_that_block_their_threads_do_not_hold_up_others() {
    for workers in [1, 2, 4] {
        let runtime = multi_thread(workers, "worker");
        let (jobs, mut done) = unbounded();
        let gate = Gate::new();
        for tag in 0..workers {
            let gate = gate.clone();
            submit_on(&jobs, runtime.handle(), tag, async move {
                block_in_place(|| gate.pass());
            });
        }
        submit_on(&jobs, runtime.handle(), workers, async move { gate.open() });
        let all = succeeded(&mut done, workers + 1);
        assert_eq!(runtime.block_on(within(all)), workers + 1);
    }
}

/// Each job waits for the next one, so a runner must start for each.
#[test]
fn a_chain_of_jobs_that_block_comes_to_its_end() {
    const LENGTH: usize = 10;
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    let gates: Vec<_> = (0..LENGTH).map(|_| Gate::new()).collect();
    for tag in 0..LENGTH {
        let (mine, next) = (gates[tag].clone(), gates.get(tag + 1).cloned());
        submit_on(&jobs, runtime.handle(), tag, async move {
            mine.open();
            block_in_place(|| next.inspect(Gate::pass));
        });
    }
    let all = succeeded(&mut done, LENGTH);
    assert_eq!(runtime.block_on(within(all)), LENGTH);
}

#[test]
fn jobs_run_in_parallel() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    let both = Arc::new(Barrier::new(2));
    for tag in 0..2 {
        let both = both.clone();
        submit_on(&jobs, runtime.handle(), tag, async move {
            block_in_place(|| both.wait());
        });
    }
    let all = succeeded(&mut done, 2);
    assert_eq!(runtime.block_on(within(all)), 2);
}

/// A job that is always runnable, and a job that yields to timers and I/O.
#[test]
fn other_tasks_have_their_turn_while_jobs_are_ready() {
    const JOBS: usize = 10_000;
    for (ticker, least) in [(0, 50), (1, 10)] {
        let runtime = current_thread();
        let (jobs, mut done) = unbounded();
        let ticks = Arc::new(AtomicUsize::new(0));
        let counted = ticks.clone();
        runtime.spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                match ticker {
                    0 => pending_for(1).await,
                    _ => tokio::task::yield_now().await,
                }
            }
        });
        for tag in 0..JOBS {
            let ticks = ticks.clone();
            let job = async move { ticks.load(Ordering::SeqCst) };
            submit_on(&jobs, runtime.handle(), tag, job);
        }
        let (first, last) = runtime.block_on(within(async {
            let (mut first, mut last) = (usize::MAX, 0);
            for _ in 0..JOBS {
                let tick = done.next().await.unwrap().outcome.unwrap();
                (first, last) = (first.min(tick), last.max(tick));
            }
            (first, last)
        }));
        assert!(last - first >= least, "{} turns", last - first);
    }
}

/// The waker of the first poll does nothing, so the job is polled a second time with its own.
#[test]
fn a_job_is_woken_by_what_it_waits_for() {
    for runtime in [current_thread(), multi_thread(2, "worker")] {
        let (jobs, mut done) = unbounded();
        let _context = runtime.enter();
        let submit = |tag, job| submit_on(&jobs, runtime.handle(), tag, job);
        let (open, opened) = oneshot::channel();
        submit(0, async move { opened.await.unwrap() }.boxed());
        let sleep = tokio::time::sleep(Duration::from_millis(1));
        submit(1, sleep.boxed());
        submit(2, tokio::task::yield_now().boxed());
        let (open_inner, inner) = oneshot::channel::<()>();
        let mut many: FuturesUnordered<_> = [inner.map(drop).boxed(), pending().boxed()]
            .into_iter()
            .collect();
        submit(3, async move { many.next().await.unwrap() }.boxed());
        let notify = Arc::new(Notify::new());
        let notified = notify.clone();
        submit(4, async move { notified.notified().await }.boxed());
        let opener = thread::spawn(move || {
            open.send(()).unwrap();
            open_inner.send(()).unwrap();
            notify.notify_one();
        });
        assert_eq!(runtime.block_on(within(succeeded(&mut done, 5))), 5);
        opener.join().unwrap();
    }
}

/// A job that waits for something else at each poll gets its own waker each time.
#[test]
fn a_job_is_woken_between_its_first_polls() {
    let runtime = multi_thread(2, "worker");
    runtime.block_on(async {
        let (jobs, mut done) = unbounded();
        for round in 0..rounds(2_000, 50_000) {
            let (open, opened) = oneshot::channel();
            let job = async move { opened.await.unwrap() };
            jobs.submit(round, job).await.unwrap();
            let opener = tokio::spawn(async move { open.send(()).unwrap() });
            assert!(within(done.next()).await.unwrap().outcome.is_ok());
            opener.await.unwrap();
        }
    });
}

#[test]
fn a_job_sleeps_while_time_is_paused() {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (jobs, mut done) = unbounded();
        let begun = tokio::time::Instant::now();
        let hour = Duration::from_secs(3_600);
        jobs.submit(0, tokio::time::sleep(hour)).await.unwrap();
        assert!(done.next().await.unwrap().outcome.is_ok());
        assert!(begun.elapsed() >= hour);
    });
}

// ===== jobs that use their own stream =====

#[test]
fn a_job_submits_others_at_its_first_poll() {
    fn chain(jobs: &Submitter<(), usize>, left: usize) {
        let next = jobs.clone();
        let job = async move {
            if left > 0 {
                chain(&next, left - 1);
            }
        };
        assert!(jobs.try_submit(left, job.boxed()).is_ok());
    }

    const LENGTH: usize = if cfg!(miri) { 100 } else { 20_000 };
    for runtime in [current_thread(), multi_thread(2, "worker")] {
        runtime.block_on(async {
            let (jobs, done) = unbounded();
            chain(&jobs, LENGTH);
            drop(jobs);
            assert_eq!(within(done.count()).await, LENGTH + 1);
        });
    }
}

#[test]
fn all_jobs_of_a_detached_stream_run() {
    let runtime = current_thread();
    let (jobs, done) = unbounded();
    let ran = Arc::new(AtomicUsize::new(0));
    for tag in 0..1_000 {
        let ran = ran.clone();
        submit_on(&jobs, runtime.handle(), tag, async move {
            ran.fetch_add(1, Ordering::SeqCst);
        });
    }
    done.detach();
    drop(jobs);
    let all = || ran.load(Ordering::SeqCst) == 1_000;
    runtime.block_on(eventually("all have run", all));
}

#[test]
fn an_abort_drops_a_queued_job_at_once() {
    let runtime = current_thread();
    let (jobs, mut done) = unbounded();
    let drops = Drops::new();
    let ids = [0, 1, 2].map(|tag| {
        let value = drops.value();
        submit_on(&jobs, runtime.handle(), tag, async move { drop(value) })
    });
    assert_eq!(drops.count(), 0);
    assert!(jobs.abort(ids[1]));
    assert_eq!(drops.count(), 1);
    let aborted = take(&mut done);
    assert_eq!(aborted.id, ids[1]);
    assert!(aborted.outcome.unwrap_err().is_cancelled());
    // It does not hold the others up.
    assert_eq!(runtime.block_on(within(succeeded(&mut done, 2))), 2);
}

#[test]
fn the_drop_of_a_stream_drops_its_queued_jobs() {
    let runtime = current_thread();
    let (jobs, done) = unbounded::<()>();
    let drops = Drops::new();
    for tag in 0..100 {
        let value = drops.value();
        submit_on(&jobs, runtime.handle(), tag, async move { drop(value) });
    }
    drop(done);
    assert_eq!(drops.count(), 100);
}

// ===== runtimes that shut down =====

#[test]
fn a_runtime_that_goes_cancels_what_is_queued() {
    let runtime = current_thread();
    let handle = runtime.handle().clone();
    let (jobs, mut done) = unbounded::<()>();
    let drops = Drops::new();
    for tag in 0..100 {
        let value = drops.value();
        submit_on(&jobs, &handle, tag, async move { drop(value) });
    }
    drop(runtime);
    assert_eq!(drops.count(), 100);
    for tag in 100..110 {
        submit_on(&jobs, &handle, tag, async {});
    }
    drop(jobs);
    let items = block_on(done.by_ref().collect::<Vec<_>>());
    assert_eq!(items.len(), 110);
    for item in items {
        assert!(item.outcome.unwrap_err().is_cancelled());
    }
}

/// Jobs that are queued behind blocked jobs do not wait for these.
#[test]
fn a_runtime_that_goes_does_not_wait_for_jobs_that_block() {
    const WORKERS: usize = 2;
    let runtime = multi_thread(WORKERS, "worker");
    let (jobs, mut done) = unbounded();
    let (gate, (entered, inside)) = (Gate::new(), channel());
    for tag in 0..WORKERS {
        let (gate, entered) = (gate.clone(), entered.clone());
        submit_on(&jobs, runtime.handle(), tag, async move {
            block_in_place(|| {
                entered.send(()).unwrap();
                gate.pass();
            });
        });
    }
    for _ in 0..WORKERS {
        receive(&inside);
    }
    for tag in 0..10 {
        submit_on(&jobs, runtime.handle(), WORKERS + tag, pending());
    }
    runtime.shutdown_background();
    for _ in 0..10 {
        let item = block_on(done.next()).unwrap();
        assert!(item.tag >= WORKERS);
        assert!(item.outcome.unwrap_err().is_cancelled());
    }
    gate.open();
    for _ in 0..WORKERS {
        assert!(block_on(done.next()).unwrap().outcome.is_ok());
    }
}

#[test]
fn a_stream_outlives_its_first_runtime() {
    let first = multi_thread(1, "first");
    let (jobs, mut done) = unbounded();
    submit_on(&jobs, first.handle(), 0, async {});
    assert!(block_on(done.next()).unwrap().outcome.is_ok());
    submit_on(&jobs, first.handle(), 1, pending());
    let second = multi_thread(1, "second");
    submit_on(&jobs, second.handle(), 2, async {});
    assert_eq!(block_on(done.next()).unwrap().tag, 2);
    drop(first);
    let item = block_on(done.next()).unwrap();
    assert!(item.tag == 1 && item.outcome.unwrap_err().is_cancelled());
    for tag in 3..100 {
        submit_on(&jobs, second.handle(), tag, tokio::task::yield_now());
    }
    assert_eq!(block_on(succeeded(&mut done, 97)), 97);
}

/// Nobody reads the stream any more, and nobody wakes its jobs.
#[test]
fn futures_of_a_detached_stream_go_with_their_runtime() {
    let (runtime, drops) = (multi_thread(2, "worker"), Drops::new());
    let (jobs, done) = unbounded();
    let polled = Arc::new(AtomicUsize::new(0));
    for tag in 0..10 {
        let (polled, value) = (Arc::clone(&polled), drops.value());
        submit_on(&jobs, runtime.handle(), tag, async move {
            let _value = value;
            polled.fetch_add(1, Ordering::SeqCst);
            pending::<()>().await;
        });
    }
    let all_wait = eventually("all jobs wait", || polled.load(Ordering::SeqCst) == 10);
    block_on(all_wait);
    done.detach();
    assert_eq!(drops.count(), 0);
    drop(runtime);
    assert_eq!(drops.count(), 10);
}

/// Jobs are submitted while their runtime shuts down: each yields one item.
#[test]
fn a_runtime_goes_while_jobs_are_submitted() {
    const JOBS: usize = 50;
    for round in 0..rounds(100, 10_000) {
        let runtime = match round % 3 {
            0 => current_thread(),
            workers => multi_thread(workers, "worker"),
        };
        let (jobs, mut done) = unbounded();
        let start = Barrier::new(3);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (jobs, handle, start) = (jobs.clone(), runtime.handle().clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    for tag in 0..JOBS {
                        submit_on(&jobs, &handle, tag, pending_for(tag % 2));
                    }
                });
            }
            start.wait();
            for _ in 0..round {
                std::hint::spin_loop();
            }
            runtime.shutdown_background();
        });
        assert!(block_on(succeeded(&mut done, 2 * JOBS)) <= 2 * JOBS);
        assert_eq!(jobs.in_flight(), 0);
    }
}

/// Is pending for a number of polls, and wakes itself.
fn pending_for(polls: usize) -> impl Future<Output = ()> + Send + 'static {
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Submits other jobs when it is dropped.
struct Submits {
    jobs: Submitter<(), usize>,
    runtime: Handle,
}

impl Drop for Submits {
    fn drop(&mut self) {
        for tag in 0..2 {
            submit_on(&self.jobs, &self.runtime, tag, async {});
        }
    }
}

#[test]
fn what_cancelled_jobs_submit_is_cancelled_as_well() {
    const JOBS: usize = 1_000;
    let runtime = current_thread();
    let (jobs, mut done) = unbounded();
    for tag in 0..JOBS {
        let submits = Submits {
            jobs: jobs.clone(),
            runtime: runtime.handle().clone(),
        };
        submit_on(&jobs, runtime.handle(), tag, async move { drop(submits) });
    }
    drop(runtime);
    assert_eq!(block_on(succeeded(&mut done, 3 * JOBS)), 0);
}
