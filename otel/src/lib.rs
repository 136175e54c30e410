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
//! The crate throng emits the spans, with the fields in the table, through the crate `tracing`. This crate sets their names and the
//! attributes of the semantic conventions for messaging. The conventions are in development, so the names of attributes may change in later
//! versions.
//!
//! | span | level | name | fields |
//! | --- | --- | --- | --- |
//! | `durable.spawn` | debug | `send {task.name}` | `otel.kind`, `store`, `task.name`, `task.count`, and `task.id` and `task.queue` of a single task |
//! | `durable.run` | info | `process {task.name}` | `otel.kind`, `task.name`, `task.queue`, `task.id`, `task.attempt`, `task.crashes`, `task.fencing_token`, `task.outcome`, `trace_id` of the spawn |
//!
//! | attribute | value |
//! | --- | --- |
//! | `messaging.system` | `throng` |
//! | `messaging.operation.name`, `messaging.operation.type` | `send` or `process` |
//! | `messaging.destination.name` | the queue, as in the metrics of throng: the default queue is `(default)`. Absent if one spawn stores tasks in several queues |
//! | `messaging.message.id` | the id of the task. Absent if one spawn stores several tasks |
//! | `messaging.batch.message_count` | the number of tasks, if one spawn stores several tasks |
//!
//! The conventions recommend the destination in the name of a span. The names have the type of the task instead, since most programs have
//! many types in one queue, and tracing systems list and compare spans by their names.
//!
//! A run that fails has the status `error`. The fields `task.id` and `trace_id` are in each line that a subscriber such as that of
//! `tracing-subscriber` logs during a run, even without an exporter of traces.

use std::time::{Duration, SystemTime};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use throng::durable::{BeginningRun, DescribedSpawn, Propagate, TraceContext};
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

    fn describe(&self, spawn: &DescribedSpawn<'_>) {
        describe_spawn(spawn);
    }

    fn begin(&self, run: &BeginningRun<'_>) {
        describe_run(run);
        if let Some(from) = run.from {
            run.span.add_link(remote(from));
        }
    }
}

impl Propagate for Parents {
    fn current(&self) -> Option<TraceContext> {
        current()
    }

    fn describe(&self, spawn: &DescribedSpawn<'_>) {
        describe_spawn(spawn);
    }

    fn begin(&self, run: &BeginningRun<'_>) {
        describe_run(run);
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

/// Sets the name and the attributes of the span of a spawn.
fn describe_spawn(spawn: &DescribedSpawn<'_>) {
    describe(spawn.span, "send");
    // The span has begun, since its tasks store its context. So a field would no longer change its name.
    let context = spawn.span.context();
    context.span().update_name(format!("send {}", spawn.name));
    if let Some(queue) = spawn.queue {
        spawn
            .span
            .set_attribute("messaging.destination.name", queue.to_owned());
    }
    match spawn.id {
        Some(id) => spawn
            .span
            .set_attribute("messaging.message.id", id.to_string()),
        None => {
            let count = i64::try_from(spawn.count).unwrap_or(i64::MAX);
            spawn
                .span
                .set_attribute("messaging.batch.message_count", count);
        }
    }
}

/// Sets the name and the attributes of the span of a run.
fn describe_run(run: &BeginningRun<'_>) {
    describe(run.span, "process");
    // The span must not begin before it has a parent.
    run.span
        .record("otel.name", format!("process {}", run.name));
    for (key, value) in [
        ("messaging.destination.name", run.queue.to_owned()),
        ("messaging.message.id", run.id.to_string()),
    ] {
        run.span.set_attribute(key, value);
    }
}

/// Sets the attributes of the operation.
fn describe(span: &Span, operation: &'static str) {
    for (key, value) in [
        ("messaging.system", "throng"),
        ("messaging.operation.name", operation),
        ("messaging.operation.type", operation),
    ] {
        span.set_attribute(key, value);
    }
}

/// Compiles the set-up in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
