//! An executor that never runs a job on its submitter.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use throng::serial::Level;
use throng::{BlockingPool, SerialExecutor};
use tokio::runtime::Handle;

use crate::support::{Gate, join, multi_thread, ready, receive, thread_name};

fn executor() -> SerialExecutor<usize> {
    SerialExecutor::builder().inline(false).build(0).unwrap()
}

#[test]
fn submit_does_what_post_does() {
    let runtime = multi_thread(1, "drain");
    let executor = executor();
    let _in = runtime.enter();
    for level in [Level::LOW, Level::NORMAL, Level::HIGH] {
        let name = executor.submit_at(level, |_| thread_name());
        assert_eq!(join(name).unwrap(), "drain");
    }
    let name = executor.try_submit(|_| thread_name()).unwrap();
    assert_eq!(join(name).unwrap(), "drain");
    assert_eq!(executor.metrics().inline, 0);

    let release = occupy_in_runtime(&executor);
    let name = executor.submit(|_| thread_name());
    release();
    assert_eq!(join(name).unwrap(), "drain");
}

/// Runs a job on another thread, inside the runtime of this one, until the returned closure is called.
fn occupy_in_runtime(executor: &SerialExecutor<usize>) -> impl FnOnce() {
    let gate = Gate::new();
    let (entered, has_entered) = channel();
    let (executor, passed) = (executor.clone(), gate.clone());
    let runtime = Handle::current();
    let holder = thread::spawn(move || {
        let _in = runtime.enter();
        let job = |_: &mut usize| {
            entered.send(()).unwrap();
            passed.pass();
        };
        executor.blocking_run(job).unwrap();
    });
    receive(&has_entered);
    move || {
        gate.open();
        holder.join().unwrap();
    }
}

#[test]
fn submit_may_be_called_under_a_lock_that_jobs_take() {
    let runtime = multi_thread(1, "drain");
    let executor = executor();
    let lock = Arc::new(Mutex::new(0));
    let _in = runtime.enter();
    let handles = {
        let mut held = lock.lock().unwrap();
        *held = 1;
        [(); 3].map(|()| {
            let lock = Arc::clone(&lock);
            executor.submit(move |_| *lock.lock().unwrap() += 1)
        })
    };
    for handle in handles {
        join(handle).unwrap();
    }
    assert_eq!(*lock.lock().unwrap(), 4);
}

#[test]
fn without_a_runtime_submit_is_rejected() {
    let executor = executor();
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_rejected());
    // These methods run the job on this thread.
    executor.try_run(|n| *n += 1).unwrap();
    executor.blocking_run(|n| *n += 1).unwrap();
    assert_eq!(executor.try_run(|n| *n).unwrap(), 2);
    let text = format!("{:?}", SerialExecutor::<()>::builder().inline(false));
    assert!(text.contains("inline: false"), "{text}");
}

#[test]
fn a_permit_posts_the_job() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder()
        .inline(false)
        .queue_capacity(1)
        .build(())
        .unwrap();
    let _in = runtime.enter();
    for _ in 0..3 {
        let permit = runtime.block_on(executor.reserve()).unwrap();
        let name = permit.submit(|()| thread_name());
        assert_eq!(join(name).unwrap(), "drain");
    }
}

#[test]
fn a_caller_with_a_capture_limit_of_zero_runs_its_own_job() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(runtime.handle().clone())
        .build(())
        .unwrap();
    let again = executor.clone();
    let here = executor.submit(move |()| (thread_name(), again.submit(|()| thread_name())));
    let (own, other) = ready(here).unwrap();
    assert_eq!((own, join(other).unwrap()), (thread_name(), "drain".into()));
}

#[test]
fn a_rejected_job_is_returned() {
    // There is no runtime to run it.
    let executor = executor();
    let refused = executor.try_submit(|_| "mine").unwrap_err();
    assert!(!refused.is_full() && !refused.is_closed());
    assert_eq!(refused.into_inner()(&mut 0), "mine");
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_rejected());

    let bounded = SerialExecutor::builder()
        .inline(false)
        .queue_capacity(1)
        .build(0)
        .unwrap();
    let runtime = multi_thread(1, "drain");
    let _in = runtime.enter();
    let release = occupy_in_runtime(&bounded);
    let queued = bounded.submit(|_| ());
    let full = bounded.try_submit(|_| "mine").unwrap_err();
    assert!(full.is_full());
    assert_eq!(full.into_inner()(&mut 0), "mine");
    release();
    join(queued).unwrap();
}

#[test]
fn a_posted_job_never_runs_on_the_posting_thread() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    pool.close();
    let executor = SerialExecutor::builder().drain_on(pool).build(()).unwrap();
    let here = thread::current().id();
    let posted = executor.post(move |()| assert_ne!(thread::current().id(), here));
    assert!(join(posted).unwrap_err().is_cancelled());
    join(executor.submit(|()| ())).unwrap();
}
