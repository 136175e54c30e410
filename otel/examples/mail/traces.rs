//! Sets up OpenTelemetry: spans are sent to a collector, or are lines on the standard error output.

use std::env;
use std::fmt;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter as OtlpExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::Result;

/// Sends the spans of throng and of this program to OpenTelemetry, and logs errors.
pub(crate) fn start() -> Result<SdkTracerProvider> {
    let resource = Resource::builder().with_service_name("mail").build();
    let provider = SdkTracerProvider::builder().with_resource(resource);
    let provider = match env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT") {
        Some(_) => {
            let exporter = OtlpExporter::builder().with_tonic().build()?;
            provider.with_batch_exporter(exporter)
        }
        None => provider.with_simple_exporter(StderrExporter),
    };
    let provider = provider.build();
    // The exporter emits spans itself, and these must not be exported. The span of a spawn has the level `debug`.
    let targets = Targets::new()
        .with_target("mail", LevelFilter::INFO)
        .with_target("throng", LevelFilter::DEBUG);
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("mail"));
    let errors = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(spans.with_filter(targets))
        .with(errors.with_filter(LevelFilter::ERROR))
        .try_init()?;
    Ok(provider)
}

/// Exports the remaining spans. This blocks a thread, and the exporter needs the runtime meanwhile.
pub(crate) async fn stop(provider: SdkTracerProvider) -> Result<()> {
    Ok(throng::spawn_blocking(move || provider.shutdown()).await??)
}

/// Prints each span as one line. Spans are printed between the other output of the program, where longer texts would be hard to read.
#[derive(Debug)]
struct StderrExporter;

impl SpanExporter for StderrExporter {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        spans.iter().for_each(|span| eprintln!("{}", Line(span)));
        Ok(())
    }
}

struct Line<'a>(&'a SpanData);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(span) = self;
        let took = span.end_time.duration_since(span.start_time);
        let (name, trace) = (&span.name, span.span_context.trace_id());
        write!(
            f,
            "trace {trace} {name:?} took {:?}",
            took.unwrap_or_default()
        )?;
        let mut links = span.links.iter();
        links.try_for_each(|link| write!(f, ", linked to {}", link.span_context.trace_id()))
    }
}
