//! [`TraceContext`], which a task carries from its spawn to its runs, and [`Propagate`], which connects it with a tracing system.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::SystemTime;

use tracing::Span;

use super::TaskId;
use super::clock::time_of;
use super::envelope::TraceBytes;
use super::queue::name::QueueName;
use super::store::{Claimed, NewTask};
use crate::unwind::contain;

/// The identity of a span in a trace of several processes, as in the header `traceparent` of W3C Trace Context.
///
/// # Examples
///
/// ```
/// use throng::durable::TraceContext;
///
/// let context = TraceContext { trace_id: [0xab; 16], span_id: [1; 8], flags: 1 };
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), "00-abababababababababababababababab-0101010101010101-01");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace_id: [u8; 16],
    /// The id of the span.
    pub span_id: [u8; 8],
    /// The flags of the trace. Bit 0 is set if the trace is sampled.
    pub flags: u8,
}

impl TraceContext {
    /// Returns `true` if the caller has recorded the trace.
    ///
    /// # Examples
    ///
    /// See [`TraceContext`].
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    fn to_bytes(self) -> TraceBytes {
        let mut bytes = [0; 25];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24] = self.flags;
        bytes
    }

    fn from_bytes(bytes: TraceBytes) -> Self {
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&bytes[..16]);
        span_id.copy_from_slice(&bytes[16..24]);
        Self {
            trace_id,
            span_id,
            flags: bytes[24],
        }
    }
}

/// Shows the context as the value of the header `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (Hex(&self.trace_id), Hex(&self.span_id));
        write!(f, "00-{trace}-{span}-{:02x}", self.flags)
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Connects the spans of spawns and runs with a tracing system: see
/// [`DurableClient::propagating`](super::DurableClient::propagating). The crate `throng-opentelemetry` implements it for OpenTelemetry.
///
/// A panic of a method is contained: the task is then spawned, or runs, without a trace context.
pub trait Propagate: Send + Sync + 'static {
    /// Returns the trace context of the calling thread, to be stored with a task, or `None` if the runs of the task need not know it.
    /// This is called once for each spawn, within the span `durable.spawn`. The context takes 27 bytes of each stored task. A task that is
    /// almost as large as a store accepts, which is 1 MiB, is stored without it.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::propagating`](super::DurableClient::propagating).
    fn current(&self) -> Option<TraceContext>;

    /// Describes the span of a spawn before its tasks are stored. By default, this does nothing.
    fn describe(&self, spawn: &DescribedSpawn<'_>) {
        let _ = spawn;
    }

    /// Prepares the span of a run before it is entered.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::propagating`](super::DurableClient::propagating).
    fn begin(&self, run: &BeginningRun<'_>);
}

/// A spawn of tasks of one type, for [`Propagate::describe`].
#[derive(Debug)]
#[non_exhaustive]
pub struct DescribedSpawn<'a> {
    /// The span `durable.spawn`.
    pub span: &'a Span,
    /// The name of the type of the tasks.
    pub name: &'a str,
    /// The queue of the tasks, as in metrics: the default queue is `(default)`. `None` if they are in several queues.
    pub queue: Option<&'a str>,
    /// The number of tasks.
    pub count: usize,
    /// The id of the task, if the program has spawned a single one.
    pub id: Option<TaskId>,
}

/// A run that begins, for [`Propagate::begin`].
#[derive(Debug)]
#[non_exhaustive]
pub struct BeginningRun<'a> {
    /// The span `durable.run`.
    pub span: &'a Span,
    /// The name of the type of the task.
    pub name: &'a str,
    /// The queue of the task, as in metrics: the default queue is `(default)`.
    pub queue: &'a str,
    /// The id of the task.
    pub id: TaskId,
    /// The time at which the task was spawned, by the clock of the process that has spawned it. Only tasks with [new](TaskId::new) ids have
    /// it.
    pub spawned: Option<SystemTime>,
    /// The context that was stored with the task.
    pub from: Option<TraceContext>,
}

/// The propagation of a client, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Propagation(Option<StdArc<dyn Propagate>>);

impl Propagation {
    pub(crate) fn new(propagate: impl Propagate) -> Self {
        Self(Some(StdArc::new(propagate)))
    }

    /// Returns the context of the caller, as it is stored.
    pub(crate) fn current(&self) -> Option<TraceBytes> {
        let propagate = self.0.as_ref()?;
        let mut current = None;
        contain(|| current = propagate.current());
        current.map(TraceContext::to_bytes)
    }

    /// Describes the span of a spawn of at least one task.
    pub(crate) fn describe(&self, span: &Span, tasks: &[NewTask]) {
        let (Some(propagate), [first, others @ ..]) = (&self.0, tasks) else {
            return;
        };
        let has_one_queue = others.iter().all(|task| task.queue == first.queue);
        contain(|| {
            propagate.describe(&DescribedSpawn {
                span,
                name: &first.name,
                queue: has_one_queue.then(|| first.queue.shown()),
                count: tasks.len(),
                id: others.is_empty().then_some(first.id),
            });
        });
    }

    /// Prepares the span of a run.
    pub(crate) fn begin(
        &self,
        span: &Span,
        (queue, claimed): (&QueueName, &Claimed),
        from: Option<TraceBytes>,
    ) {
        let from = from.map(TraceContext::from_bytes);
        if let Some(from) = from {
            contain(|| {
                span.record("trace_id", tracing::field::display(Hex(&from.trace_id)));
            });
        }
        let Some(propagate) = &self.0 else {
            return;
        };
        contain(|| {
            propagate.begin(&BeginningRun {
                span,
                name: &claimed.name,
                queue: queue.shown(),
                id: claimed.id,
                spawned: claimed.id.created().map(time_of),
                from,
            });
        });
    }
}
