//! Tasks that await tasks: a run that does gives its permit back meanwhile.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use throng::durable::{
    DurableClient, DurableError, DurableHandle, SpawnOptions, Status, StopReason, TaskContext,
    TaskError,
};
use throng::{CompletionStream, Retry};
use tokio::sync::Barrier;

use crate::harness::{
    App, Door, Number, TestStore, builder, id, spawn, start, start_as, start_inline, timed, until,
};
use crate::ledger::assert_balanced;
use crate::support::{poll, within};

on_all_stores! {
    three_levels_of_tasks_run_with_one_permit,
    two_hundred_parents_await_a_child_each,
    a_run_may_await_many_tasks_at_once,
    a_run_may_await_a_stream_of_tasks,
    a_run_may_await_a_task_and_a_timer,
    never_more_runs_go_on_than_there_are_permits,
    a_run_that_panics_while_it_waits_gives_its_permit_back_once,
    a_run_that_waits_is_told_that_its_task_is_cancelled,
    a_shutdown_tells_runs_that_wait,
    a_shutdown_ends_runs_that_wait_after_its_grace,
    a_run_too_many_must_not_wait,
}

/// A task that is spawned once, however often its parent runs.
async fn child(cx: &TaskContext<App>, number: u64) -> Result<DurableHandle<u64>, DurableError> {
    let options = SpawnOptions::new().id(id(number));
    cx.client().spawn_with(Number(number), options).await
}

/// Awaits the next lower number, down to zero.
async fn count_down(number: u64, cx: TaskContext<App>) -> Result<u64, TaskError> {
    match number {
        0 => Ok(0),
        _ => Ok(1 + cx.client().spawn(Number(number - 1)).await?.await?),
    }
}

async fn three_levels_of_tasks_run_with_one_permit(store: TestStore) {
    let client = store.client().await;
    let executor = start_as(builder(&client).max_running(1), count_down).await;
    assert_eq!(within(spawn(&client, 3).await).await.unwrap(), 3);
    until("nothing runs", || {
        let metrics = executor.metrics();
        (metrics.running, metrics.suspended) == (0, 0)
    })
    .await;
}

async fn two_hundred_parents_await_a_child_each(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, count_down).await;
    let parents = client.spawn_all((0..200).map(|_| Number(1))).await.unwrap();
    for parent in parents {
        assert_eq!(within(parent).await.unwrap(), 1);
    }
    assert_eq!(executor.metrics().stalled_waits, 0);
}

/// A future that polls many is not polled as a whole, nor are all of them polled again.
async fn a_run_may_await_many_tasks_at_once(store: TestStore) {
    let client = store.client().await;
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            return Ok(1);
        }
        let children = cx.client().spawn_all((0..40).map(|_| Number(0))).await?;
        let mut children: FuturesUnordered<_> = children.into_iter().collect();
        let mut sum = 0;
        while let Some(output) = children.next().await {
            sum += output?;
        }
        Ok(sum)
    };
    let _executor = start_as(builder(&client).max_running(1), act).await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 40);
}

async fn a_run_may_await_a_stream_of_tasks(store: TestStore) {
    let client = store.client().await;
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            return Ok(1);
        }
        let (jobs, mut done) = CompletionStream::builder().build().unwrap();
        for child in cx.client().spawn_all((0..40).map(|_| Number(0))).await? {
            child.complete(jobs.slot(()).await?);
        }
        drop(jobs);
        let mut sum = 0;
        while let Some(job) = done.next().await {
            sum += job.outcome??;
        }
        Ok(sum)
    };
    let _executor = start_as(builder(&client).max_running(1), act).await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 40);
}

async fn a_run_may_await_a_task_and_a_timer(store: TestStore) {
    let client = store.client().await;
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            return Ok(1);
        }
        let child = cx.client().spawn(Number(0)).await?;
        let tick = tokio::time::sleep(Duration::from_millis(1));
        let (output, ()) = tokio::join!(child, tick);
        Ok(output? + 1)
    };
    let _executor = start_as(builder(&client).max_running(1), act).await;
    for _ in 0..10 {
        assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 2);
    }
}

/// The number of handles at once.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    /// Is there for some time, in which others are polled.
    async fn stay(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_micros(500)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn never_more_runs_go_on_than_there_are_permits(store: TestStore) {
    let client = store.client().await;
    let crowd = Arc::new(Crowd::default());
    let there = Arc::clone(&crowd);
    let act = move |number, cx: TaskContext<App>| {
        let there = Arc::clone(&there);
        async move {
            there.stay().await;
            if number > 0 {
                cx.client().spawn(Number(number - 1)).await?.await?;
                there.stay().await;
            }
            Ok(number)
        }
    };
    let _executor = start_as(builder(&client).max_running(3), act).await;
    let parents = client.spawn_all((0..60).map(|_| Number(2))).await.unwrap();
    for parent in parents {
        within(parent).await.unwrap();
    }
    assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
}

async fn a_run_that_panics_while_it_waits_gives_its_permit_back_once(store: TestStore) {
    let client = store.client().await;
    let crowd = Arc::new(Crowd::default());
    let (there, pair) = (Arc::clone(&crowd), Arc::new(Barrier::new(2)));
    let act = move |number, cx: TaskContext<App>| {
        let (there, pair) = (Arc::clone(&there), Arc::clone(&pair));
        async move {
            if number == 1 {
                let mut never = cx.client().spawn_with(Number(9), later()).await?;
                assert!(poll(&mut never).is_pending());
                // Suspended at first, and not when it ends.
                tokio::task::yield_now().await;
                panic!("while it waits");
            }
            // Two run at once, or none comes to its end.
            pair.wait().await;
            there.stay().await;
            pair.wait().await;
            Ok(number)
        }
    };
    let executor = start_as(
        builder(&client)
            .max_running(2)
            .retry(Retry::exponential().attempts(1)),
        act,
    )
    .await;
    for parent in client.spawn_all((0..20).map(|_| Number(1))).await.unwrap() {
        assert!(within(parent).await.unwrap_err().is_dead());
    }
    for other in client.spawn_all((0..20).map(|_| Number(0))).await.unwrap() {
        within(other).await.unwrap();
    }
    assert!(crowd.most.load(Ordering::SeqCst) <= 2);
    until("nothing runs", || {
        let metrics = executor.metrics();
        (metrics.running, metrics.suspended) == (0, 0)
    })
    .await;
}

fn later() -> SpawnOptions {
    SpawnOptions::new().delay(Duration::from_secs(3600))
}

/// Awaits a task that does not run for an hour, unless it is told to stop.
async fn wait_in_vain(number: u64, cx: TaskContext<App>) -> Result<u64, TaskError> {
    if number == 0 {
        return Ok(0);
    }
    let never = cx.client().spawn_with(Number(0), later()).await?;
    tokio::select! {
        output = never => Ok(output?),
        reason = cx.stopped() => {
            assert!(matches!(reason, StopReason::Cancelled | StopReason::Shutdown));
            Err("told to stop".into())
        }
    }
}

/// Starts an executor of tasks that wait in vain, two of which do, beside one permit.
async fn start_to_wait<F>(
    client: &DurableClient,
    act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
) -> (throng::durable::DurableExecutor, Vec<DurableHandle<u64>>)
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    let executor = start_as(builder(client).max_running(1), act).await;
    let parents = client.spawn_all([Number(1), Number(1)]).await.unwrap();
    until("both wait", || executor.metrics().suspended == 2).await;
    (executor, parents)
}

async fn a_run_that_waits_is_told_that_its_task_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let (executor, mut parents) = start_to_wait(&client, wait_in_vain).await;
    assert!(parents[0].cancel().await.unwrap());
    let first = parents.remove(0);
    assert!(within(first).await.unwrap_err().is_cancelled());
    assert_eq!(executor.metrics().suspended, 1);
    assert_eq!(within(spawn(&client, 0).await).await.unwrap(), 0);
}

async fn a_shutdown_tells_runs_that_wait(store: TestStore) {
    let client = store.client().await;
    let (executor, parents) = start_to_wait(&client, wait_in_vain).await;
    within(executor.shutdown(Duration::from_secs(3600))).await;
    for parent in &parents {
        assert_eq!(parent.status().await.unwrap(), Status::Waiting);
    }
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.released, counts.retried), (2, 0));
    assert_balanced(&counts);
}

async fn a_shutdown_ends_runs_that_wait_after_its_grace(store: TestStore) {
    let client = store.client().await;
    let deaf = |_, cx: TaskContext<App>| async move {
        let never = cx.client().spawn_with(Number(0), later()).await?;
        Ok(never.await?)
    };
    let (executor, parents) = start_to_wait(&client, deaf).await;
    let grace = Duration::from_secs(1);
    let begun = Instant::now();
    // The runs would wait for ever. How soon the shutdown ends after its grace depends on the store, too.
    within(executor.shutdown(grace)).await;
    assert!(begun.elapsed() >= grace, "{:?}", begun.elapsed());
    for parent in &parents {
        assert_eq!(parent.status().await.unwrap(), Status::Waiting);
    }
    assert_eq!(client.counts().await.unwrap().released, 2);
}

/// The error of somebody who has a source.
#[derive(Debug)]
struct Because(DurableError);

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the child has no output")
    }
}

impl std::error::Error for Because {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

async fn a_run_too_many_must_not_wait(store: TestStore) {
    const WAIT: u64 = 1024;
    const REFUSED: u64 = 76;
    let client = store.client().await;
    let refused = Arc::new(Mutex::new(HashSet::new()));
    let (seen, door) = (Arc::clone(&refused), Door::new());
    let held = door.clone();
    let act = move |number, cx: TaskContext<App>| {
        let (seen, held) = (Arc::clone(&seen), held.clone());
        async move {
            if number >= 10_000 {
                held.pass().await;
                return Ok(1);
            }
            let error = match child(&cx, 10_000 + number).await?.await {
                Ok(output) => return Ok(output + u64::from(cx.attempt())),
                Err(error) => error,
            };
            assert!(error.is_would_deadlock(), "{error}");
            assert_eq!(error.task_id(), Some(id(10_000 + number)));
            seen.lock().unwrap().insert(number);
            Err(Because(error).into())
        }
    };
    // Those that are awaited come behind all that await them.
    let parents = (0..WAIT + REFUSED).map(Number);
    let parents = client.spawn_all(parents).await.unwrap();
    let executor = start(&client, act).await;
    until("all wait but those that must not", || {
        executor.metrics().suspended as u64 == WAIT
            && refused.lock().unwrap().len() as u64 == REFUSED
    })
    .await;
    door.open();
    // The refusal has cost no attempt.
    for parent in parents {
        assert_eq!(within(parent).await.unwrap(), 2);
    }
    let counts = client.counts().await.unwrap();
    assert!(
        counts.snoozed >= REFUSED && counts.retried == 0,
        "{counts:?}"
    );
}

/// Nothing else runs while a task runs on its caller.
#[tokio::test]
async fn a_run_on_its_caller_must_not_wait_but_is_told_of_what_has_ended() {
    let (clock, client) = timed();
    let act = |number, cx: TaskContext<App>| async move {
        match number {
            0 => Ok(7),
            _ => Ok(child(&cx, 0).await?.await?),
        }
    };
    let mut inline = start_inline(builder(&client), act).await;
    let parent = spawn(&client, 1).await;
    assert_eq!(crate::harness::run_due(&mut inline).await, 2);
    assert_eq!(parent.status().await.unwrap(), Status::Delayed);
    clock.advance(Duration::from_secs(2));
    assert_eq!(crate::harness::run_due(&mut inline).await, 1);
    assert_eq!(within(parent).await.unwrap(), 7);
    assert_eq!(client.counts().await.unwrap().retried, 0);
}
