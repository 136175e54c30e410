//! Traces that follow the durable tasks of [throng] from their spawn to their runs, through OpenTelemetry.
//!
//! The client of a program gets a [`Propagate`]: [`Links`] or [`Parents`]. A task that it spawns in a sampled trace stores the context of
//! the span `durable.spawn`. Each run of the task then has a span `durable.run` that is linked to that span, in any process whose client
//! also has a `Propagate`. A task that is spawned outside of a sampled trace stores no context.
//!
//! ```
//! use opentelemetry::trace::TracerProvider;
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//! use throng::durable::{DurableClient, MemoryStore};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! // Add an exporter to the provider.
//! let provider = SdkTracerProvider::builder().build();
//! let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("mails"));
//! let subscriber = tracing_subscriber::registry().with(layer);
//! # let _subscriber = tracing::subscriber::set_default(subscriber);
//!
//! let client = DurableClient::open(MemoryStore::new()).propagating(throng_opentelemetry::Links::new());
//! # drop(client);
//! ```
//!
//! # Links and parents
//!
//! A task may run days after its spawn, and again after each failure. So each run is a trace of its own, with a *link* to the spawn, as the
//! semantic conventions for messaging recommend. To see a request and its tasks in one trace, use [`Parents`]: runs that begin soon after
//! the spawn become *children* of the spawn.
//!
//! # Spans and attributes
//!
//! The crate throng emits the spans, with the fields in the table, through the crate `tracing`. The attributes are set by this crate. The
//! semantic conventions for messaging are in development, so the names of attributes may change in later versions.
//!
//! | span | level | fields | attributes |
//! | --- | --- | --- | --- |
//! | `durable.spawn` | debug | `otel.kind`, `store`, `task.name`, `task.count`, and `task.id` of a single task | |
//! | `durable.run` | info | `otel.kind`, `task.name`, `task.id`, `task.attempt`, `task.crashes`, `task.fencing_token`, `task.outcome`, `trace_id` of the spawn | the name `process {task.name}`, `messaging.system`, `messaging.operation.type`, `messaging.destination.name`, `messaging.message.id` |
//!
//! A run that fails has the status `error`. The fields `task.id` and `trace_id` are in each line that a subscriber such as that of
//! `tracing-subscriber` logs during a run, even without an exporter of traces.

use std::time::{Duration, SystemTime};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use throng::durable::{BeginningRun, Propagate, TraceContext};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Links each run to the spawn of its task. Each run is a trace of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links(());

impl Links {
    /// Returns a propagation by links.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{DurableClient, MemoryStore};
    /// use throng_opentelemetry::Links;
    ///
    /// let client = DurableClient::open(MemoryStore::new()).propagating(Links::new());
    /// # drop(client);
    /// ```
    pub fn new() -> Self {
        Self(())
    }
}

/// Makes runs that begin soon after the spawn of their task children of the spawn, in the same trace. Later runs are linked to it.
#[derive(Clone, Copy, Debug)]
pub struct Parents {
    within: Duration,
}

impl Parents {
    /// Makes runs that begin within this time of the spawn children of the spawn.
    ///
    /// The time is measured with the clocks of both machines. If the program has chosen the id of a task, the time of
    /// its spawn is not known, so its runs are linked.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::durable::{DurableClient, MemoryStore};
    /// use throng_opentelemetry::Parents;
    ///
    /// let parents = Parents::within(Duration::from_secs(60));
    /// let client = DurableClient::open(MemoryStore::new()).propagating(parents);
    /// # drop(client);
    /// ```
    pub fn within(time: Duration) -> Self {
        Self { within: time }
    }

    fn is_soon(&self, spawned: Option<SystemTime>) -> bool {
        let passed = |spawned| SystemTime::now().duration_since(spawned);
        // If the clock of the spawning process is ahead, the spawn counts as just now.
        spawned.is_some_and(|spawned| passed(spawned).unwrap_or_default() <= self.within)
    }
}

impl Propagate for Links {
    fn current(&self) -> Option<TraceContext> {
        current()
    }

    fn begin(&self, run: &BeginningRun<'_>) {
        describe(run);
        if let Some(from) = run.from {
            run.span.add_link(remote(from));
        }
    }
}

impl Propagate for Parents {
    fn current(&self) -> Option<TraceContext> {
        current()
    }

    fn begin(&self, run: &BeginningRun<'_>) {
        describe(run);
        let Some(from) = run.from.map(remote) else {
            return;
        };
        if self.is_soon(run.spawned) {
            let parent = Context::new().with_remote_span_context(from);
            // The span has not begun, so this fails only if nobody records it.
            run.span.set_parent(parent).ok();
        } else {
            run.span.add_link(from);
        }
    }
}

/// Returns the context of the current span, if its trace is sampled.
fn current() -> Option<TraceContext> {
    let context = Span::current().context();
    let span = context.span();
    let from = span.span_context();
    from.is_sampled().then(|| TraceContext {
        trace_id: from.trace_id().to_bytes(),
        span_id: from.span_id().to_bytes(),
        flags: from.trace_flags().to_u8(),
    })
}

/// Returns the context of a span of another process.
fn remote(from: TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(from.trace_id),
        SpanId::from_bytes(from.span_id),
        TraceFlags::new(from.flags),
        true,
        TraceState::NONE,
    )
}

/// Sets the name and the attributes of the span of a run, which follow the semantic conventions for messaging.
fn describe(run: &BeginningRun<'_>) {
    run.span
        .record("otel.name", format!("process {}", run.name));
    for (key, value) in [
        ("messaging.system", "throng".to_owned()),
        ("messaging.operation.type", "process".to_owned()),
        ("messaging.destination.name", run.name.to_owned()),
        ("messaging.message.id", run.id.to_string()),
    ] {
        run.span.set_attribute(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawn_is_soon_for_as_long_as_the_time_says() {
        let (parents, now) = (Parents::within(Duration::from_secs(60)), SystemTime::now());
        for (spawned, is_soon) in [
            (None, false),
            (Some(now), true),
            (Some(now - Duration::from_secs(61)), false),
            // By a clock that is ahead.
            (Some(now + Duration::from_secs(10)), true),
        ] {
            assert_eq!(parents.is_soon(spawned), is_soon, "{spawned:?}");
        }
    }
}
