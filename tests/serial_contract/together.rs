//! Several jobs as one: all of them, or the first that succeeds.
//!
//! There are no functions for it: handles are futures, and what `futures` and Tokio do with these
//! goes for them. To cancel those that have not begun is to drop them, `abort_on_drop`.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, join_all, select_ok};
use futures::stream::FuturesUnordered;
use throng::serial::{Metrics, OnPanic};
use throng::{JoinError, JoinHandle, SerialExecutor};
use tokio::sync::oneshot;
use tokio::time::{error::Elapsed, timeout};

use crate::occupied::occupy;
use crate::support::{Drops, current_thread, message, ready, within};

/// Longer than a test takes; the clock is stopped, and jumps when nothing else is left to do.
const LONG: Duration = Duration::from_secs(3_600);

type Outcome = Result<&'static str, String>;

/// A job's success; or its failure, if only in its words.
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

/// Some jobs for a busy executor that must not run; each holds a value.
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
        .on_panic(OnPanic::Continue)
        .build(0)
}

#[test]
fn all_end_although_one_fails_and_keep_their_order() {
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
fn when_time_is_up_for_all_those_that_have_not_begun_are_cancelled() {
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
fn the_first_success_after_failures_is_any() {
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
fn without_a_success_any_is_an_error() {
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
fn when_time_is_up_for_any_all_are_cancelled() {
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

/// The first of none is `None`, whoever asks, and in no time: `select_ok` takes one at least.
#[test]
fn all_of_no_jobs_is_nothing_and_so_is_any() {
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
fn no_time_at_all_cancels_all_that_wait() {
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

/// Jobs are not run out of their turn: a job hands the handles out instead, and they are awaited there.
#[test]
fn a_job_that_waits_for_all_or_any_of_its_own_executor_is_told() {
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
        assert!(failure.contains("would never start"), "{failure}");
    }
    for outcome in ready(join_all(outside)) {
        assert_eq!(outcome.unwrap().unwrap(), "ran");
    }
}

#[test]
fn who_waits_for_all_or_any_may_be_interrupted() {
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

/// Aborts a task when it waits for this.
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
