//! Layers around runs: what they see, what they change, and what they must not change.

use std::error::Error;
use std::fmt;
use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    Builder, DeadReason, DurableHandle, DurableTask, RunError, RunOutput, RunRequest, RunService,
    ServedQueue, SpawnOptions, Status, StopReason, TaskContext, TaskError,
};
use tokio::task::yield_now;
use tower::buffer::BufferLayer;
use tower::layer::layer_fn;
use tower::layer::util::Identity;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::harness::{
    App, Door, Number, TestStore, builder, reaches, run_due, spawn, spawn_as, start_as,
    start_inline, timed, until,
};
use crate::ledger::assert_balanced;
use crate::support::{Drops, within};

on_all_stores! {
    the_layer_that_was_added_last_is_the_outermost,
    a_layer_that_fails_causes_another_attempt,
    a_run_that_takes_too_long_is_dropped_and_tried_again,
    a_limit_of_a_layer_holds_for_all_runs,
    a_run_in_layers_sees_that_it_is_cancelled,
    a_shutdown_drops_runs_in_layers_after_its_grace,
    a_run_in_layers_gives_its_permit_back_while_it_waits,
}

type Inner = RunService<App>;
type Request = RunRequest<App>;
type Outcome = Result<RunOutput, BoxError>;

/// Three attempts without delays, since the tests do not advance the clock.
const AT_ONCE: Retry = Retry::exponential().base(Duration::ZERO).attempts(3);

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// A layer that calls a function for each run.
fn around<F, R>(
    act: F,
) -> impl Layer<
    Inner,
    Service = impl Service<Request, Response = RunOutput, Error = BoxError, Future = R>
              + Clone
              + Send
              + Sync
              + 'static,
>
where
    F: Fn(Inner, Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    layer_fn(move |inner: Inner| {
        let act = act.clone();
        service_fn(move |request| act(inner.clone(), request))
    })
}

async fn run(inner: Inner, request: Request) -> Outcome {
    Ok(inner.oneshot(request).await?)
}

/// Returns the errors of the attempts before this one. They are deleted when the task succeeds.
async fn errors(cx: &TaskContext<App>) -> Vec<String> {
    let errors = cx.client().attach::<Number>(cx.id()).errors().await;
    errors.unwrap().into_iter().map(|it| it.error).collect()
}

/// The lines that were logged, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// A layer that logs when a run begins and ends.
    fn layer(
        &self,
        name: &'static str,
    ) -> impl Layer<
        Inner,
        Service = impl Service<
            Request,
            Response = RunOutput,
            Error = BoxError,
            Future = impl Future<Output = Outcome> + Send + 'static,
        > + Clone
                  + Send
                  + Sync
                  + 'static,
    > {
        let log = self.clone();
        around(move |inner, request| {
            let log = log.clone();
            async move {
                log.add(format!("{name} begins"));
                let outcome = run(inner, request).await;
                log.add(format!("{name} ends"));
                outcome
            }
        })
    }
}

// ===== Order =====

async fn the_layer_that_was_added_last_is_the_outermost(store: TestStore) {
    let (client, log) = (store.client().await, Log::default());
    let mut builder = builder(&client);
    builder.layer(log.layer("first")).layer(log.layer("last"));
    let inside = log.clone();
    let _executor = start_as(builder, move |number, _| {
        inside.add("it runs");
        ready(Ok(number))
    })
    .await;
    assert_eq!(within(spawn(&client, 7).await).await.unwrap(), 7);
    let expected = [
        "last begins",
        "first begins",
        "it runs",
        "first ends",
        "last ends",
    ];
    assert_eq!(log.take(), expected);
}

/// A layer around any service, which logs its name.
#[derive(Clone)]
struct Name(&'static str, Log);

impl<S> Layer<S> for Name {
    type Service = Named<S>;

    fn layer(&self, inner: S) -> Named<S> {
        Named {
            name: self.clone(),
            inner,
        }
    }
}

#[derive(Clone)]
struct Named<S> {
    name: Name,
    inner: S,
}

impl<S: Service<Request>> Service<Request> for Named<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> S::Future {
        let Name(name, log) = &self.name;
        log.add(*name);
        self.inner.call(request)
    }
}

#[tokio::test]
async fn a_stack_of_layers_is_added_as_a_whole_and_keeps_its_order() {
    let (_, client) = timed();
    let log = Log::default();
    let named = |name| Name(name, log.clone());
    let stack = ServiceBuilder::new()
        .layer(named("outer of the stack"))
        .timeout(HOUR)
        .layer(named("inner of the stack"));
    let mut builder = builder(&client);
    builder
        .layer(stack.into_inner())
        .layer(named("added later"));
    let mut executor = start_inline(builder, |number, _| ready(Ok(number))).await;
    let handle = spawn(&client, 7).await;
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(handle.await.unwrap(), 7);
    let expected = ["added later", "outer of the stack", "inner of the stack"];
    assert_eq!(log.take(), expected);
}

#[tokio::test]
async fn types_that_are_registered_after_a_layer_run_in_it() {
    let (_, client) = timed();
    let log = Log::default();
    let mut builder = throng::durable::DurableExecutor::builder(client.clone());
    builder.layer(log.layer("it")).register::<Number>();
    let mut executor = start_inline(builder, |number, _| ready(Ok(number))).await;
    let _handle = spawn(&client, 7).await;
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(log.take(), ["it begins", "it ends"]);
}

// ===== Layers that change nothing =====

/// A task that has the name of [`Number`], but cannot be decoded as one.
#[derive(Serialize, Deserialize)]
struct NoNumber(String);

impl DurableTask for NoNumber {
    const NAME: &'static str = Number::NAME;
    type Output = u64;
}

/// Runs one task for each behaviour, and returns the outcomes.
async fn outcomes(add_layers: impl FnOnce(&mut Builder<App>) -> &mut Builder<App>) -> Vec<String> {
    let (clock, client) = timed();
    let mut builder = builder(&client);
    builder
        .retry(AT_ONCE)
        .serve(ServedQueue::default_queue())
        .serve(ServedQueue::new("q"));
    add_layers(&mut builder);
    let mut executor = start_inline(builder, behave).await;
    let unreadable = client.spawn(NoNumber("seven".into())).await.unwrap();
    let mut handles = vec![unreadable];
    for number in 0..BEHAVIOURS {
        let options = SpawnOptions::new().queue("q").group(number.to_string());
        handles.push(spawn_as(&client, number, options).await);
    }
    // A task of the group that is held, and a task that awaits another one.
    let options = SpawnOptions::new().queue("q").group("6");
    handles.push(spawn_as(&client, 0, options).await);
    handles.push(spawn_as(&client, AWAITS, SpawnOptions::new()).await);
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(format!("{} runs", run_due(&mut executor).await));
        for handle in &handles {
            found.push(observed(handle).await);
        }
        clock.advance(MINUTE / 2);
    }
    found
}

const BEHAVIOURS: u64 = 7;
const AWAITS: u64 = 7;

async fn behave(number: u64, cx: TaskContext<App>) -> Result<u64, TaskError> {
    match number {
        0 => Ok(number),
        1 => Err(TaskError::retry("it has failed")),
        2 => Err(TaskError::retry_after("told to wait", MINUTE)),
        3 => Err(TaskError::fatal("for good")),
        4 => Err(TaskError::snooze(MINUTE)),
        5 => panic!("on purpose"),
        6 => Err(TaskError::retry_after("429", MINUTE).and_hold_group(MINUTE)),
        _ => Ok(cx.client().spawn(Number(0)).await?.await?),
    }
}

async fn observed(handle: &DurableHandle<u64>) -> String {
    let status = handle.status().await.unwrap();
    let errors = handle.errors().await.unwrap();
    let errors: Vec<_> = errors.into_iter().map(|it| it.error).collect();
    match status.is_final() {
        true => format!("{status:?} {errors:?} {:?}", handle.clone().await),
        false => format!("{status:?} {errors:?}"),
    }
    // The ids differ between the calls of this function.
    .replace(&handle.id().to_string(), "its id")
}

#[tokio::test]
async fn layers_that_do_nothing_change_nothing() {
    let plain = outcomes(|builder| builder).await;
    assert!(plain[1].contains("Dead"), "{plain:#?}");
    let with = outcomes(|builder| builder.layer(Identity::new())).await;
    assert_eq!(with, plain, "identity");
    let with = outcomes(|builder| builder.layer(around(run)).layer(around(run))).await;
    assert_eq!(with, plain, "errors in boxes");
    let with = outcomes(|builder| {
        let stack = ServiceBuilder::new().timeout(HOUR).concurrency_limit(1);
        builder.layer(stack.load_shed().timeout(HOUR).into_inner())
    })
    .await;
    assert_eq!(with, plain, "layers of tower");
    let with = outcomes(|builder| builder.layer(BufferLayer::new(8))).await;
    assert_eq!(with, plain, "a buffer");
}

/// An error that has another one as its source.
#[derive(Debug)]
struct Because(BoxError);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("in a layer")
    }
}

impl Error for Because {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test]
async fn an_error_that_a_layer_wraps_keeps_its_meaning_and_gets_a_longer_message() {
    let plain = outcomes(|builder| builder).await;
    let with = outcomes(|builder| {
        builder.layer(around(|inner, request| async {
            let outcome = run(inner, request).await;
            outcome.map_err(|error| Because(Because(error).into()).into())
        }))
    })
    .await;
    assert!(with[1].contains("in a layer: in a layer: "), "{with:#?}");
    let with: Vec<_> = with
        .iter()
        .map(|it| it.replace("in a layer: ", ""))
        .collect();
    assert_eq!(with, plain);
}

// ===== What layers see =====

/// Adds a line for the request and a line for the outcome.
async fn look(log: Log, inner: Inner, request: Request) -> Outcome {
    let attempt = request.context().attempt();
    let (name, len) = (request.name(), request.payload_len());
    log.add(format!("{name}, attempt {attempt}, {len} bytes"));
    let outcome = inner.oneshot(request).await;
    log.add(match &outcome {
        Ok(output) => format!("{} bytes", output.encoded_len()),
        Err(error) => kinds(error),
    });
    Ok(outcome?)
}

#[tokio::test]
async fn a_layer_sees_the_request_the_output_and_the_error() {
    let (clock, client) = timed();
    let log = Log::default();
    let (seen, mut builder) = (log.clone(), builder(&client));
    builder.layer(around(move |inner, request| {
        look(seen.clone(), inner, request)
    }));
    let mut executor = start_inline(builder, behave).await;
    for (number, end) in [
        (0, "1 bytes"),
        (3, "for good: fatal"),
        (4, "it cannot be done now: snooze"),
        (2, "told to wait:"),
        (AWAITS, "and wait with `TaskContext::join`: snooze"),
    ] {
        let _handle = spawn(&client, number).await;
        run_due(&mut executor).await;
        let log = log.take();
        assert_eq!(log[0], "number, attempt 1, 1 bytes");
        assert!(log[1].ends_with(end), "{log:?}");
    }
    clock.advance(MINUTE);
    run_due(&mut executor).await;
    let seen = log.take();
    let second = "number, attempt 2, 1 bytes".to_owned();
    assert!(seen.contains(&second), "{seen:?}");
}

#[tokio::test]
async fn a_layer_sees_a_task_that_cannot_be_decoded_which_becomes_a_dead_letter() {
    let (_, client) = timed();
    let log = Log::default();
    let (seen, mut builder) = (log.clone(), builder(&client));
    builder.layer(around(move |inner, request| {
        look(seen.clone(), inner, request)
    }));
    let mut executor = start_inline(builder, behave).await;
    let handle = client.spawn(NoNumber("7".into())).await.unwrap();
    assert_eq!(run_due(&mut executor).await, 1);
    let seen = log.take();
    assert_eq!(seen[0], "number, attempt 1, 3 bytes");
    assert!(seen[1].ends_with(": fatal unreadable"), "{seen:?}");
    let error = handle.await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
}

fn kinds(error: &RunError) -> String {
    let mut text = format!("{error}:");
    for (is, kind) in [
        (error.is_fatal(), " fatal"),
        (error.is_snooze(), " snooze"),
        (error.is_unreadable(), " unreadable"),
    ] {
        text.push_str(if is { kind } else { "" });
    }
    text
}

#[test]
fn a_run_error_is_displayed_as_its_cause_and_has_the_same_sources() {
    let error = RunError::from(TaskError::retry(Because("the cause".into())));
    assert_eq!(error.to_string(), "in a layer");
    assert_eq!(error.source().unwrap().to_string(), "the cause");
    assert!(error.task_error().source().unwrap().is::<Because>());
    let error = RunError::from(TaskError::snooze(MINUTE));
    assert!(error.is_snooze() && error.source().is_none());
    assert!(format!("{error:?}").contains("Snooze(60s)"), "{error:?}");
}

// ===== What layers change =====

async fn a_layer_that_fails_causes_another_attempt(store: TestStore) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.layer(around(|inner, request: Request| async {
        match request.context().attempt() {
            1 => Err("not today".into()),
            _ => run(inner, request).await,
        }
    }));
    let executor = start_as(builder, |number, cx| async move {
        assert_eq!(errors(&cx).await, ["not today"]);
        Ok(number)
    })
    .await;
    assert_eq!(within(spawn(&client, 7).await).await.unwrap(), 7);
    let metrics = executor.metrics();
    assert_eq!((metrics.retried, metrics.panicked), (1, 0));
}

#[tokio::test]
async fn a_layer_can_answer_in_place_of_the_run() {
    let (clock, client) = timed();
    let mut builder = builder(&client);
    builder.layer(around(|inner, request: Request| async {
        match request.payload_len() {
            1 => run(inner, request).await,
            2 => Err(RunError::from(TaskError::fatal("too large")).into()),
            _ => Err(RunError::from(TaskError::snooze(MINUTE)).into()),
        }
    }));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut executor = start_inline(builder, move |number, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        ready(Ok(number))
    })
    .await;
    let [one, two, three] = [1, 22, 333].map(|number| spawn(&client, number));
    let (one, two, three) = (one.await, two.await, three.await);
    assert_eq!(run_due(&mut executor).await, 3);
    assert_eq!(one.await.unwrap(), 1);
    let error = two.await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Fatal));
    assert!(error.to_string().contains("too large"), "{error}");
    assert_eq!(three.status().await.unwrap(), Status::Delayed);
    assert!(three.errors().await.unwrap().is_empty());
    clock.advance(MINUTE);
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_layer_can_replace_the_error_of_a_run() {
    let (_, client) = timed();
    let mut builder = builder(&client);
    builder.retry(Retry::exponential().attempts(1));
    builder.layer(around(|inner, request| async {
        let outcome = inner.oneshot(request).await;
        // The outermost error counts.
        outcome.map_err(|error| RunError::from(TaskError::retry(error)).into())
    }));
    let mut executor = start_inline(builder, behave).await;
    let handle = spawn(&client, 3).await;
    assert_eq!(run_due(&mut executor).await, 1);
    let error = handle.await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    assert!(error.to_string().contains("for good"), "{error}");
}

async fn a_run_that_takes_too_long_is_dropped_and_tried_again(store: TestStore) {
    let (client, drops, log) = (store.client().await, Drops::new(), Log::default());
    let mut builder = builder(&client);
    builder.layer(around(|inner: Inner, request: Request| {
        // On a slow machine, the second attempt may take longer than the first one may.
        let limit = [Duration::from_millis(5), HOUR][request.context().attempt() as usize - 1];
        let limited = TimeoutLayer::new(limit).layer(inner);
        async { limited.oneshot(request).await }
    }));
    let (counted, log_of_run) = (drops.clone(), log.clone());
    let _executor = start_as(builder, move |number, cx| {
        let (value, seen) = (counted.value(), log_of_run.clone());
        async move {
            match cx.attempt() {
                1 => pending().await,
                _ => seen.add(errors(&cx).await.join(", ")),
            }
            drop(value);
            Ok(number)
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 7).await).await.unwrap(), 7);
    assert_eq!(log.take(), ["request timed out"]);
    until("the runs are dropped", || drops.count() == drops.made()).await;
}

/// Repeats a run that has failed once.
#[derive(Clone)]
struct Twice;

impl<E> Policy<Request, RunOutput, E> for Twice {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request,
        outcome: &mut Result<RunOutput, E>,
    ) -> Option<Self::Future> {
        outcome.is_err().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn a_layer_can_run_a_workflow_several_times_in_one_attempt() {
    let (_, client) = timed();
    let mut builder = builder(&client);
    builder.layer(RetryLayer::new(Twice));
    let (runs, steps) = <[Arc<AtomicUsize>; 2]>::default().into();
    let (counted, all) = (Arc::clone(&steps), Arc::clone(&runs));
    let mut executor = start_inline(builder, move |_, cx| {
        let (steps, runs) = (Arc::clone(&counted), Arc::clone(&all));
        async move {
            let first = || async { Ok(steps.fetch_add(1, Ordering::SeqCst) as u64) };
            let first = cx.step("first", first).await?;
            let run = runs.fetch_add(1, Ordering::SeqCst);
            let second = || async {
                match run {
                    0 => Err(TaskError::fatal("it has failed")),
                    _ => Ok(first + 7),
                }
            };
            cx.step("second", second).await
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(handle.await.unwrap(), 7);
    assert_eq!(
        (steps.load(Ordering::SeqCst), runs.load(Ordering::SeqCst)),
        (1, 2)
    );
}

#[tokio::test]
async fn a_layer_can_run_a_task_several_times_in_one_attempt() {
    let (_, client) = timed();
    let mut builder = builder(&client);
    builder.layer(RetryLayer::new(Twice));
    let runs = AtomicUsize::new(0);
    let mut executor = start_inline(builder, move |number, cx| {
        assert_eq!((number, cx.attempt()), (7, 1));
        ready(match runs.fetch_add(1, Ordering::SeqCst) {
            0 => Err(TaskError::retry("it has failed")),
            earlier => Ok(earlier as u64),
        })
    })
    .await;
    let handle = spawn(&client, 7).await;
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(handle.await.unwrap(), 1);
}

// ===== Readiness =====

async fn a_limit_of_a_layer_holds_for_all_runs(store: TestStore) {
    let client = store.client().await;
    let running = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = Arc::clone(&running);
    let mut builder = builder(&client);
    builder.max_running(7).layer(ConcurrencyLimitLayer::new(2));
    // The outer layer passes on that the limit is reached.
    builder.layer(TimeoutLayer::new(HOUR));
    let _executor = start_as(builder, move |number, _| {
        let running = Arc::clone(&counted);
        async move {
            let now = running[0].fetch_add(1, Ordering::SeqCst) + 1;
            running[1].fetch_max(now, Ordering::SeqCst);
            yield_now().await;
            running[0].fetch_sub(1, Ordering::SeqCst);
            Ok(number)
        }
    })
    .await;
    for handle in client.spawn_all((0..300).map(Number)).await.unwrap() {
        within(handle).await.unwrap();
    }
    assert_eq!(running[1].load(Ordering::SeqCst), 2);
    assert_balanced(&client.counts().await.unwrap());
}

#[tokio::test]
async fn a_layer_learns_that_the_one_in_it_is_not_ready() {
    let (_, client) = timed();
    let (door, mut builder) = (Door::new(), builder(&client));
    let held = door.clone();
    builder.retry(AT_ONCE);
    builder.layer(ConcurrencyLimitLayer::new(1));
    builder.layer(LoadShedLayer::new());
    let executor = start_as(builder, move |number, cx| {
        let door = held.clone();
        async move {
            if number == 1 {
                door.pass().await;
            }
            Ok(u64::from(cx.attempt()))
        }
    })
    .await;
    let first = spawn(&client, 1).await;
    until("it runs", || executor.metrics().running == 1).await;
    reaches(&first, Status::Running).await;
    let second = spawn(&client, 2).await;
    // All three attempts are refused.
    let error = within(second.clone()).await.unwrap_err();
    assert!(error.to_string().contains("service overloaded"), "{error}");
    door.open();
    assert_eq!(within(first).await.unwrap(), 1);
}

/// A service that is never ready.
#[derive(Clone)]
struct NeverReady;

impl Service<Request> for NeverReady {
    type Response = RunOutput;
    type Error = RunError;
    type Future = std::future::Pending<Result<RunOutput, RunError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        Poll::Pending
    }

    fn call(&mut self, _: Request) -> Self::Future {
        pending()
    }
}

#[tokio::test]
async fn a_run_that_waits_for_a_layer_is_given_back_at_a_shutdown() {
    let (_, client) = timed();
    let mut builder = builder(&client);
    builder.layer(layer_fn(|_| NeverReady));
    let executor = start_as(builder, |number, _| ready(Ok(number))).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Running).await;
    within(executor.shutdown(Duration::ZERO)).await;
    assert_eq!(handle.status().await.unwrap(), Status::Waiting);
}

// ===== Panics =====

/// The call in which a service panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Panics {
    Clone,
    Ready,
    Call,
    Poll,
    DropOfFuture,
    DropOfService,
}

/// A service that panics, if it is armed, in the first run.
struct Wild {
    panics: Panics,
    armed: Arc<AtomicUsize>,
    inner: Inner,
}

impl Wild {
    fn act(&self, act: Panics) {
        let is_armed = || self.armed.swap(0, Ordering::SeqCst) > 0;
        assert!(self.panics != act || !is_armed(), "in {act:?}");
    }
}

impl Clone for Wild {
    fn clone(&self) -> Self {
        self.act(Panics::Clone);
        Self {
            armed: Arc::clone(&self.armed),
            inner: self.inner.clone(),
            ..*self
        }
    }
}

impl Drop for Wild {
    fn drop(&mut self) {
        self.act(Panics::DropOfService);
    }
}

impl Service<Request> for Wild {
    type Response = RunOutput;
    type Error = RunError;
    type Future = futures::future::BoxFuture<'static, Result<RunOutput, RunError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        self.act(Panics::Ready);
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.act(Panics::Call);
        let run = self.inner.call(request);
        let (panics, armed) = (self.panics, Arc::clone(&self.armed));
        let is_armed = move |act| panics == act && armed.swap(0, Ordering::SeqCst) > 0;
        Box::pin(async move {
            assert!(!is_armed(Panics::Poll), "in Poll");
            let _dropped = is_armed(Panics::DropOfFuture).then(|| PanicsInDrop);
            run.await
        })
    }
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in DropOfFuture");
    }
}

#[tokio::test]
async fn a_panic_of_a_layer_is_a_failed_attempt_and_the_executor_goes_on() {
    for panics in [
        Panics::Clone,
        Panics::Ready,
        Panics::Call,
        Panics::Poll,
        Panics::DropOfFuture,
        Panics::DropOfService,
    ] {
        let (_, client) = timed();
        let armed = Arc::new(AtomicUsize::new(0));
        let mut builder = builder(&client);
        builder.retry(AT_ONCE).layer(layer_fn(|inner| Wild {
            panics,
            armed: Arc::clone(&armed),
            inner,
        }));
        let log = Log::default();
        let seen = log.clone();
        let executor = start_as(builder, move |number, cx| {
            let seen = seen.clone();
            async move {
                seen.add(errors(&cx).await.join(", "));
                Ok(number)
            }
        })
        .await;
        armed.store(1, Ordering::SeqCst);
        assert_eq!(within(spawn(&client, 7).await).await.unwrap(), 7);
        let seen = log.take();
        assert_eq!(seen.last().unwrap(), &format!("it panicked: in {panics:?}"));
        assert_eq!(executor.metrics().panicked, 1);
        assert_eq!(within(spawn(&client, 8).await).await.unwrap(), 8);
    }
}

#[tokio::test]
async fn a_panic_while_a_layer_is_added_leaves_the_builder_as_it_was() {
    let (_, client) = timed();
    let log = Log::default();
    let mut builder = builder(&client);
    builder.layer(log.layer("it"));
    let panics = layer_fn(|_: Inner| -> Inner { panic!("on purpose") });
    let added = catch_unwind(AssertUnwindSafe(|| {
        builder.layer(panics);
    }));
    assert!(added.is_err());
    let mut executor = start_inline(builder, |number, _| ready(Ok(number))).await;
    let _handle = spawn(&client, 7).await;
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(log.take(), ["it begins", "it ends"]);
}

// ===== Cancellation, shutdown and waits =====

async fn a_run_in_layers_sees_that_it_is_cancelled(store: TestStore) {
    let (client, log) = (store.client().await, Log::default());
    let seen = log.clone();
    let mut builder = builder(&client);
    builder.layer(around(move |inner, request: Request| {
        let seen = seen.clone();
        async move {
            let cx = request.context().clone();
            let outcome = run(inner, request).await;
            seen.add(format!("{:?}", cx.stop_reason()));
            outcome
        }
    }));
    let _executor = start_as(builder, |_, cx| async move {
        assert_eq!(cx.stopped().await, StopReason::Cancelled);
        Err(TaskError::retry("it was cancelled"))
    })
    .await;
    let handle = spawn(&client, 7).await;
    reaches(&handle, Status::Running).await;
    assert!(handle.cancel().await.unwrap());
    assert!(within(handle).await.unwrap_err().is_cancelled());
    assert_eq!(log.take(), ["Some(Cancelled)"]);
}

async fn a_shutdown_drops_runs_in_layers_after_its_grace(store: TestStore) {
    let (client, drops) = (store.client().await, Drops::new());
    let counted = drops.clone();
    let mut builder = builder(&client);
    builder.layer(TimeoutLayer::new(HOUR)).layer(around(run));
    let executor = start_as(builder, move |number, _| {
        let value = counted.value();
        async move {
            Door::new().pass().await;
            drop(value);
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 7).await;
    reaches(&handle, Status::Running).await;
    until("it runs", || drops.made() == 1).await;
    within(executor.shutdown(Duration::from_millis(1))).await;
    assert_eq!(handle.status().await.unwrap(), Status::Waiting);
    assert_eq!(client.counts().await.unwrap().released, 1);
    until("the run is dropped", || drops.count() == 1).await;
}

async fn a_run_in_layers_gives_its_permit_back_while_it_waits(store: TestStore) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.max_running(1).layer(around(run));
    // The task of the buffer calls the service, but the run itself polls the future.
    builder
        .layer(BufferLayer::new(8))
        .layer(TimeoutLayer::new(HOUR));
    let executor = start_as(builder, |number, cx| async move {
        match number {
            0 => Ok(0),
            _ => Ok(1 + cx.client().spawn(Number(number - 1)).await?.await?),
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 3).await).await.unwrap(), 3);
    until("nothing runs", || {
        let metrics = executor.metrics();
        (metrics.running, metrics.suspended) == (0, 0)
    })
    .await;
}
