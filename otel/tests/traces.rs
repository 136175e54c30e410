//! Spawns and runs of tasks as an exporter of OpenTelemetry sees them.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use serde::{Deserialize, Serialize};
use throng::durable::{
    BeginningRun, Clock, DurableClient, DurableExecutor, DurableTask, Every, InlineExecutor,
    MemoryStore, Propagate, Run, ServedQueue, SpawnOptions, SqliteStore, TaskContext, TaskError,
    TaskId, TraceContext,
};
use throng_opentelemetry::{Links, Parents};
use tracing::Instrument;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

/// Resizes an image. The first attempts fail if it says so.
#[derive(Clone, Serialize, Deserialize)]
struct Resize {
    failures: u32,
    padding: String,
}

const RESIZE: Resize = Resize {
    failures: 0,
    padding: String::new(),
};

impl DurableTask for Resize {
    const NAME: &'static str = "image.resize";
    type Output = ();
}

impl Run<()> for Resize {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        tracing::info!("it resizes");
        match cx.attempt() > self.failures {
            true => Ok(()),
            false => Err(TaskError::retry("not yet")),
        }
    }
}

/// Spawns a task that resizes an image.
#[derive(Serialize, Deserialize)]
struct Import;

impl DurableTask for Import {
    const NAME: &'static str = "image.import";
    type Output = ();
}

impl Run<()> for Import {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        cx.client().spawn(RESIZE).await?;
        Ok(())
    }
}

/// A subscriber of this thread, whose spans stay in memory.
struct Traces {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _subscriber: DefaultGuard,
    lines: Lines,
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Traces {
    fn new(sampler: Sampler) -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .with_sampler(sampler)
            .build();
        let lines = Lines::default();
        let log = lines.clone();
        let subscriber = tracing_subscriber::registry()
            .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")))
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(false)
                    .with_writer(move || log.clone()),
            );
        Self {
            exporter,
            _provider: provider,
            _subscriber: tracing::subscriber::set_default(subscriber),
            lines,
        }
    }

    /// The spans with this name that have ended, in the order of their ends.
    fn spans(&self, name: &str) -> Vec<SpanData> {
        let mut spans = self.exporter.get_finished_spans().unwrap();
        spans.retain(|span| span.name == name);
        spans
    }

    fn span(&self, name: &str) -> SpanData {
        let [span] = &self.spans(name)[..] else {
            panic!(
                "not one span {name}: {:?}",
                self.exporter.get_finished_spans()
            );
        };
        span.clone()
    }

    fn log(&self) -> String {
        String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap()
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|it| it.key.as_str() == key);
    found.map(|it| it.value.to_string())
}

#[track_caller]
fn assert_linked(run: &SpanData, spawn: &SpanData) {
    let [link] = &run.links.links[..] else {
        panic!("not one link: {:?}", run.links);
    };
    let (link, spawn) = (&link.span_context, &spawn.span_context);
    assert_eq!(link.trace_id(), spawn.trace_id());
    assert_eq!(link.span_id(), spawn.span_id());
    assert!(link.is_remote());
    assert_ne!(run.span_context.trace_id(), spawn.trace_id());
}

async fn inline(client: &DurableClient) -> InlineExecutor {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Resize>().register::<Import>();
    builder.start_inline(()).await.unwrap()
}

fn in_memory(propagate: impl Propagate) -> (Clock, DurableClient) {
    let clock = Clock::manual();
    let client = DurableClient::open(MemoryStore::with_clock(&clock));
    (clock, client.propagating(propagate))
}

#[tokio::test]
async fn a_run_is_linked_to_its_spawn() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Links::new());
    let request = tracing::info_span!("request");
    let spawned = client.spawn(RESIZE).instrument(request).await;
    let id = spawned.unwrap().id();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);

    let (request, spawn) = (traces.span("request"), traces.span("send image.resize"));
    assert_eq!(spawn.span_kind, SpanKind::Producer);
    assert_eq!(spawn.parent_span_id, request.span_context.span_id());
    for (key, value) in [
        ("messaging.system", "throng"),
        ("messaging.operation.name", "send"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", "(default)"),
        ("messaging.message.id", &id.to_string()),
        ("task.id", &id.to_string()),
        ("task.count", "1"),
    ] {
        assert_eq!(attribute(&spawn, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(attribute(&spawn, "messaging.batch.message_count"), None);
    let run = traces.span("process image.resize");
    assert_linked(&run, &spawn);
    assert_eq!(run.span_kind, SpanKind::Consumer);
    assert_eq!(run.status, Status::Unset);
    for (key, value) in [
        ("messaging.system", "throng"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "(default)"),
        ("messaging.message.id", &id.to_string()),
        ("task.name", "image.resize"),
        ("task.outcome", "completed"),
        ("task.attempt", "1"),
    ] {
        assert_eq!(attribute(&run, key).as_deref(), Some(value), "{key}");
    }
}

#[tokio::test]
async fn each_attempt_is_linked_to_the_spawn() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (clock, client) = in_memory(Links::new());
    let failing = Resize {
        failures: 1,
        ..RESIZE
    };
    client.spawn(failing).await.unwrap();
    let mut executor = inline(&client).await;
    assert_eq!(executor.run_due().await.unwrap(), 1);
    clock.advance(Duration::from_secs(3600));
    assert_eq!(executor.run_due().await.unwrap(), 1);

    let spawn = traces.span("send image.resize");
    let [first, second] = &traces.spans("process image.resize")[..] else {
        panic!("not two runs");
    };
    assert_linked(first, &spawn);
    assert_linked(second, &spawn);
    assert_ne!(
        first.span_context.trace_id(),
        second.span_context.trace_id()
    );
    assert!(matches!(first.status, Status::Error { .. }));
    assert_eq!(attribute(first, "task.outcome").as_deref(), Some("retried"));
    assert_eq!(attribute(second, "task.attempt").as_deref(), Some("2"));
}

#[tokio::test]
async fn a_task_that_a_run_spawns_is_linked_to_that_run() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Links::new());
    client.spawn(Import).await.unwrap();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 2);
    let import = traces.span("process image.import");
    let spawns = traces.spans("send image.resize");
    let of_child = |spawn: &&SpanData| spawn.parent_span_id == import.span_context.span_id();
    let spawn = spawns.iter().find(of_child).expect("a span within the run");
    assert_linked(&traces.span("process image.resize"), spawn);
}

#[tokio::test]
async fn many_tasks_have_one_span_of_their_spawn() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Links::new());
    client.spawn_all(vec![RESIZE; 3]).await.unwrap();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 3);
    let spawn = traces.span("send image.resize");
    assert_eq!(attribute(&spawn, "task.count").as_deref(), Some("3"));
    let messages = attribute(&spawn, "messaging.batch.message_count");
    assert_eq!(messages.as_deref(), Some("3"));
    assert_eq!(attribute(&spawn, "messaging.message.id"), None);
    let runs = traces.spans("process image.resize");
    assert_eq!(runs.len(), 3);
    runs.iter().for_each(|run| assert_linked(run, &spawn));
}

/// The conventions call the queue of a task its destination. Tasks of several queues have none in common.
#[tokio::test]
async fn the_destination_is_the_queue() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Links::new());
    let in_queue = |queue: &str| (RESIZE, SpawnOptions::new().queue(queue));
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Resize>();
    builder
        .serve(ServedQueue::new("gpu"))
        .serve(ServedQueue::new("cpu"));
    let mut executor = builder.start_inline(()).await.unwrap();
    for (queues, destination) in [(["gpu", "gpu"], Some("gpu")), (["gpu", "cpu"], None)] {
        let spawned = client.spawn_all_with(queues.map(in_queue)).await;
        assert_eq!(spawned.unwrap().len(), 2);
        assert_eq!(executor.run_due().await.unwrap(), 2);
        let spawns = traces.spans("send image.resize");
        let spawn = spawns.last().expect("a spawn");
        let found = attribute(spawn, "messaging.destination.name");
        assert_eq!(found.as_deref(), destination);
    }
    let runs = traces.spans("process image.resize");
    let queues = runs
        .iter()
        .map(|run| attribute(run, "messaging.destination.name"));
    let mut queues: Vec<_> = queues.map(Option::unwrap).collect();
    queues.sort();
    assert_eq!(queues, ["cpu", "gpu", "gpu", "gpu"]);
}

/// No request has spawned it.
#[tokio::test]
async fn a_task_of_a_schedule_has_no_link() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Links::new());
    let hourly = Every::new(Duration::from_secs(3600));
    client.schedule("hourly", hourly, RESIZE).await.unwrap();
    client.schedules().fire_now("hourly").await.unwrap();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);
    let run = traces.span("process image.resize");
    assert!(run.links.links.is_empty());
    assert_eq!(attribute(&run, "trace_id"), None);
}

/// One program spawns the task, and another one runs it.
#[tokio::test]
async fn a_context_is_stored_in_a_file() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let spawner = DurableClient::open(SqliteStore::open(&file).await.unwrap());
    let spawner = spawner.propagating(Links::new());
    let id = spawner.spawn(RESIZE).await.unwrap().id();
    spawner.close().await.unwrap();

    let client = DurableClient::open(SqliteStore::open(&file).await.unwrap());
    let client = client.propagating(Links::new());
    let mut builder = DurableExecutor::builder(client.clone());
    let executor = builder.register::<Resize>().start(()).await.unwrap();
    client.attach::<Resize>(id).await.unwrap();
    executor.shutdown(Duration::from_secs(10)).await;
    client.close().await.unwrap();
    let spawn = traces.span("send image.resize");
    assert_linked(&traces.span("process image.resize"), &spawn);
}

/// A task whose encoding has as many bytes.
fn task_of(bytes: usize) -> Resize {
    let empty = RESIZE.encode().unwrap().len();
    Resize {
        padding: "p".repeat(bytes - empty),
        ..RESIZE
    }
}

/// A store accepts 1 MiB, with the envelope, which has one byte if there is no context. A task without room for the context is stored
/// without it.
#[tokio::test]
async fn a_context_makes_no_sampled_task_too_large() {
    const MAX: usize = (1 << 20) - 1;
    let cases = [
        (Sampler::AlwaysOff, MAX / 2, 0),
        (Sampler::AlwaysOff, MAX, 0),
        (Sampler::AlwaysOn, MAX / 2, 1),
        (Sampler::AlwaysOn, MAX, 0),
    ];
    for (sampler, len, links) in cases {
        let traces = Traces::new(sampler);
        let (_, client) = in_memory(Links::new());
        client.spawn(task_of(len)).await.unwrap();
        let refused = client.spawn(task_of(MAX + 1)).await;
        assert!(refused.is_err_and(|error| error.is_too_large()));
        assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);
        let runs = traces.spans("process image.resize");
        let found = runs.iter().map(|run| run.links.links.len());
        assert_eq!(found.sum::<usize>(), links, "{len}");
    }
}

#[tokio::test]
async fn a_run_that_begins_soon_is_a_child() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Parents::within(Duration::from_secs(3600)));
    client.spawn(RESIZE).await.unwrap();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);
    let (spawn, run) = (
        traces.span("send image.resize"),
        traces.span("process image.resize"),
    );
    assert_eq!(run.span_context.trace_id(), spawn.span_context.trace_id());
    assert_eq!(run.parent_span_id, spawn.span_context.span_id());
    assert!(run.parent_span_is_remote && run.links.links.is_empty());
}

/// A derived id does not say when the task was spawned, so the run may begin late.
#[tokio::test]
async fn a_run_of_a_task_with_a_derived_id_is_linked() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Parents::within(Duration::from_secs(3600)));
    let options = SpawnOptions::new().id(TaskId::derive("image", b"7"));
    client.spawn_with(RESIZE, options).await.unwrap();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);
    let spawn = traces.span("send image.resize");
    assert_linked(&traces.span("process image.resize"), &spawn);
}

/// With the feature `tracing` alone, a line of a log says which task and which trace it belongs to.
#[tokio::test]
async fn each_line_of_a_run_has_the_task_and_the_trace() {
    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Links::new());
    let id = client.spawn(RESIZE).await.unwrap().id();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);
    let trace = traces.span("send image.resize").span_context.trace_id();
    let log = traces.log();
    let line = log.lines().find(|line| line.contains("it resizes"));
    let line = line.expect("the run has logged a line");
    assert!(line.contains(&format!("task.id={id}")), "{line}");
    assert!(line.contains(&format!("trace_id={trace}")), "{line}");
}

/// A program must not lose tasks because of its traces.
#[tokio::test]
async fn a_panic_of_a_propagation_ends_neither_spawn_nor_run() {
    struct Panics;

    impl Propagate for Panics {
        fn current(&self) -> Option<TraceContext> {
            panic!("on purpose");
        }

        fn begin(&self, _: &BeginningRun<'_>) {
            panic!("on purpose");
        }
    }

    let traces = Traces::new(Sampler::AlwaysOn);
    let (_, client) = in_memory(Panics);
    client.spawn(RESIZE).await.unwrap();
    assert_eq!(inline(&client).await.run_due().await.unwrap(), 1);
    assert_eq!(traces.spans("durable.run").len(), 1);
}
