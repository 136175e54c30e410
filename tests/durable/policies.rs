//! Policies: how often a task is tried again, for how long, and how long a run may take. They come from the spawn, the type or the
//! executor.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    DeadFilter, DeadReason, DurableExecutor, DurableTask, Every, Key, Run, ScheduleOptions,
    SpawnOptions, Status, StopReason, TaskContext, TaskError,
};

use crate::harness::{
    Number, TestStore, builder, reaches, run_due, spawn, spawn_as, start, start_as, start_inline,
    timed, until,
};
use crate::ledger::assert_balanced;
use crate::support::{Gate, receive, within};

on_all_stores! {
    a_run_is_told_that_it_takes_too_long,
    a_run_that_ignores_its_timeout_is_replaced,
    a_run_that_blocks_its_thread_is_replaced_and_its_output_ignored,
    a_run_that_blocks_its_thread_keeps_its_permit,
    a_run_that_ends_in_time_is_not_told,
    retries_end_when_their_time_is_over,
    the_policy_of_a_spawn_outlives_a_replay,
    a_payload_that_replaces_another_brings_its_policy,
    the_tasks_of_a_schedule_have_its_policy,
}

const SECOND: Duration = Duration::from_secs(1);
/// A short timeout, for runs that exceed it.
const TIMEOUT: Duration = Duration::from_millis(50);
/// The time for which a run may continue after its timeout. It is long enough for a machine that is busy with other tests.
const LEASE: Duration = Duration::from_millis(600);
const ONCE: Retry = Retry::exponential().attempts(1);

fn timeout() -> SpawnOptions {
    SpawnOptions::new().timeout(TIMEOUT)
}

async fn a_run_is_told_that_it_takes_too_long(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, cx| async move {
        assert_eq!(cx.stopped().await, StopReason::TimedOut);
        match (number, cx.attempt()) {
            (0, _) => Ok(10),
            (1, 1) => Err(TaskError::retry("too slow")),
            (1, attempt) => Ok(attempt.into()),
            _ => Err(TaskError::fatal("too slow for good")),
        }
    })
    .await;
    let mut outputs = Vec::new();
    for number in 0..3 {
        let ended = within(spawn_as(&client, number, timeout()).await).await;
        outputs.push(ended.map_err(|error| error.dead_reason()));
    }
    assert_eq!(outputs, [Ok(10), Ok(2), Err(Some(DeadReason::Fatal))]);
    let metrics = executor.metrics();
    assert_eq!((metrics.timed_out, metrics.retried), (4, 1));
}

async fn a_run_that_ignores_its_timeout_is_replaced(store: TestStore) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.lease(LEASE).max_running(1);
    let executor = start_as(builder, |_, cx| async move {
        while cx.attempt() == 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(cx.attempt().into())
    })
    .await;
    let handle = spawn_as(&client, 1, timeout()).await;
    let id = handle.id();
    assert_eq!(within(handle).await.unwrap(), 2);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.retried, counts.done, counts.crashed), (1, 1, 0));
    let metrics = executor.metrics();
    assert_eq!((metrics.timed_out, metrics.leases_lost), (1, 0));
    assert_eq!(client.errors(id).await.unwrap(), []);
}

/// Starts a task whose first attempt blocks its thread at a gate. Also returns a receiver of the fencing token of each attempt.
async fn start_blocked(
    store: &TestStore,
    max_running: usize,
    gate: &Gate,
) -> (DurableExecutor, mpsc::Receiver<u64>) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.lease(LEASE).max_running(max_running);
    let (tell, told) = mpsc::channel();
    let gate = gate.clone();
    let executor = start_as(builder, move |_, cx: TaskContext<_>| {
        let (tell, gate) = (tell.clone(), gate.clone());
        async move {
            tell.send(cx.fencing_token()).ok();
            if cx.attempt() == 1 {
                gate.pass();
            }
            Ok(cx.attempt().into())
        }
    });
    (executor.await, told)
}

async fn a_run_that_blocks_its_thread_is_replaced_and_its_output_ignored(store: TestStore) {
    let gate = Gate::new();
    let (executor, tokens) = start_blocked(&store, 2, &gate).await;
    let client = store.client().await;
    let handle = spawn_as(&client, 1, timeout()).await;
    let id = handle.id();
    // The second attempt succeeds while the first one blocks.
    assert_eq!(within(handle).await.unwrap(), 2);
    assert!(receive(&tokens) < receive(&tokens));
    assert_eq!(executor.metrics().running, 1);
    gate.open();
    until("the first attempt has ended", || {
        executor.metrics().running == 0
    })
    .await;
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 2);
    // Another process may learn of the output before the executor is told that it is stored.
    until("its completion is counted", || {
        executor.metrics().completed == 1
    })
    .await;
    let metrics = executor.metrics();
    assert_eq!(metrics.retried, 1);
    assert_eq!((metrics.rejected, metrics.leases_lost), (0, 0));
    assert_balanced(&client.counts().await.unwrap());
}

async fn a_run_that_blocks_its_thread_keeps_its_permit(store: TestStore) {
    let gate = Gate::new();
    let (executor, _tokens) = start_blocked(&store, 1, &gate).await;
    let client = store.client().await;
    let handle = spawn_as(&client, 1, timeout()).await;
    until("it is fenced", || executor.metrics().retried == 1).await;
    let other = spawn(&client, 2).await;
    let metrics = executor.metrics();
    assert_eq!((metrics.running, metrics.claimed), (1, 1));
    gate.open();
    assert_eq!(within(handle).await.unwrap(), 2);
    assert_eq!(within(other).await.unwrap(), 1);
}

async fn a_run_that_ends_in_time_is_not_told(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, cx| async move {
        assert_eq!(cx.stop_reason(), None);
        Ok(number)
    })
    .await;
    let options = SpawnOptions::new().timeout(100 * SECOND);
    let tasks = (0..100).map(|number| (Number(number), options.clone()));
    for handle in client.spawn_all_with(tasks).await.unwrap() {
        within(handle).await.unwrap();
    }
    let metrics = executor.metrics();
    assert_eq!((metrics.timed_out, metrics.completed), (0, 100));
}

async fn retries_end_when_their_time_is_over(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, _| async { Err("no".into()) }).await;
    let retry = Retry::exponential()
        .attempts(u32::MAX)
        .base(Duration::from_millis(1))
        .cap(Duration::from_millis(1));
    let options = SpawnOptions::new().retry(retry.max_elapsed(4 * TIMEOUT));
    let handle = spawn_as(&client, 1, options).await;
    let error = within(handle).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    let dead_letters = client.dead_letters().list(DeadFilter::all(), 9).await;
    let dead_letter = dead_letters.unwrap().remove(0);
    assert!(dead_letter.failures > 1, "{dead_letter:?}");
    let last = dead_letter.errors.last().expect("it was tried again");
    assert!(last.age < 100 * SECOND, "{dead_letter:?}");
}

async fn the_policy_of_a_spawn_outlives_a_replay(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, _| async { Err("no".into()) }).await;
    let handle = spawn_as(&client, 1, SpawnOptions::new().retry(ONCE)).await;
    reaches(&handle, Status::Dead).await;
    let replayed = client.dead_letters().replay(DeadFilter::all()).await;
    assert_eq!(replayed.unwrap(), 1);
    until("it has failed again", || executor.metrics().died == 2).await;
    assert_eq!(executor.metrics().retried, 0);
    let dead_letters = client.dead_letters();
    let task: Option<Number> = dead_letters.task(handle.id()).await.unwrap();
    assert_eq!(task.map(|task| task.0), Some(1));
}

async fn a_payload_that_replaces_another_brings_its_policy(store: TestStore) {
    let client = store.client().await;
    let key = Key::new("key").replace();
    let first = SpawnOptions::new().key(key.clone());
    let handle = spawn_as(
        &client,
        1,
        first.delay(Duration::from_millis(1)).retry(ONCE),
    )
    .await;
    let second = SpawnOptions::new().key(key);
    let other = spawn_as(&client, 2, second.retry(ONCE.attempts(2))).await;
    assert!(other.has_replaced() && other.id() == handle.id());
    let executor = start(&client, |_, _| async { Err("no".into()) }).await;
    assert!(within(handle).await.unwrap_err().dead_reason().is_some());
    assert_eq!(executor.metrics().retried, 1);
}

async fn the_tasks_of_a_schedule_have_its_policy(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, cx| async move {
        cx.stopped().await;
        Err("too slow".into())
    })
    .await;
    let options = ScheduleOptions::new().spawn(timeout().retry(ONCE));
    let hourly = Every::new(3600 * SECOND);
    let defined = client.schedule_with("job", hourly, Number(1), options);
    defined.await.unwrap();
    client.schedules().fire_now("job").await.unwrap();
    until("it has failed", || executor.metrics().died == 1).await;
    let metrics = executor.metrics();
    assert_eq!((metrics.timed_out, metrics.retried), (1, 0));
}

// ===== Where a policy comes from =====

/// A type that is tried four times.
#[derive(Serialize, Deserialize)]
struct Stubborn;

impl DurableTask for Stubborn {
    const NAME: &'static str = "stubborn";
    const RETRY: Option<Retry> = Some(Retry::exponential().attempts(4).base(Duration::ZERO));
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));
    type Output = ();
}

impl Run<AtomicU32> for Stubborn {
    async fn run(self, cx: TaskContext<AtomicU32>) -> Result<(), TaskError> {
        cx.app().fetch_add(1, Ordering::SeqCst);
        Err("no".into())
    }
}

#[tokio::test]
async fn the_retries_of_a_spawn_count_before_those_of_the_type_and_the_executor() {
    let (_clock, client) = timed();
    let runs = Arc::new(AtomicU32::new(0));
    let mut executor = DurableExecutor::builder(client.clone());
    executor.register::<Stubborn>().retry(ONCE.attempts(9));
    let started = executor.start_inline(Arc::clone(&runs)).await;
    let mut executor = started.unwrap();
    for (options, expected) in [
        (SpawnOptions::new(), 4),
        (timeout(), 4),
        (SpawnOptions::new().retry(ONCE), 1),
    ] {
        let handle = client.spawn_with(Stubborn, options).await.unwrap();
        run_due(&mut executor).await;
        assert!(within(handle).await.unwrap_err().dead_reason().is_some());
        assert_eq!(runs.swap(0, Ordering::SeqCst), expected);
    }
}

/// A type whose runs return the number of seconds after which they were asked to stop.
#[derive(Serialize, Deserialize)]
struct Slow;

impl DurableTask for Slow {
    const NAME: &'static str = "slow";
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));
    type Output = u64;
}

impl Run<()> for Slow {
    async fn run(self, cx: TaskContext<()>) -> Result<u64, TaskError> {
        let begun = tokio::time::Instant::now();
        cx.stopped().await;
        Ok(begun.elapsed().as_secs())
    }
}

#[tokio::test]
async fn the_timeout_of_a_spawn_counts_before_that_of_the_type() {
    let (_clock, client) = timed();
    let mut executor = DurableExecutor::builder::<()>(client.clone());
    let mut executor = executor.register::<Slow>().start_inline(()).await.unwrap();
    let handles = [
        client.spawn(Slow).await.unwrap(),
        client
            .spawn_with(Slow, SpawnOptions::new().timeout(7 * SECOND))
            .await
            .unwrap(),
    ];
    tokio::time::pause();
    run_due(&mut executor).await;
    tokio::time::resume();
    for (handle, expected) in handles.into_iter().zip([5, 7]) {
        assert_eq!(within(handle).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn an_inline_executor_drops_a_run_after_its_timeout_and_a_lease() {
    let (_clock, client) = timed();
    let act = |_, _| std::future::pending();
    let mut executor = start_inline(builder(&client).lease(20 * SECOND), act).await;
    let options = SpawnOptions::new().timeout(5 * SECOND).retry(ONCE);
    let handle = spawn_as(&client, 1, options).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(begun.elapsed().as_secs(), 25);
    tokio::time::resume();
    let error = within(handle).await.unwrap_err();
    assert!(error.to_string().contains("timeout of 5s"), "{error}");
}

/// A value whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("it panics"));
    }
}

#[tokio::test]
async fn a_panic_in_the_drop_of_a_run_that_takes_too_long_does_not_reach_the_inline_executor() {
    let (_clock, client) = timed();
    let act = |_, _| async {
        let _bomb = Bomb;
        std::future::pending().await
    };
    let mut executor = start_inline(builder(&client), act).await;
    let options = SpawnOptions::new().timeout(5 * SECOND).retry(ONCE);
    let handle = spawn_as(&client, 1, options).await;
    tokio::time::pause();
    assert_eq!(run_due(&mut executor).await, 1);
    tokio::time::resume();
    let error = within(handle).await.unwrap_err();
    assert!(error.to_string().contains("timeout of 5s"), "{error}");
}

/// The time of the first failure is kept, although only the last errors are.
#[tokio::test]
async fn no_attempt_begins_later_than_the_total_time_after_the_first_failure() {
    let (clock, client) = timed();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let (starts, now) = (Arc::clone(&begun), clock.clone());
    let mut executor = start_inline(builder(&client), move |_, cx: TaskContext<_>| {
        starts.lock().unwrap().push(cx.attempt());
        // The run itself takes no time.
        now.advance(if cx.attempt() == 1 {
            100 * SECOND
        } else {
            Duration::ZERO
        });
        async { Err(TaskError::retry_after("no", 4 * SECOND)) }
    })
    .await;
    let retry = Retry::exponential().attempts(u32::MAX);
    let options = SpawnOptions::new().retry(retry.max_elapsed(50 * SECOND));
    let handle = spawn_as(&client, 1, options).await;
    for _ in 0..13 {
        assert_eq!(run_due(&mut executor).await, 1);
        clock.advance(4 * SECOND);
    }
    assert_eq!(run_due(&mut executor).await, 0);
    // The 13th attempt began after 48 s, and another one would begin after 52 s.
    let error = within(handle).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    assert!(begun.lock().unwrap().iter().copied().eq(1..=13));
}

// ===== Invalid options =====

#[tokio::test]
async fn a_timeout_of_zero_is_refused() {
    let (_clock, client) = timed();
    let options = SpawnOptions::new().timeout(Duration::ZERO);
    let spawned = client.spawn_with(Number(1), options.clone()).await;
    let many = client.spawn_all_with([(Number(1), options.clone())]).await;
    let options = ScheduleOptions::new().spawn(options);
    let hourly = Every::new(3600 * SECOND);
    let defined = client
        .schedule_with("job", hourly, Number(1), options)
        .await;
    for error in [spawned.err(), many.err(), defined.err()] {
        let error = error.expect("it is refused");
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains("`timeout` is 0"), "{error}");
    }
}

/// A payload of any size.
#[derive(Serialize, Deserialize)]
struct Text(String);

impl DurableTask for Text {
    const NAME: &'static str = "text";
    type Output = ();
}

/// The largest payload is 1 MiB, including the envelope.
#[tokio::test]
async fn a_policy_counts_as_a_part_of_the_payload() {
    let (_clock, client) = timed();
    // Besides the text, there are two quotation marks, three bytes of the envelope, and nine of the policy.
    for (len, is_stored) in [((1 << 20) - 14, true), ((1 << 20) - 13, false)] {
        let spawned = client.spawn_with(Text("x".repeat(len)), timeout()).await;
        assert_eq!(spawned.is_ok(), is_stored, "{len}");
        if let Err(error) = spawned {
            assert!(error.to_string().contains("1048577"), "{error}");
        }
    }
}
