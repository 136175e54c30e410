//! Runs that take longer than their timeouts, and the policies of types and spawns.

use std::future::pending;

use futures::FutureExt;

use super::nested_tests::quarantine_in;
use super::*;
use crate::durable::{DeadReason, StopReason};
use crate::sync::Number as Count;

const SECOND: Duration = Duration::from_secs(1);
/// The time for which a run may continue after its timeout.
const GRACE: Duration = Duration::from_secs(10);

/// Spawns a task with a timeout of 5 seconds.
async fn spawn_timed(client: &DurableClient, number: u64) -> DurableHandle<u64> {
    let options = SpawnOptions::new().id(id(number)).timeout(5 * SECOND);
    client.spawn_with(Number(number), options).await.unwrap()
}

async fn start<F>(
    builder: &mut Builder<App>,
    act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
) -> DurableExecutor
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    builder.start(App::new(act)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_run_is_told_when_its_timeout_is_over_and_may_succeed() {
    let client = client_of(&MemoryStore::new());
    let act = |_, cx: TaskContext<App>| async move {
        let begun = Instant::now();
        assert_eq!(cx.stopped().await, StopReason::TimedOut);
        let told = begun.elapsed().as_secs();
        sleep(GRACE - SECOND).await;
        Ok(told)
    };
    let executor = start(&mut builder(&client), act).await;
    assert_eq!(spawn_timed(&client, 1).await.await.unwrap(), 5);
    let metrics = executor.metrics();
    assert_eq!((metrics.timed_out, metrics.completed), (1, 1));
}

/// The error of the run determines the verdict, as that of any other run.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_told_may_fail() {
    let client = client_of(&MemoryStore::new());
    let act = |number, cx: TaskContext<App>| async move {
        if cx.attempt() > 1 {
            return Ok(number);
        }
        cx.stopped().await;
        match number {
            0 => Err(TaskError::retry("too slow")),
            1 => Err(TaskError::retry_after("too slow", Duration::ZERO)),
            2 => Err(TaskError::snooze(60 * SECOND)),
            _ => Err(TaskError::fatal("too slow for good")),
        }
    };
    let retry = Retry::exponential().attempts(2).base(Duration::ZERO);
    let executor = start(builder(&client).retry(retry), act).await;
    let mut ends = Vec::new();
    for number in [0, 1, 3] {
        let ended = spawn_timed(&client, number).await.await;
        ends.push(ended.map_err(|error| error.dead_reason()));
    }
    let fatal = Err(Some(DeadReason::Fatal));
    assert_eq!(ends, [Ok(0), Ok(1), fatal]);
    drop(spawn_timed(&client, 2).await);
    until("it is snoozed", || executor.metrics().snoozed > 0).await;
    let metrics = executor.metrics();
    assert_eq!((metrics.timed_out, metrics.retried), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ignores_its_timeout_is_fenced() {
    let client = client_of(&MemoryStore::new());
    let dropped = StdArc::new(Mutex::new(None));
    let seen = StdArc::clone(&dropped);
    let act = move |_, cx: TaskContext<App>| {
        let on_drop = OnDrop(StdArc::clone(&seen));
        async move {
            if cx.attempt() == 2 {
                return Ok(2);
            }
            let _on_drop = on_drop;
            loop {
                sleep(SECOND).await;
            }
        }
    };
    let retry = Retry::exponential().attempts(2).base(Duration::ZERO);
    let executor = start(builder(&client).retry(retry), act).await;
    let begun = Instant::now();
    let handle = spawn_timed(&client, 1).await;
    assert_eq!(handle.await.unwrap(), 2);
    let fenced = lock(&dropped).expect("the run was dropped") - begun;
    assert_eq!(fenced.as_secs(), (5 * SECOND + GRACE).as_secs());
    until("its permit is free", || executor.metrics().running == 0).await;
    let metrics = executor.metrics();
    let expected = (1, 1, 1, 0);
    assert_eq!(
        (
            metrics.timed_out,
            metrics.retried,
            metrics.completed,
            metrics.rejected
        ),
        expected
    );
}

/// Records when it is dropped.
struct OnDrop(StdArc<Mutex<Option<Instant>>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        lock(&self.0).get_or_insert_with(Instant::now);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_that_exceeds_its_timeout_makes_a_dead_letter() {
    let client = client_of(&MemoryStore::new());
    let _executor = start(&mut builder(&client), |_, _| pending()).await;
    let error = spawn_timed(&client, 1).await.await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    let text = "it ran longer than its timeout of 5s";
    assert!(error.to_string().contains(text), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_permit_is_not_a_part_of_the_run() {
    let client = client_of(&MemoryStore::new());
    let act = |number, _| async move {
        sleep(4 * SECOND).await;
        Ok(number)
    };
    let mut handles = Vec::new();
    for number in 0..9 {
        handles.push(spawn_timed(&client, number).await);
    }
    let executor = start(builder(&client).max_running(2), act).await;
    for handle in handles {
        handle.await.unwrap();
    }
    assert_eq!(executor.metrics().timed_out, 0);
}

/// Awaits a child that takes 40 seconds, unless it is asked to stop.
async fn await_slow_child(number: u64, cx: TaskContext<App>) -> Result<u64, TaskError> {
    if number == 1 {
        sleep(40 * SECOND).await;
        return Ok(number);
    }
    let child = spawn(cx.client(), 1).await?;
    tokio::select! {
        _ = cx.stopped() => Ok(100),
        output = child => Ok(output?),
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_is_told() {
    let client = client_of(&MemoryStore::new());
    let _executor = start(builder(&client).max_running(2), await_slow_child).await;
    assert_eq!(spawn_timed(&client, 0).await.await.unwrap(), 100);
}

/// The run needs a permit to observe that it should stop, and its child has the only one.
#[tokio::test(start_paused = true)]
async fn a_suspended_run_without_a_permit_is_fenced() {
    let client = client_of(&MemoryStore::new());
    let executor = start(builder(&client).max_running(1), await_slow_child).await;
    let begun = Instant::now();
    let error = spawn_timed(&client, 0).await.await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    assert_eq!(begun.elapsed().as_secs(), 15);
    until("it has ended", || executor.metrics().suspended == 0).await;
    assert_eq!(executor.metrics().running, 1);
    assert_eq!(client.attach::<Number>(id(1)).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_that_ignores_it_ends_after_its_timeout() {
    let client = client_of(&MemoryStore::new());
    let executor = start(&mut builder(&client), |_, _| pending()).await;
    let handle = spawn_timed(&client, 1).await;
    until("it runs", || executor.metrics().running == 1).await;
    client.cancel(&[id(1)]).await.unwrap();
    let error = handle.await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_fenced_during_a_long_shutdown_and_given_back_after_a_short_one() {
    for (grace, ended) in [(30, (1, 0)), (8, (0, 1))] {
        let client = client_of(&MemoryStore::new());
        let executor = start(&mut builder(&client), |_, _| pending()).await;
        drop(spawn_timed(&client, 1).await);
        until("it runs", || executor.metrics().running == 1).await;
        executor.shutdown(SECOND * grace).await;
        let metrics = executor.metrics();
        assert_eq!((metrics.died, metrics.released), ended, "{grace}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_runs_the_next_quarantined_task_after_it_has_fenced_one() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    for number in [1, 2] {
        let options = SpawnOptions::new().id(id(number)).max_crashes(2);
        let options = options.timeout(5 * SECOND);
        drop(client.spawn_with(Number(number), options).await);
    }
    // The tasks were stored before the worker starts.
    quarantine_in(&store, QueueName::DEFAULT, &[1, 2]).await;
    let runs = StdArc::new(Count::new(0));
    let act = move |number, _| {
        let is_first = runs.add(1) == 0;
        async move {
            match is_first {
                true => pending().await,
                false => Ok(number),
            }
        }
    };
    let executor = start(&mut builder(&client), act).await;
    let mut succeeded = 0;
    for number in [1, 2] {
        let ended = client.attach::<Number>(id(number)).await;
        succeeded += u32::from(ended.is_ok());
    }
    assert_eq!((succeeded, executor.metrics().timed_out), (1, 1));
}

/// A process that was stopped for a while learns of the end of the run and of the end of its time together.
#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_in_time_is_not_fenced() {
    let client = client_of(&MemoryStore::new());
    let act = |number, cx: TaskContext<App>| async move {
        cx.stopped().await;
        tokio::time::advance(GRACE).now_or_never();
        cx.progress(&number);
        Ok(number)
    };
    let _executor = start(&mut builder(&client), act).await;
    for number in 0..20 {
        assert_eq!(spawn_timed(&client, number).await.await.unwrap(), number);
    }
}

/// Leases end in real time.
#[tokio::test]
async fn a_worker_that_may_have_lost_the_lease_reports_no_failure_on_a_run_that_it_fences() {
    let client = client_with(&MemoryStore::new(), |name| match name {
        "renew" => Box::pin(pending()),
        _ => Box::pin(async { Ok(()) }),
    });
    let runs = StdArc::new(Count::new(0));
    let act = move |number, _| {
        let is_first = runs.add(1) == 0;
        async move {
            match is_first {
                true => pending().await,
                false => Ok(number),
            }
        }
    };
    let lease = Duration::from_millis(400);
    let executor = start(builder(&client).max_running(1).lease(lease), act).await;
    let options = SpawnOptions::new().id(id(1)).timeout(lease / 2);
    let handle = client.spawn_with(Number(1), options).await.unwrap();
    assert_eq!(handle.await.unwrap(), 1);
    let metrics = executor.metrics();
    assert_eq!((metrics.leases_lost, metrics.timed_out), (1, 1));
}
