//! Closing, cancelling what is queued, and waiting for the end.

use std::time::Duration;

use futures::FutureExt;
use throng::SerialExecutor;
use throng::serial::Level;
use tokio::time::timeout;

use crate::occupied::occupy;
use crate::support::{Drops, Wakes, block_on, current_thread, join, poll_with, ready, within};

#[test]
fn a_job_that_comes_after_the_close_is_refused_and_dropped() {
    let executor = SerialExecutor::new(0);
    executor.close();
    let captured = Drops::new();
    let value = captured.value();
    let refused = executor.submit(move |n| {
        *n += 1;
        drop(value);
    });
    assert_eq!(captured.count(), 1);
    assert!(ready(refused).unwrap_err().is_closed());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 0);
}

#[test]
fn a_job_that_closes_its_executor_lets_the_queued_ones_run() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let again = executor.clone();
    let closes = executor.submit(move |_| again.close());
    let queued = executor.submit(|n| *n += 1);
    busy.release();
    join(closes).unwrap();
    join(queued).unwrap();
    ready(executor.closed().boxed());
}

#[test]
fn after_the_close_what_was_accepted_runs_and_then_it_ends() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let accepted: Vec<_> = (0..3).map(|_| executor.submit(|n| *n += 1)).collect();
    executor.close();
    assert!(executor.is_closed());
    assert!(ready(executor.submit(|n| *n += 1)).unwrap_err().is_closed());
    assert!(executor.closed().now_or_never().is_none());
    busy.release();
    for handle in accepted {
        join(handle).unwrap();
    }
    ready(executor.closed().boxed());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 3);
}

#[test]
fn closed_and_cancelled_it_ends_with_the_job_that_runs() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let queued = [(); 2].map(|()| executor.submit(|n| *n += 1));
    executor.close();
    assert_eq!(executor.cancel_queued(), 2);
    for handle in queued {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    let (wakes, waker) = Wakes::new();
    let mut closed = executor.closed().boxed();
    assert!(poll_with(&waker, &mut closed).is_pending());
    let woken = wakes.count();
    busy.release();
    assert!(wakes.count() > woken);
    ready(closed);
    assert_eq!(block_on(executor.into_inner()).unwrap(), 0);
}

#[test]
fn a_closed_executor_refuses_jobs_in_whatever_way_they_come() {
    for capacity in [None, Some(1)] {
        let mut builder = SerialExecutor::builder();
        if let Some(jobs) = capacity {
            builder.capacity(jobs);
        }
        let executor = builder.build(());
        executor.close();
        let handles = [
            executor.submit(|()| ()),
            executor.submit_at(Level::HIGH, |()| ()),
            executor.post(|()| ()),
        ];
        for handle in handles {
            assert!(ready(handle).unwrap_err().is_closed());
        }
        assert!(executor.blocking_run(|()| ()).unwrap_err().is_closed());
        assert!(executor.try_submit(|()| ()).unwrap_err().is_closed());
        assert!(ready(executor.reserve().boxed()).unwrap_err().is_closed());
        let refused = executor.try_run(|()| ()).unwrap_err();
        assert!(refused.is_closed());
    }
}

#[test]
fn an_idle_executor_ends_as_soon_as_it_is_closed() {
    for cancels in [false, true] {
        let executor = SerialExecutor::new(());
        ready(executor.submit(|()| ())).unwrap();
        executor.close();
        if cancels {
            assert_eq!(executor.cancel_queued(), 0);
        }
        ready(executor.closed().boxed());
    }
}

#[test]
fn who_waits_for_the_end_may_give_up_and_wait_again() {
    current_thread().block_on(async {
        tokio::time::pause();
        let executor = SerialExecutor::new(());
        let busy = occupy(&executor);
        executor.close();
        let elapsed = timeout(Duration::from_secs(60), executor.closed()).await;
        elapsed.expect_err("the job still runs");
        busy.release();
        within(executor.closed()).await;
    });
}

#[test]
fn a_job_that_closes_its_executor_may_not_submit_any_more() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let again = executor.clone();
    let closes = executor.submit(move |n: &mut u32| {
        *n += 1;
        again.close();
        again.submit(|n| *n += 100)
    });
    let queued = executor.submit(|n| *n += 1);
    busy.release();
    let nested = join(closes).unwrap();
    assert!(ready(nested).unwrap_err().is_closed());
    join(queued).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), 2);
}

/// To interrupt one who waits is to abort the task that awaits.
#[test]
fn who_waits_for_the_end_may_be_interrupted() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let busy = occupy(&executor);
        executor.close();
        let [interrupted, other] = [(); 2].map(|()| {
            let executor = executor.clone();
            tokio::spawn(async move { executor.closed().await })
        });
        // Both wait, behind this.
        tokio::task::yield_now().await;
        interrupted.abort();
        assert!(within(interrupted).await.unwrap_err().is_cancelled());
        assert!(!other.is_finished());
        busy.release();
        within(other).await.unwrap();
    });
}
