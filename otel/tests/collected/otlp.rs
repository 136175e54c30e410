//! A program exports the spans of its tasks with the exporter of OpenTelemetry.

use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, ServedQueue, TaskContext,
    TaskError,
};
use throng_opentelemetry::Links;
use tracing::{Instrument, info_span};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};

use super::receiver::{Receiver, text};

/// Bills an order, which fails.
#[derive(Serialize, Deserialize)]
struct Bill;

impl DurableTask for Bill {
    const NAME: &'static str = "order.bill";
    const QUEUE: Option<&'static str> = Some("billing");
    type Output = ();
}

impl Run<()> for Bill {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Err(TaskError::fatal("the card has expired"))
    }
}

/// Sends the spans of this process to the receiver from now on.
fn export_to(receiver: &Receiver) -> SdkTracerProvider {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&receiver.url);
    let provider = SdkTracerProvider::builder();
    let provider = provider
        .with_batch_exporter(exporter.build().unwrap())
        .build();
    let own = Targets::new()
        .with_target("collected", LevelFilter::INFO)
        .with_target("throng", LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(own));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    provider
}

/// The exporter needs the runtime, so the test has a thread besides that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_the_link_of_a_run_to_its_spawn() {
    let receiver = Receiver::start().await;
    let provider = export_to(&receiver);
    let client = DurableClient::open(MemoryStore::new()).propagating(Links::new());
    let mut builder = DurableExecutor::builder(client.clone());
    builder
        .register::<Bill>()
        .serve(ServedQueue::new("billing"));
    let executor = builder.start(()).await.unwrap();
    let order = info_span!("order", otel.kind = "server");
    let spawned = client.spawn(Bill).instrument(order).await.unwrap();
    let id = spawned.id().to_string();
    assert!(spawned.await.is_err());
    executor.shutdown(Duration::from_secs(10)).await;
    let flushed = throng::spawn_blocking(move || provider.shutdown()).await;
    flushed.unwrap().unwrap();

    let spawn = receiver.span_of("send order.bill", &id).await;
    let order = receiver.span(&spawn.parent_span_id).await;
    let run = receiver.span_of("process order.bill", &id).await;
    assert_eq!((&*order.name, order.kind()), ("order", SpanKind::Server));
    assert_eq!(spawn.trace_id, order.trace_id);
    let [link] = &run.links[..] else {
        panic!("not one link: {run:?}");
    };
    assert_eq!(
        (&link.trace_id, &link.span_id),
        (&spawn.trace_id, &spawn.span_id)
    );
    assert_ne!(run.trace_id, spawn.trace_id);
    assert!(run.parent_span_id.is_empty(), "{run:?}");
    assert_eq!(
        run.status.as_ref().map(|it| it.code()),
        Some(StatusCode::Error)
    );
    for (span, kind, operation) in [
        (&spawn, SpanKind::Producer, "send"),
        (&run, SpanKind::Consumer, "process"),
    ] {
        assert_eq!(span.kind(), kind, "{operation}");
        for (key, value) in [
            ("messaging.system", "throng"),
            ("messaging.operation.name", operation),
            ("messaging.operation.type", operation),
            ("messaging.destination.name", "billing"),
            ("task.name", "order.bill"),
        ] {
            assert_eq!(text(span, key), value, "{operation}: {key}");
        }
    }
}
