//! Closing an executor, and waiting for its end.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use throng::SerialExecutor;
use throng::serial::Level;
use tokio::time::timeout;

use crate::occupied::occupy;
use crate::support::{
    Drops, TEST_TIMEOUT, Wakes, block_on, current_thread, join, multi_thread, panicking_waker,
    poll, poll_with, ready, rounds, wait_until, within,
};

#[test]
fn a_closed_executor_refuses_and_runs_what_it_accepted() {
    let executor = SerialExecutor::new(0);
    assert!(!executor.is_closed());
    let busy = occupy(&executor);
    let accepted: Vec<_> = (0..5).map(|_| executor.submit(|n| *n += 1)).collect();
    executor.close();
    executor.close();
    assert!(executor.is_closed());

    let captured = Drops::new();
    let value = captured.value();
    let refused = executor.submit(move |_| drop(value));
    assert!(ready(refused).unwrap_err().is_closed());
    assert_eq!(captured.count(), 1);

    busy.release();
    for handle in accepted {
        join(handle).unwrap();
    }
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_closed());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 5);
}

#[test]
fn a_job_closes_its_own_executor() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let again = executor.clone();
    let closes = executor.submit(move |_| {
        again.close();
        again.submit(|_| ())
    });
    let accepted = executor.submit(|n| *n += 1);
    busy.release();
    let refused = join(closes).unwrap();
    assert!(ready(refused).unwrap_err().is_closed());
    join(accepted).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), 1);
}

#[test]
fn jobs_that_are_accepted_during_a_close_run() {
    const THREADS: usize = 4;
    let runtime = multi_thread(1, "drain");
    for round in 0..rounds(300, 30_000) {
        let executor = SerialExecutor::builder()
            .capture_jobs(round % 3)
            .build(0_usize)
            .unwrap();
        let barrier = Barrier::new(THREADS + 1);
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let _in = runtime.enter();
                    barrier.wait();
                    let deadline = Instant::now() + TEST_TIMEOUT;
                    // Until a job is refused.
                    while join(executor.submit(|n| *n += 1)).is_ok() {
                        accepted.fetch_add(1, Ordering::SeqCst);
                        assert!(Instant::now() < deadline, "never closed");
                    }
                });
            }
            barrier.wait();
            wait_until("a job was accepted", || accepted.load(Ordering::SeqCst) > 0);
            executor.close();
        });
        let executed = block_on(executor.into_inner()).unwrap();
        assert_eq!(executed, accepted.into_inner());
    }
}

#[test]
fn closed_waits_for_what_was_accepted() {
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
fn a_closed_executor_refuses_jobs_of_every_method() {
    for capacity in [None, Some(1)] {
        let mut builder = SerialExecutor::builder();
        if let Some(jobs) = capacity {
            builder.queue_capacity(jobs);
        }
        let executor = builder.build(()).unwrap();
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
        assert!(ready(executor.reserve().boxed()).is_err());
        let refused = executor.try_run(|()| ()).unwrap_err();
        assert!(refused.is_closed());
    }
}

#[test]
fn an_idle_executor_ends_as_soon_as_it_is_closed() {
    for shuts_down in [false, true] {
        let executor = SerialExecutor::new(());
        ready(executor.submit(|()| ())).unwrap();
        executor.close();
        if shuts_down {
            assert_eq!(executor.shutdown_now(), 0);
        }
        ready(executor.closed().boxed());
    }
}

#[test]
fn closed_can_time_out_and_be_called_again() {
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
fn a_task_that_awaits_closed_can_be_aborted() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let busy = occupy(&executor);
        executor.close();
        let [interrupted, other] = [(); 2].map(|()| {
            let executor = executor.clone();
            tokio::spawn(async move { executor.closed().await })
        });
        // Both wait when this has yielded.
        tokio::task::yield_now().await;
        interrupted.abort();
        assert!(within(interrupted).await.unwrap_err().is_cancelled());
        assert!(!other.is_finished());
        busy.release();
        within(other).await.unwrap();
    });
}

#[test]
fn closed_does_not_close() {
    let executor = SerialExecutor::new(());
    let mut closed = Box::pin(executor.closed());
    assert!(poll(&mut closed).is_pending());
    executor.close();
    ready(closed);
    let state = ready(Box::pin(executor.clone().into_inner()));
    state.unwrap();
    ready(Box::pin(executor.closed()));
}

#[test]
fn a_panic_in_a_waker_does_not_keep_the_other_waiters_of_closed_asleep() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let (wakes, waker) = Wakes::new();
    let wakers = [waker.clone(), panicking_waker(), waker.clone(), waker];
    let mut waiting: Vec<_> = wakers.iter().map(|_| Box::pin(executor.closed())).collect();
    for (waker, closed) in wakers.iter().zip(&mut waiting) {
        assert!(poll_with(waker, closed).is_pending());
    }
    executor.close();
    wait_until("the others are woken", || wakes.count() >= 3);
    for (waker, closed) in wakers.iter().zip(&mut waiting) {
        assert!(poll_with(waker, closed).is_pending());
    }
    busy.release();
    wait_until("the others are woken again", || wakes.count() >= 6);
    waiting.into_iter().for_each(ready);
}

#[test]
fn idle_waits_for_queued_jobs_and_the_executor_stays_open() {
    let executor = SerialExecutor::new(0);
    ready(executor.idle().boxed());
    let busy = occupy(&executor);
    let queued = executor.submit(|n| *n += 1);
    let mut idle = executor.idle().boxed();
    assert!(idle.as_mut().now_or_never().is_none());
    busy.release();
    block_on(idle);
    assert!(queued.is_finished());
    join(executor.submit(|n| assert_eq!(*n, 1))).unwrap();
}

/// The jobs end without running.
#[test]
fn idle_waits_for_the_end_of_a_poisoned_executor() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let failing = executor.submit(|()| panic!("on purpose"));
    let after = executor.submit(|()| ());
    let mut idle = executor.idle().boxed();
    assert!(idle.as_mut().now_or_never().is_none());
    busy.release();
    block_on(idle);
    let failed: Result<(), _> = join(failing);
    assert!(failed.unwrap_err().is_panic());
    assert!(join(after).unwrap_err().is_poisoned());
    assert!(executor.is_poisoned());
    ready(executor.idle().boxed());
}

#[test]
fn idle_waits_for_the_guard_of_an_asynchronous_job() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let executor = SerialExecutor::new(0);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let job = executor.submit_async(|mut n| async move {
        ended.await.unwrap();
        *n += 1;
    });
    let mut idle = executor.idle().boxed();
    assert!(idle.as_mut().now_or_never().is_none());
    end.send(()).unwrap();
    block_on(idle);
    assert!(block_on(job).is_ok());
    assert!(!executor.metrics().is_busy);
}
