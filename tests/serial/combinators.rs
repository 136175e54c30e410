//! All of several jobs, or the first that succeeds: handles work with the combinators of `futures` and Tokio.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, join_all, select_ok};
use futures::stream::FuturesUnordered;
use throng::serial::Metrics;
use throng::{JoinError, JoinHandle, SerialExecutor};
use tokio::sync::oneshot;
use tokio::time::{error::Elapsed, timeout};

use crate::occupied::occupy;
use crate::support::{Drops, current_thread, message, ready, within};

/// Longer than a test takes. The clock is paused, and advances when the runtime is idle.
const LONG: Duration = Duration::from_secs(3_600);

type Outcome = Result<&'static str, String>;

/// The success of a job, or its failure as text.
async fn success(handle: JoinHandle<Outcome>) -> Outcome {
    match handle.abort_on_drop().await {
        Ok(outcome) => outcome,
        Err(error) => Err(describe(error)),
    }
}

fn describe(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => message(payload),
        Err(error) => error.to_string(),
    }
}

/// The first success, or the last failure.
async fn any_of(handles: Vec<JoinHandle<Outcome>>) -> Outcome {
    let successes: Vec<BoxFuture<'_, _>> =
        handles.into_iter().map(|it| success(it).boxed()).collect();
    select_ok(successes).await.map(|(first, _)| first)
}

/// Queues some jobs that must not run. Each holds a value.
fn queue(executor: &SerialExecutor<usize>, captured: &Drops) -> Vec<JoinHandle<Outcome>> {
    let submit = |_| {
        let value = captured.value();
        executor.submit(move |ran| {
            *ran += 1;
            drop(value);
            Ok("too late")
        })
    };
    (0..3).map(submit).collect()
}

fn ran(executor: &SerialExecutor<usize>) -> usize {
    ready(executor.submit(|ran| *ran)).unwrap()
}

fn resilient() -> SerialExecutor<usize> {
    SerialExecutor::builder()
        .poison_on_panic(false)
        .build(0)
        .unwrap()
}

#[test]
fn join_all_keeps_the_order_although_one_job_fails() {
    current_thread().block_on(async {
        let executor = resilient();
        let handles = vec![
            executor.post(|_| 1),
            executor.post(|_| panic!("2 fails")),
            executor.post(|_| 3),
        ];
        let outcomes = within(join_all(handles)).await;
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .map(|it| it.map_err(describe))
            .collect();
        assert_eq!(outcomes, [Ok(1), Err("2 fails".to_owned()), Ok(3)]);
    });
}

#[test]
fn a_timeout_of_join_all_aborts_the_jobs_that_have_not_started() {
    current_thread().block_on(async {
        tokio::time::pause();
        let executor = SerialExecutor::new(0);
        let captured = Drops::new();
        let mut handles = vec![executor.submit(|_| Ok("in time"))];
        let busy = occupy(&executor);
        handles.extend(queue(&executor, &captured));

        let all = handles.iter_mut().map(|handle| handle.map(drop));
        timeout(LONG, join_all(all)).await.unwrap_err();
        handles[1..].iter().for_each(JoinHandle::abort);
        assert_eq!(captured.count(), 3);
        for late in handles.drain(1..) {
            assert!(ready(late).unwrap_err().is_cancelled());
        }
        busy.release();
        assert_eq!(ran(&executor), 0);
    });
}

#[test]
fn select_ok_returns_the_first_success() {
    current_thread().block_on(async {
        let executor = resilient();
        let handles = vec![
            executor.post(|_| Err("1 fails".to_owned())),
            executor.post(|_| panic!("2 fails")),
            executor.post(|_| Ok("3")),
            executor.post(|_| Ok("4")),
        ];
        assert_eq!(within(any_of(handles)).await, Ok("3"));
    });
}

#[test]
fn select_ok_without_a_success_returns_the_last_failure() {
    current_thread().block_on(async {
        let executor = resilient();
        let handles = vec![
            executor.post(|_| Err("1 fails".to_owned())),
            executor.post(|_| panic!("2 fails")),
        ];
        let failure = within(any_of(handles)).await.unwrap_err();
        assert!(
            ["1 fails", "2 fails"].contains(&failure.as_str()),
            "{failure}"
        );
    });
}

#[test]
fn a_timeout_of_select_ok_aborts_all_jobs() {
    current_thread().block_on(async {
        tokio::time::pause();
        let executor = SerialExecutor::new(0);
        let captured = Drops::new();
        let busy = occupy(&executor);
        let handles = queue(&executor, &captured);
        timeout(LONG, any_of(handles)).await.unwrap_err();
        assert_eq!(captured.count(), 3);
        busy.release();
        assert_eq!(ran(&executor), 0);
    });
}

/// `select_ok` needs at least one future; a stream without items ends at once.
#[test]
fn all_and_any_of_no_jobs_end_at_once() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let submitted = || (0..0).map(|_| executor.submit(|()| ()));
        assert!(ready(join_all(submitted())).is_empty());
        let mut none: FuturesUnordered<_> = submitted().collect();
        assert!(ready(none.next()).is_none());
        assert!(
            timeout(Duration::ZERO, none.next())
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!(executor.metrics(), Metrics::default());
    });
}

#[test]
fn a_timeout_of_zero_aborts_all_queued_jobs() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0);
        let captured = Drops::new();
        let busy = occupy(&executor);
        let all = join_all(queue(&executor, &captured).into_iter().map(success));
        let elapsed: Elapsed = within(timeout(Duration::ZERO, all)).await.unwrap_err();
        assert_eq!(elapsed.to_string(), "deadline has elapsed");
        assert_eq!(captured.count(), 3);

        let any = any_of(queue(&executor, &captured));
        within(timeout(Duration::ZERO, any)).await.unwrap_err();
        assert_eq!(captured.count(), 6);
        busy.release();
        assert_eq!(ran(&executor), 0);
    });
}

/// The job returns the handles instead, and they are awaited outside.
#[test]
fn a_job_that_awaits_several_jobs_of_its_own_executor_gets_an_error() {
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let waits = executor.submit(move |_| {
        let submit = || (0..2).map(|_| again.submit(|_| -> Outcome { Ok("ran") }));
        current_thread().block_on(async {
            let all = join_all(submit()).await;
            let in_time = timeout(LONG, join_all(submit())).await.unwrap();
            let any = any_of(submit().collect()).await;
            let any_in_time = timeout(LONG, any_of(submit().collect())).await.unwrap();
            (all, in_time, any, any_in_time, Vec::from_iter(submit()))
        })
    });
    let (all, in_time, any, any_in_time, outside) = ready(waits).unwrap();
    for outcome in all.into_iter().chain(in_time) {
        assert!(outcome.unwrap_err().is_would_deadlock());
    }
    for failure in [any.unwrap_err(), any_in_time.unwrap_err()] {
        assert!(failure.contains("would never begin"), "{failure}");
    }
    for outcome in ready(join_all(outside)) {
        assert_eq!(outcome.unwrap().unwrap(), "ran");
    }
}

#[test]
fn a_task_that_awaits_several_jobs_can_be_aborted() {
    current_thread().block_on(async {
        tokio::time::pause();
        let executor = SerialExecutor::new(0);
        let captured = Drops::new();
        let busy = occupy(&executor);
        let all = join_all(queue(&executor, &captured).into_iter().map(success));
        interrupt(timeout(LONG, all)).await;
        interrupt(timeout(LONG, any_of(queue(&executor, &captured)))).await;
        assert_eq!(captured.count(), 6);
        busy.release();
        assert_eq!(ran(&executor), 0);
    });
}

/// Aborts a task that awaits `future`.
async fn interrupt<F>(future: F)
where
    F: Future<Output: Send> + Send + 'static,
{
    let (begins, has_begun) = oneshot::channel();
    let task = tokio::spawn(async move {
        begins.send(()).unwrap();
        future.await
    });
    has_begun.await.unwrap();
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
}
