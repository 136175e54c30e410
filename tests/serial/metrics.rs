//! Metrics of an executor as seen after the end of a job.

use std::panic::resume_unwind;

use throng::serial::{Builder, OnPanic};
use throng::{BlockingPool, JoinHandle, SerialExecutor};

use super::support::multi_thread;

/// Returns how many jobs the metrics do not count yet when their handles are ready. Every other job panics.
fn late(executor: &SerialExecutor<()>, submit: impl Fn(bool) -> JoinHandle<()>) -> usize {
    let jobs = (1..=2_000).filter(|&n| {
        let ended = submit(n % 2 == 0).blocking_join();
        assert_eq!(ended.is_err_and(|error| error.is_panic()), n % 2 == 0);
        let metrics = executor.metrics();
        let ran = metrics.inline + metrics.queued;
        (ran, metrics.panics, metrics.queue_length) != (n, n / 2, 0)
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

fn going_on() -> Builder {
    let mut builder = SerialExecutor::builder();
    builder.on_panic(OnPanic::Continue);
    builder
}

#[test]
fn who_knows_how_a_job_ended_finds_it_counted() {
    let runtime = multi_thread(2, "drains");
    let pool = BlockingPool::builder().max_threads(2).build().unwrap();
    let on_pool = going_on().drain_on(pool).build(());
    assert_eq!(late(&on_pool, |panics| on_pool.post(job(panics))), 0);
    let _inside = runtime.enter();
    let executor = going_on().build(());
    assert_eq!(late(&executor, |panics| executor.submit(job(panics))), 0);
    let executor = going_on().build(());
    assert_eq!(late(&executor, |panics| executor.post(job(panics))), 0);
    let executor = going_on().build(());
    let submit_async =
        |panics| executor.submit_async(move |mut state| async move { job(panics)(&mut state) });
    assert_eq!(late(&executor, submit_async), 0);
}
