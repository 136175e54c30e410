//! Asynchronous jobs, which have the state across await points.

use std::error::Error;
use std::future::{pending, poll_fn, ready as done};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use throng::serial::Exclusive;
use throng::{BlockingPool, JoinError, JoinHandle, SerialExecutor};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::support::{
    Drops, Gate, Numbers, PanicsOnDrop, TEST_TIMEOUT, block_on, current_thread, eventually, join,
    message, multi_thread, panicking_waker, poll, poll_with, ready, receive, rounds, thread_name,
    wait_until, within,
};

/// A job that has started and waits for a message.
struct Suspended<T> {
    handle: JoinHandle<T>,
    go_on: oneshot::Sender<()>,
}

/// Starts a job that waits. Called inside a runtime.
async fn suspend<S: Send + 'static>(executor: &SerialExecutor<S>) -> Suspended<()> {
    suspend_with(executor, |state, told| async move {
        let _ = told.await;
        drop(state);
    })
    .await
}

async fn suspend_with<S, F, Fut>(executor: &SerialExecutor<S>, job: F) -> Suspended<Fut::Output>
where
    S: Send + 'static,
    F: FnOnce(Exclusive<S>, oneshot::Receiver<()>) -> Fut + Send + 'static,
    Fut: Future<Output: Send> + Send + 'static,
{
    let (go_on, told) = oneshot::channel();
    let (begun, has_begun) = oneshot::channel();
    let handle = executor.submit_async(move |state| {
        begun.send(()).unwrap();
        job(state, told)
    });
    within(has_begun).await.unwrap();
    Suspended { handle, go_on }
}

/// Both kinds of runtime, one after the other.
fn on_runtimes<Fut: Future<Output = ()>>(test: impl Fn() -> Fut) {
    current_thread().block_on(async { within(test()).await });
    multi_thread(2, "drain").block_on(async { within(test()).await });
}

// ===== exclusive across await points =====

#[test]
fn a_job_is_not_polled_by_its_submitter() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(1);
        let begun = Arc::new(AtomicUsize::new(0));
        let mut handle = executor.submit_async({
            let begun = Arc::clone(&begun);
            move |mut n| async move {
                begun.fetch_add(1, Ordering::SeqCst);
                *n += 1;
                *n
            }
        });
        assert!(poll(&mut handle).is_pending());
        assert_eq!(begun.load(Ordering::SeqCst), 0);
        assert_eq!(within(handle).await.unwrap(), 2);
    });
}

#[test]
fn later_jobs_wait_across_await_points_in_order() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(vec![]);
        let first = suspend_with(&executor, |mut list, told| async move {
            list.push(1);
            told.await.unwrap();
            list.push(2);
        })
        .await;
        let mut second = executor.submit(|list| list.push(3));
        let mut third = executor.submit_async(|mut list| async move {
            list.push(4);
            tokio::task::yield_now().await;
            list.push(5);
        });
        let mut fourth = executor.post(|list| list.push(6));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(poll(&mut second).is_pending());
        assert!(poll(&mut third).is_pending());
        assert!(poll(&mut fourth).is_pending());
        assert!(executor.try_run(|_| ()).is_err_and(|error| error.is_full()));

        first.go_on.send(()).unwrap();
        first.handle.await.unwrap();
        fourth.await.unwrap();
        assert!(second.is_finished() && third.is_finished());
        assert_eq!(executor.into_inner().await.unwrap(), [1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn a_job_goes_on_when_its_handle_is_dropped() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(0);
        let Suspended { handle, go_on } = suspend_with(&executor, |mut n, told| async move {
            told.await.unwrap();
            *n += 1;
        })
        .await;
        drop(handle);
        go_on.send(()).unwrap();
        assert_eq!(executor.submit(|n| *n).await.unwrap(), 1);
    });
}

/// The program known as "futurelock": a task waits for a lock in a `select!`, another branch becomes ready, and that
/// branch waits for the same lock. If the lock is fair and was granted to the first future, which is not polled any
/// more, the program hangs.
#[test]
fn a_caller_that_stops_polling_blocks_no_other_caller() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(0);
        let holder = suspend(&executor).await;
        let mut first = executor.submit_async(|mut n| async move {
            tokio::task::yield_now().await;
            *n += 1;
        });
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("the holder holds the state"),
            () = done(()) => {
                holder.go_on.send(()).unwrap();
                // `first` is neither polled nor dropped while this waits for the job behind it.
                let second = executor.submit_async(|mut n| async move {
                    tokio::task::yield_now().await;
                    *n += 1;
                    *n
                });
                assert_eq!(second.await.unwrap(), 2);
            }
        }
        first.await.unwrap();
    });
}

#[test]
fn a_job_that_drops_its_guard_early_still_runs_alone() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(0);
        let job = suspend_with(&executor, |state, told| async move {
            drop(state);
            told.await.unwrap();
        })
        .await;
        let mut next = executor.submit(|n| *n);
        assert!(poll(&mut next).is_pending());
        job.go_on.send(()).unwrap();
        assert_eq!(next.await.unwrap(), 0);
    });
}

#[test]
fn a_job_submits_to_its_own_executor() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(vec![]);
        let own = executor.clone();
        let job = executor.submit_async(|mut list| async move {
            drop(own.submit_async(|mut list| async move { list.push(2) }));
            let last = own.submit(|list| list.push(3));
            tokio::task::yield_now().await;
            list.push(1);
            [last]
        });
        let [last] = job.await.unwrap();
        last.await.unwrap();
        assert_eq!(executor.into_inner().await.unwrap(), [1, 2, 3]);
    });
}

#[test]
fn a_suspended_job_costs_nothing() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let polls = Arc::new(AtomicUsize::new(0));
        let (wake, woken) = oneshot::channel();
        let job = executor.submit_async({
            let polls = Arc::clone(&polls);
            move |state| async move {
                let mut woken = woken;
                // Counts the polls of the drain.
                poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::SeqCst);
                    std::pin::Pin::new(&mut woken).poll(cx)
                })
                .await
                .unwrap();
                drop(state);
            }
        });
        eventually("the job waits", || polls.load(Ordering::SeqCst) == 1).await;
        let behind: Vec<_> = (0..100).map(|_| executor.submit(|()| ())).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Ordering::SeqCst), 1);
        wake.send(()).unwrap();
        within(job).await.unwrap();
        for handle in behind {
            within(handle).await.unwrap();
        }
        assert_eq!(polls.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_job_sees_the_runtime_that_polls_it_and_not_its_submitters_context() {
    tokio::task_local! {
        static NAME: u8;
    }
    let drains = multi_thread(1, "drains");
    let executor = SerialExecutor::builder()
        .drain_on(drains.handle().clone())
        .build(())
        .unwrap();
    let seen = current_thread().block_on(NAME.scope(1, async {
        let here = Handle::current().id();
        within(executor.submit_async(move |_| async move {
            let name = NAME.try_with(|name| *name).ok();
            (Handle::current().id() == here, name, thread_name())
        }))
        .await
    }));
    assert_eq!(seen.unwrap(), (false, None, "drains".to_owned()));
}

// ===== the guard elsewhere =====

#[test]
fn a_guard_that_is_moved_out_holds_the_executor() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(1);
        let mut state = executor
            .submit_async(|state| async move { state })
            .await
            .unwrap();
        let mut next = executor.submit(|n| *n);
        assert!(poll(&mut next).is_pending());
        let gate = Gate::new();
        let other = thread::spawn({
            let gate = gate.clone();
            move || {
                gate.pass();
                *state += 1;
            }
        });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!next.is_finished());
        gate.open();
        assert_eq!(next.await.unwrap(), 2);
        other.join().unwrap();
    });
}

#[test]
fn a_guard_is_dropped_while_the_drain_starts_to_wait() {
    multi_thread(2, "drain").block_on(async {
        let executor = SerialExecutor::new(0);
        for round in 0..rounds(500, 20_000) {
            let job = executor.submit_async(|mut n| async move {
                drop(thread::spawn(move || *n += 1));
            });
            let next = executor.submit(|n| *n);
            within(job).await.unwrap();
            assert_eq!(within(next).await.unwrap(), round + 1);
        }
    });
}

#[test]
fn a_leaked_guard_holds_the_executor_forever() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let job = executor.submit_async(|state| async { std::mem::forget(state) });
        within(job).await.unwrap();
        let mut next = executor.submit(|()| ());
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(poll(&mut next).is_pending());
        let ran = executor.try_run(|()| ());
        assert!(ran.is_err_and(|error| error.is_full()));
    });
}

#[test]
fn a_guard_shows_its_state() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new([1, 2]);
        let shown = executor.submit_async(|state| async move { format!("{state:?}") });
        assert_eq!(within(shown).await.unwrap(), "[1, 2]");
    });
}

// ===== where it runs =====

#[test]
fn a_job_without_a_runtime_is_rejected() {
    let executor = SerialExecutor::new(0);
    let drops = Drops::new();
    let value = drops.value();
    let error = ready(executor.submit_async(|_| async { drop(value) })).unwrap_err();
    assert!(error.is_rejected());
    assert!(error.source().unwrap().to_string().contains("runtime"));
    assert_eq!(drops.count(), 1);
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
}

#[test]
fn a_submitter_without_a_runtime_rejects_an_asynchronous_job_and_captures_the_others() {
    let executor = SerialExecutor::new(vec![]);
    let (first, job, last) = while_busy(&executor, None, |executor| {
        (
            executor.submit(|list| list.push(1)),
            executor.submit_async(|mut list| async move { list.push(2) }),
            executor.submit(|list| list.push(3)),
        )
    });
    join(first).unwrap();
    assert!(join(job).unwrap_err().is_rejected());
    join(last).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), [1, 3]);
}

#[test]
fn a_submitter_hands_over_when_it_reaches_an_asynchronous_job() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(());
    let (first, job, last) = while_busy(&executor, Some(runtime.handle()), |executor| {
        (
            executor.submit(|()| thread_name()),
            executor.submit_async(|_| async { thread_name() }),
            executor.submit(|()| thread_name()),
        )
    });
    assert_ne!(join(first).unwrap(), "drain");
    assert_eq!(join(job).unwrap(), "drain");
    assert_eq!(join(last).unwrap(), "drain");
    let metrics = executor.metrics();
    assert_eq!((metrics.queued, metrics.captured), (3, 1));
    assert_eq!(metrics.handed_over, 1);
}

#[test]
fn a_submitter_that_a_pool_refuses_rejects_an_asynchronous_job_and_captures_the_others() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let executor = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(vec![])
        .unwrap();
    let (first, job, last) = while_busy(&executor, None, |executor| {
        pool.close();
        (
            executor.submit(|list| list.push(1)),
            executor.submit_async(|mut list| async move { list.push(2) }),
            executor.submit(|list| list.push(3)),
        )
    });
    join(first).unwrap();
    assert!(join(job).unwrap_err().is_rejected());
    join(last).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), [1, 3]);
}

/// Calls `f` while a job runs on another thread, which is inside `runtime`. Returns when that thread has ended.
fn while_busy<S, R>(
    executor: &SerialExecutor<S>,
    runtime: Option<&Handle>,
    f: impl FnOnce(&SerialExecutor<S>) -> R,
) -> R
where
    S: Send + 'static,
{
    let gate = Gate::new();
    let (entered, has_entered) = channel();
    let holder = thread::spawn({
        let (executor, gate) = (executor.clone(), gate.clone());
        let runtime = runtime.cloned();
        move || {
            let _in = runtime.as_ref().map(Handle::enter);
            drop(executor.submit(move |_| {
                entered.send(()).unwrap();
                gate.pass();
            }));
        }
    });
    receive(&has_entered);
    let result = f(executor);
    gate.open();
    holder.join().unwrap();
    result
}

#[test]
fn a_pool_lends_a_job_a_thread() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .name("pool")
        .build()
        .unwrap();
    let executor = SerialExecutor::builder().drain_on(pool).build(1).unwrap();
    let (go_on, told) = oneshot::channel();
    let job = executor.submit_async(|mut n| async move {
        *n += told.await.unwrap();
        (*n, thread_name())
    });
    let next = executor.submit(|n| *n);
    assert!(!next.is_finished());
    go_on.send(1).unwrap();
    let (n, name) = join(job).unwrap();
    assert_eq!(n, 2);
    assert!(name.starts_with("pool"), "{name}");
    assert_eq!(join(next).unwrap(), 2);
}

// ===== the end of a runtime =====

#[test]
fn a_runtime_that_shuts_down_cancels_a_suspended_job_and_the_jobs_behind_it() {
    for workers in [0, 2] {
        let runtime = match workers {
            0 => current_thread(),
            workers => multi_thread(workers, "drain"),
        };
        let drops = Drops::new();
        let executor = SerialExecutor::new(drops.value());
        let value = drops.value();
        let job = runtime.block_on(suspend_with(&executor, |state, _told| async move {
            pending::<()>().await;
            drop((state, value));
        }));
        let behind = executor.submit({
            let value = drops.value();
            move |_| drop(value)
        });
        let behind_it = executor.submit_async({
            let value = drops.value();
            move |_| async { drop(value) }
        });
        runtime.shutdown_timeout(TEST_TIMEOUT);
        assert!(join(job.handle).unwrap_err().is_cancelled());
        assert!(join(behind).unwrap_err().is_cancelled());
        assert!(join(behind_it).unwrap_err().is_cancelled());
        wait_until("the captures are dropped", || drops.count() == 3);
        wait_until("the executor is idle", || executor.try_run(|_| ()).is_ok());
        drop(executor);
        assert_eq!(drops.count(), 4);
    }
}

#[test]
fn a_guard_outlives_the_runtime_that_polled_its_job() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(1);
    let mut state = runtime
        .block_on(async { within(executor.submit_async(|state| async { state })).await })
        .unwrap();
    let behind = executor.submit(|_| ());
    runtime.shutdown_timeout(TEST_TIMEOUT);
    assert!(join(behind).unwrap_err().is_cancelled());

    // There is no runtime to run it, and the drop of the guard does not.
    let unrun = executor.submit(|_| ());
    assert!(!unrun.is_finished());
    *state += 1;
    drop(state);
    assert!(ready(unrun).unwrap_err().is_cancelled());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 2);
}

#[test]
fn a_guard_that_outlived_its_runtime_hands_over_to_another() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(1);
    let state = runtime
        .block_on(async { within(executor.submit_async(|state| async { state })).await })
        .unwrap();
    drop(runtime);
    current_thread().block_on(async {
        let mut next = executor.submit(|n| *n);
        assert!(poll(&mut next).is_pending());
        drop(state);
        assert!(!next.is_finished());
        assert_eq!(within(next).await.unwrap(), 1);
    });
}

// ===== panics =====

#[test]
fn a_panic_of_an_asynchronous_job_is_handled_as_that_of_a_closure() {
    for poisons in [true, false] {
        current_thread().block_on(async {
            for stage in 0..3 {
                let executor = SerialExecutor::builder()
                    .poison_on_panic(poisons)
                    .build(0)
                    .unwrap();
                let job = executor.submit_async(move |mut n| {
                    *n += 1;
                    assert!(stage != 0, "at stage 0");
                    async move {
                        assert!(stage != 1, "at stage 1");
                        tokio::task::yield_now().await;
                        drop(n);
                        panic!("at stage 2");
                    }
                });
                let next = executor.submit(|n| *n);
                let error: JoinError = within(job).await.unwrap_err();
                assert_eq!(message(error.into_panic()), format!("at stage {stage}"));
                check_after_panic(&executor, within(next).await, poisons);
                assert_eq!(executor.metrics().panicked, 1);
            }
        });
    }
}

fn check_after_panic(executor: &SerialExecutor<i32>, next: Result<i32, JoinError>, poisons: bool) {
    assert_eq!(executor.is_poisoned(), poisons);
    match next {
        Ok(n) => assert!(!poisons && n == 1),
        Err(error) => assert!(poisons && error.is_poisoned()),
    }
}

#[test]
fn a_poisoned_executor_does_not_start_a_job() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let panics = executor.submit_async(|_| async { panic_any(()) });
        let drops = Drops::new();
        let value = drops.value();
        let job = executor.submit_async(|_| async { drop(value) });
        let panicked: Result<(), _> = within(panics).await;
        assert!(panicked.unwrap_err().is_panic());
        assert!(within(job).await.unwrap_err().is_poisoned());
        assert_eq!(drops.count(), 1);
        let refused = executor.submit_async(|_| async {});
        assert!(ready(refused).unwrap_err().is_poisoned());
        assert!(executor.clear_poison());
        within(executor.submit_async(|_| async {})).await.unwrap();
    });
}

#[test]
fn poisoning_applies_to_a_guard_that_a_panic_drops_elsewhere() {
    for poisons in [true, false] {
        current_thread().block_on(async {
            let executor = SerialExecutor::builder()
                .poison_on_panic(poisons)
                .build(1)
                .unwrap();
            let job = executor.submit_async(|state| async { state });
            let state = within(job).await.unwrap();
            let next = executor.submit(|n| *n);
            let elsewhere = AssertUnwindSafe(|| {
                let _state = state;
                panic!("elsewhere");
            });
            assert!(catch_unwind(elsewhere).is_err());
            check_after_panic(&executor, within(next).await, poisons);
        });
    }
}

#[test]
fn panics_in_the_output_the_future_and_the_waker_of_a_job_are_contained() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0);
        let drops = Drops::new();
        // Its output.
        let value = PanicsOnDrop(drops.value());
        drop(executor.submit_async(|_| async { value }));
        assert_eq!(within(executor.submit(|n| *n)).await.unwrap(), 0);
        assert_eq!(drops.count(), 1);
        // Its future, when it is aborted.
        let value = PanicsOnDrop(drops.value());
        let job = suspend_with(&executor, |state, _told| async move {
            pending::<()>().await;
            drop((state, value));
        })
        .await;
        job.handle.abort();
        assert!(within(job.handle).await.unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 2);
        assert_eq!(within(executor.submit(|n| *n)).await.unwrap(), 0);
        // The waker of its handle.
        let mut handle = executor.submit_async(|_| async {});
        assert!(poll_with(&panicking_waker(), &mut handle).is_pending());
        assert_eq!(within(executor.submit(|n| *n)).await.unwrap(), 0);
        within(handle).await.unwrap();
        assert!(!executor.is_poisoned());
    });
}

// ===== aborts =====

#[test]
fn an_aborted_job_ends_at_its_await_point() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(0);
        let drops = Drops::new();
        let value = drops.value();
        let job = suspend_with(&executor, |mut n, _told| async move {
            *n += 1;
            pending::<()>().await;
            *n += 1;
            drop(value);
        })
        .await;
        let next = executor.submit(|n| *n);
        job.handle.abort();
        assert!(job.handle.await.unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 1);
        assert_eq!(next.await.unwrap(), 1);
    });
}

#[test]
fn a_job_that_is_aborted_before_it_starts_is_dropped_at_once() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(());
        let first = suspend(&executor).await;
        let drops = Drops::new();
        let value = drops.value();
        let job = executor.submit_async(|_| async { drop(value) });
        job.abort();
        assert_eq!(drops.count(), 1);
        assert!(job.await.unwrap_err().is_cancelled());
        let next = executor.submit(|()| ());
        first.go_on.send(()).unwrap();
        next.await.unwrap();
    });
}

#[test]
fn an_abort_does_not_take_the_state_from_a_guard_elsewhere() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(1);
        let (give, given) = oneshot::channel();
        let job = executor.submit_async(|state| async move {
            give.send(state).unwrap();
            pending::<()>().await;
        });
        let mut state = given.await.unwrap();
        job.abort();
        assert!(job.await.unwrap_err().is_cancelled());
        let mut next = executor.submit(|n| *n);
        assert!(poll(&mut next).is_pending());
        *state += 1;
        drop(state);
        assert_eq!(next.await.unwrap(), 2);
    });
}

#[test]
fn an_abort_races_with_the_end_of_a_job() {
    multi_thread(2, "drain").block_on(async {
        let executor = SerialExecutor::new(0);
        let mut ended = 0;
        for _ in 0..rounds(500, 20_000) {
            let job = executor.submit_async(|mut n| async move {
                tokio::task::yield_now().await;
                *n += 1;
            });
            let abort = job.abort_handle();
            let other = thread::spawn(move || abort.abort());
            match within(job).await {
                Ok(()) => ended += 1,
                Err(error) => assert!(error.is_cancelled()),
            }
            other.join().unwrap();
        }
        let count = within(executor.submit(|n| *n)).await.unwrap();
        assert_eq!(count, ended);
    });
}

// ===== the end of the executor =====

#[test]
fn into_inner_waits_for_a_job_and_its_guard() {
    on_runtimes(|| async {
        let executor = SerialExecutor::new(1);
        let (give, given) = oneshot::channel();
        let job = suspend_with(&executor, |state, told| async move {
            told.await.unwrap();
            give.send(state).unwrap();
        })
        .await;
        let refused = executor.clone();
        let mut state = Box::pin(executor.into_inner());
        assert!(poll(&mut state).is_pending());
        let late = refused.submit_async(|_| async {});
        assert!(ready(late).unwrap_err().is_closed());
        job.go_on.send(()).unwrap();
        job.handle.await.unwrap();
        let mut guard = given.await.unwrap();
        assert!(poll(&mut state).is_pending());
        *guard += 1;
        drop(guard);
        assert_eq!(state.await.unwrap(), 2);
    });
}

#[test]
fn a_job_and_those_behind_it_run_after_the_last_handle_is_dropped() {
    on_runtimes(|| async {
        let drops = Drops::new();
        let executor = SerialExecutor::new(drops.value());
        let job = suspend(&executor).await;
        let behind = executor.submit(|_| ());
        drop(executor);
        assert_eq!(drops.count(), 0);
        job.go_on.send(()).unwrap();
        behind.await.unwrap();
        eventually("the state is dropped", || drops.count() == 1).await;
    });
}

// ===== many at once =====

/// Several threads submit jobs of all kinds: no two jobs have the state at the same time, the jobs of each submitter
/// run in order, and each handle ends.
#[test]
fn jobs_of_all_kinds_are_exclusive_and_in_order() {
    for workers in [1, 4] {
        let runtime = multi_thread(workers, "drain");
        let executor = SerialExecutor::builder()
            .poison_on_panic(false)
            .build(Book::default())
            .unwrap();
        let submitters: Vec<_> = (0..4)
            .map(|submitter| {
                let (executor, runtime) = (executor.clone(), runtime.handle().clone());
                thread::spawn(move || {
                    let _in = runtime.enter();
                    submit_at_random(&executor, submitter);
                })
            })
            .collect();
        for submitter in submitters {
            submitter.join().unwrap();
        }
        let book = runtime.block_on(within(executor.into_inner())).unwrap();
        assert!(!book.open);
        for submitter in 0..4 {
            let own = book.entries.iter().filter(|entry| entry.0 == submitter);
            assert!(own.map(|entry| entry.1).is_sorted());
        }
    }
}

#[derive(Default)]
struct Book {
    /// A job has the book.
    open: bool,
    entries: Vec<(usize, usize)>,
}

impl Book {
    fn open(&mut self, entry: (usize, usize)) {
        assert!(
            !std::mem::replace(&mut self.open, true),
            "two jobs have the book"
        );
        self.entries.push(entry);
    }
}

fn submit_at_random(executor: &SerialExecutor<Book>, submitter: usize) {
    let mut numbers = Numbers::new(submitter as u64);
    let handles: Vec<_> = (0..rounds(300, 20_000))
        .map(|number| {
            let entry = (submitter, number);
            match numbers.below(5) {
                0 => executor.submit(move |book| {
                    book.open(entry);
                    book.open = false;
                }),
                1 => executor.post(move |book| {
                    book.open(entry);
                    book.open = false;
                    resume_unwind(Box::new(()));
                }),
                2 => executor.submit_async(move |mut book| async move {
                    book.open(entry);
                    tokio::task::yield_now().await;
                    book.open = false;
                }),
                3 => executor.submit_async(move |mut book| async move {
                    book.open(entry);
                    drop(thread::spawn(move || book.open = false));
                }),
                _ => executor.submit_async(move |mut book| async move {
                    book.open(entry);
                    tokio::time::sleep(Duration::from_micros(50)).await;
                    book.open = false;
                    drop(book);
                    tokio::task::yield_now().await;
                }),
            }
        })
        .collect();
    for handle in handles {
        if let Err(error) = join(handle) {
            assert!(error.is_panic());
        }
    }
}

/// Random programs like "futurelock": callers that wait, that stop polling, and that drop their handles.
#[test]
fn the_jobs_of_all_callers_run_whether_they_poll_or_not() {
    let runtime = multi_thread(2, "drain");
    let executor = SerialExecutor::new(0_usize);
    let unpolled = Arc::new(Mutex::new(Vec::new()));
    let callers: Vec<_> = (0..8)
        .map(|seed| {
            let (executor, unpolled) = (executor.clone(), Arc::clone(&unpolled));
            runtime.spawn(async move {
                let mut numbers = Numbers::new(seed);
                for _ in 0..rounds(100, 5_000) {
                    let mut handle = executor.submit_async(|mut n| async move {
                        tokio::task::yield_now().await;
                        *n += 1;
                    });
                    match numbers.below(3) {
                        0 => handle.await.unwrap(),
                        1 => drop(handle),
                        _ => {
                            let _ = poll(&mut handle);
                            unpolled.lock().unwrap().push(handle);
                        }
                    }
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for caller in callers {
            within(caller).await.unwrap();
        }
        let count = within(executor.into_inner()).await.unwrap();
        assert_eq!(count, 8 * rounds(100, 5_000));
    });
    for handle in unpolled.lock().unwrap().drain(..) {
        assert!(matches!(ready(handle), Ok(())));
    }
}

#[test]
fn a_job_that_has_not_started_is_aborted_with_the_queue() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let again = executor.clone();
        // The submitter reaches the asynchronous job, and hands it over to a drain that was not polled yet.
        let waits =
            executor.submit(move |()| again.submit_async(|state| async move { drop(state) }));
        let waits = waits.await.unwrap();
        executor.close();
        assert_eq!(executor.metrics().queue_length, 1);
        assert_eq!(executor.shutdown_now(), 1);
        assert!(within(waits).await.unwrap_err().is_cancelled());
        within(executor.closed()).await;
    });
}

#[test]
fn a_job_runs_on_its_submitters_runtime_if_the_thread_that_reaches_it_has_none() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(());
    let gate = Gate::new();
    let (entered, has_entered) = channel();
    thread::scope(|scope| {
        let passed = gate.clone();
        let executor = &executor;
        let owner = scope.spawn(move || {
            let job = executor.submit(move |()| {
                entered.send(()).unwrap();
                passed.pass();
            });
            ready(job).unwrap();
        });
        receive(&has_entered);
        let waits = {
            let _in = runtime.enter();
            executor.submit_async(|state| async move {
                drop(state);
                thread_name()
            })
        };
        gate.open();
        owner.join().unwrap();
        assert_eq!(join(waits).unwrap(), "drain");
    });
}

#[test]
fn a_permit_is_released_when_the_job_starts_or_after_the_drop_of_its_captures() {
    current_thread().block_on(async {
        let executor = SerialExecutor::builder()
            .queue_capacity(1)
            .build(())
            .unwrap();
        let suspended = suspend(&executor).await;
        // The job that runs has released its permit.
        let captured = Arc::new(());
        let seen = Arc::downgrade(&captured);
        let queued = executor.submit_async(move |state| async move { drop((state, captured)) });
        assert!(executor.try_submit(|()| ()).unwrap_err().is_full());
        queued.abort();
        assert!(seen.upgrade().is_none());
        let next = executor.try_submit(|()| ()).unwrap();
        suspended.go_on.send(()).unwrap();
        within(next).await.unwrap();
    });
}

#[test]
fn a_reserved_permit_admits_an_asynchronous_job() {
    current_thread().block_on(async {
        let executor = SerialExecutor::builder()
            .queue_capacity(1)
            .build(())
            .unwrap();
        let suspended = suspend(&executor).await;
        let permit = executor.reserve().await.unwrap();
        let queued = permit.submit_async(|state| async move { drop(state) });
        assert!(executor.try_submit(|()| ()).unwrap_err().is_full());
        suspended.go_on.send(()).unwrap();
        within(queued).await.unwrap();

        let permit = executor.reserve().await.unwrap();
        executor.close();
        let refused = permit.submit_async(|state| async move { drop(state) });
        assert!(within(refused).await.unwrap_err().is_closed());
    });
}
