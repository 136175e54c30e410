//! Trace contexts of tasks, and a subscriber of `tracing` that panics, which ends neither a spawn, nor a run, nor an executor.
//!
//! A binary of its own, since that subscriber is the one of the whole process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    BeginningRun, DurableClient, DurableExecutor, DurableTask, MemoryStore, Propagate, Run,
    TaskContext, TaskError, TraceContext,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// A task whose first attempt fails.
#[derive(Serialize, Deserialize)]
struct Twice;

impl DurableTask for Twice {
    const NAME: &'static str = "twice";
    type Output = u32;
}

impl Run<()> for Twice {
    async fn run(self, cx: TaskContext<()>) -> Result<u32, TaskError> {
        tokio::task::yield_now().await;
        match cx.attempt() {
            1 => Err(TaskError::retry("not yet")),
            attempt => Ok(attempt),
        }
    }
}

/// The method that panics, and the number of its panics.
static PANICKING: Mutex<&str> = Mutex::new("");
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn call(method: &str) {
    let panicking = *PANICKING.lock().unwrap_or_else(PoisonError::into_inner);
    if panicking == method {
        PANICS.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose: {method}");
    }
}

struct Panicking;

impl Subscriber for Panicking {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().starts_with("throng::durable");
        if is_ours {
            call("enabled");
        }
        is_ours
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        call("new_span");
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        call("record");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        call("event");
    }

    fn enter(&self, _: &Id) {
        call("enter");
    }

    fn exit(&self, _: &Id) {
        call("exit");
    }

    fn try_close(&self, _: Id) -> bool {
        call("try_close");
        true
    }
}

impl Propagate for Panicking {
    fn current(&self) -> Option<TraceContext> {
        call("current");
        Some(CONTEXT)
    }

    fn begin(&self, _: &BeginningRun<'_>) {
        call("begin");
    }
}

/// A task that returns the size of its text.
#[derive(Serialize, Deserialize)]
struct Measure(String);

impl DurableTask for Measure {
    const NAME: &'static str = "measure";
    type Output = usize;
}

impl Run<()> for Measure {
    async fn run(self, _: TaskContext<()>) -> Result<usize, TaskError> {
        Ok(self.0.len())
    }
}

/// Sends the contexts of runs.
struct Sends(mpsc::UnboundedSender<Option<TraceContext>>);

const CONTEXT: TraceContext = TraceContext {
    trace_id: [1; 16],
    span_id: [2; 8],
    flags: 1,
};

impl Propagate for Sends {
    fn current(&self) -> Option<TraceContext> {
        Some(CONTEXT)
    }

    fn begin(&self, run: &BeginningRun<'_>) {
        self.0.send(run.from).unwrap();
    }
}

#[tokio::test]
async fn a_task_that_has_no_room_for_its_context_is_stored_without_it() {
    let (sender, mut contexts) = mpsc::unbounded_channel();
    let client = DurableClient::open(MemoryStore::new()).propagating(Sends(sender));
    let mut builder = DurableExecutor::builder::<()>(client.clone());
    let _executor = builder.register::<Measure>().start(()).await.unwrap();
    // Two quotes, and the version of the envelope.
    const MAX: usize = (1 << 20) - 3;
    for (len, context) in [(7, Some(CONTEXT)), (MAX, None)] {
        let handle = client.spawn(Measure("x".repeat(len))).await.unwrap();
        assert_eq!(handle.await.unwrap(), len);
        assert_eq!(contexts.recv().await, Some(context));
    }
}

async fn run_some() {
    let client = DurableClient::open(MemoryStore::new()).propagating(Panicking);
    let retry = Retry::exponential().base(Duration::from_millis(1));
    let executor = DurableExecutor::builder::<()>(client.clone())
        .register::<Twice>()
        .retry(retry)
        .start(())
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(client.spawn(Twice).await.unwrap().await.unwrap(), 2);
        let handles = client.spawn_all([Twice, Twice]).await.unwrap();
        for handle in handles {
            assert_eq!(handle.await.unwrap(), 2);
        }
    }
    let metrics = executor.metrics();
    assert_eq!((metrics.retried, metrics.panicked), (6, 0), "{metrics:?}");
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_subscriber_that_panics_ends_nothing() {
    tracing::subscriber::set_global_default(Panicking).unwrap();
    for method in [
        "enabled",
        "new_span",
        "record",
        "event",
        "enter",
        "exit",
        "try_close",
        "current",
        "begin",
    ] {
        *PANICKING.lock().unwrap_or_else(PoisonError::into_inner) = method;
        let before = PANICS.load(Ordering::Relaxed);
        let ran = timeout(Duration::from_secs(20), run_some()).await;
        assert!(ran.is_ok(), "{method}: the executor has ended");
        assert!(PANICS.load(Ordering::Relaxed) > before, "{method}");
    }
}
