//! Metrics, and the output of `Debug`.

use std::panic::resume_unwind;

use throng::serial::Builder;
use throng::{BlockingPool, JoinHandle, SerialExecutor};

use crate::occupied::occupy;
use crate::support::{block_on, current_thread, join, multi_thread};

/// Runs jobs, of which every other one panics. Returns how many were not counted when their handles were ready.
fn uncounted(executor: &SerialExecutor<()>, submit: impl Fn(bool) -> JoinHandle<()>) -> usize {
    let jobs = (1..=2_000).filter(|&n| {
        let ended = submit(n % 2 == 0).blocking_join();
        assert_eq!(ended.is_err_and(|error| error.is_panic()), n % 2 == 0);
        let metrics = executor.metrics();
        let ran = metrics.inline + metrics.queued;
        let ended = (metrics.completed, metrics.panicked);
        (ran, ended, metrics.queue_length) != (n, (n - n / 2, n / 2), 0)
    });
    jobs.count()
}

/// Panics without a message.
fn job(panics: bool) -> impl FnOnce(&mut ()) {
    move |()| {
        if panics {
            resume_unwind(Box::new(()))
        }
    }
}

fn continuing() -> Builder<()> {
    let mut builder = SerialExecutor::builder();
    builder.poison_on_panic(false);
    builder
}

#[test]
fn a_job_is_counted_before_its_handle_is_ready() {
    let runtime = multi_thread(2, "drains");
    let pool = BlockingPool::builder().max_threads(2).build().unwrap();
    let on_pool = continuing().drain_on(pool).build(()).unwrap();
    assert_eq!(uncounted(&on_pool, |panics| on_pool.post(job(panics))), 0);
    let _inside = runtime.enter();
    let executor = continuing().build(()).unwrap();
    assert_eq!(
        uncounted(&executor, |panics| executor.submit(job(panics))),
        0
    );
    let executor = continuing().build(()).unwrap();
    assert_eq!(uncounted(&executor, |panics| executor.post(job(panics))), 0);
    let executor = continuing().build(()).unwrap();
    let submit_async =
        |panics| executor.submit_async(move |mut state| async move { job(panics)(&mut state) });
    assert_eq!(uncounted(&executor, submit_async), 0);
}

#[test]
fn the_queue_is_empty_when_its_job_has_run() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let queued = executor.submit(|()| ());
    assert_eq!(executor.metrics().queue_length, 1);
    busy.release();
    join(queued).unwrap();
    let metrics = executor.metrics();
    assert_eq!((metrics.queue_length, metrics.max_queue_length), (0, 1));
}

#[test]
fn metrics_count_what_was_done() {
    let executor = SerialExecutor::builder()
        .poison_on_panic(false)
        .build(())
        .unwrap();
    let counts = || {
        let metrics = executor.metrics();
        [
            metrics.inline,
            metrics.queued,
            metrics.captured,
            metrics.handed_over,
            metrics.completed,
            metrics.panicked,
        ]
    };
    assert_eq!(counts(), [0, 0, 0, 0, 0, 0]);

    drop(executor.submit(|()| ()));
    executor.try_run(|()| ()).unwrap();
    drop(executor.submit(|()| panic!("on purpose")));
    assert_eq!(counts(), [3, 0, 0, 0, 2, 1]);

    let busy = occupy(&executor);
    for _ in 0..4 {
        drop(executor.submit(|()| ()));
    }
    drop(executor.submit(|()| panic!("on purpose")));
    assert_eq!(counts(), [3, 0, 0, 0, 2, 1]);
    busy.release();
    assert_eq!(counts(), [4, 5, 5, 0, 7, 2]);

    let runtime = current_thread();
    {
        let _in = runtime.enter();
        for _ in 0..3 {
            drop(executor.post(|()| ()));
        }
    }
    assert_eq!(counts(), [4, 5, 5, 1, 7, 2]);
    runtime.block_on(executor.post(|()| ())).unwrap();
    assert_eq!(counts(), [4, 9, 5, 1, 11, 2]);
    assert_eq!(executor.metrics(), executor.metrics().clone());
}

#[test]
fn metrics_count_jobs_that_were_not_accepted() {
    let executor = SerialExecutor::builder()
        .queue_capacity(1)
        .build(())
        .unwrap();
    let rejected = || executor.metrics().rejected;
    let busy = occupy(&executor);
    let queued = executor.submit(|()| ());
    drop(executor.submit(|()| ()));
    drop(executor.post(|()| ()));
    drop(executor.try_submit(|()| ()));
    drop(executor.submit_async(|state| async move { drop(state) }));
    assert_eq!(rejected(), 4);
    // `try_run` is not counted.
    assert!(executor.try_run(|()| ()).is_err());
    assert_eq!(rejected(), 4);
    busy.release();
    join(queued).unwrap();

    // There is no runtime.
    drop(executor.post(|()| ()));
    drop(executor.submit_async(|state| async move { drop(state) }));
    assert_eq!(rejected(), 6);
    drop(executor.submit(|()| panic!("on purpose")));
    drop(executor.submit(|()| ()));
    executor.close();
    drop(executor.submit(|()| ()));
    executor.blocking_run(|()| ()).unwrap_err();
    assert_eq!(rejected(), 9);
}

#[test]
fn debug_output_shows_the_condition_of_an_executor() {
    let executor = SerialExecutor::new(());
    let text = format!("{executor:?}");
    assert!(text.contains("busy: false"), "{text}");
    assert!(text.contains("inline: 0"), "{text}");

    let busy = occupy(&executor);
    let text = format!("{executor:?}");
    assert!(text.contains("busy: true"), "{text}");
    busy.release();

    drop(executor.submit(|()| panic!("on purpose")));
    executor.close();
    let text = format!("{executor:?}");
    assert!(text.contains("closed: true"), "{text}");
    assert!(text.contains("poisoned: true"), "{text}");

    let text = format!("{:?}", SerialExecutor::<()>::builder().capture_jobs(3));
    assert!(text.contains("capture_jobs: 3"), "{text}");
}

#[test]
fn an_executor_is_busy_while_a_job_runs_and_poisoned_after_a_panic() {
    let executor = SerialExecutor::new(());
    assert!(!executor.metrics().is_busy && !executor.metrics().is_poisoned);
    let inside = executor.clone();
    let seen = block_on(executor.submit(move |()| inside.metrics()));
    assert!(seen.unwrap().is_busy);
    let failed: Result<(), _> = block_on(executor.submit(|()| panic!("on purpose")));
    assert!(failed.is_err());
    assert!(!executor.metrics().is_busy && executor.metrics().is_poisoned);
    executor.clear_poison();
    assert!(!executor.metrics().is_poisoned);
}
