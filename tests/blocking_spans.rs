//! The `tracing` spans of tasks.
//!
//! A binary of its own: while a thread without a subscriber runs a task for the first time, `tracing` may not yet record
//! the spans of a thread that has one. For the same reason, the tests take turns.

#[path = "blocking/pools.rs"]
#[allow(dead_code, reason = "the other tests of the pool use the rest")]
mod pools;
mod support;

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use futures::FutureExt;
use throng::BlockingPool;
use throng::blocking::Overflow;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

use self::pools::{Busy, output};
use self::support::thread_name;

/// What the subscriber has recorded, and on which thread.
#[derive(Debug, PartialEq)]
enum Recorded {
    New {
        span: u64,
        parent: Option<u64>,
        /// The target and the name.
        name: String,
        fields: String,
    },
    Enter(u64, String),
    Exit(u64, String),
    Close(u64),
    /// Sent by a task.
    Ran(String),
}

/// Records the spans of tasks, unless that is turned off, and those of the tests.
struct Recorder {
    records: Mutex<Sender<Recorded>>,
    spans: AtomicU64,
    has_task_spans: bool,
}

thread_local! {
    /// The spans that the thread is in, and their metadata.
    static CURRENT: RefCell<Vec<(u64, &'static Metadata<'static>)>> = const { RefCell::new(Vec::new()) };
}

impl Recorder {
    fn record(&self, recorded: Recorded) {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        // The test may have ended.
        records.send(recorded).ok();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "caller"
            || self.has_task_spans && metadata.target() == "tokio::task::blocking"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::from(";"));
        span.record(&mut fields);
        let number = self.spans.fetch_add(1, Ordering::Relaxed);
        let metadata = span.metadata();
        assert!(span.is_contextual());
        if metadata.target() != "caller" {
            self.record(Recorded::New {
                span: number,
                parent: CURRENT.with_borrow(|current| current.last().map(|(span, _)| *span)),
                name: format!("{} {}", metadata.target(), metadata.name()),
                fields: fields.0,
            });
        }
        METADATA.lock().unwrap().push((number, metadata));
        Id::from_u64(number)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        let number = id.into_u64();
        let metadata = METADATA.lock().unwrap();
        let metadata = metadata.iter().rev().find(|(span, _)| *span == number);
        CURRENT.with_borrow_mut(|current| current.push(*metadata.expect("a known span")));
        self.record(Recorded::Enter(number, thread_name()));
    }

    fn exit(&self, id: &Id) {
        CURRENT.with_borrow_mut(Vec::pop);
        self.record(Recorded::Exit(id.into_u64(), thread_name()));
    }

    fn try_close(&self, id: Id) -> bool {
        self.record(Recorded::Close(id.into_u64()));
        true
    }

    fn current_span(&self) -> Current {
        CURRENT.with_borrow(|current| match current.last() {
            Some((span, metadata)) => Current::new(Id::from_u64(*span), metadata),
            None => Current::none(),
        })
    }
}

/// The metadata of all spans, by number.
static METADATA: Mutex<Vec<(u64, &'static Metadata<'static>)>> = Mutex::new(Vec::new());

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?};", field.name());
    }
}

/// Runs a test with a recorder on this thread. The numbers of its spans begin with `first`.
fn recorded(
    first: u64,
    has_task_spans: bool,
    test: impl FnOnce(&Sender<Recorded>, &Receiver<Recorded>),
) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (records, recorded) = mpsc::channel();
    let recorder = Recorder {
        records: Mutex::new(records.clone()),
        spans: AtomicU64::new(first),
        has_task_spans,
    };
    tracing::subscriber::with_default(recorder, || test(&records, &recorded));
}

fn pool(overflow: Overflow, capacity: usize) -> BlockingPool {
    BlockingPool::builder()
        .name("disk")
        .max_threads(1)
        .queue_capacity(capacity)
        .overflow(overflow)
        .build()
        .unwrap()
}

#[test]
fn a_task_runs_in_a_span_that_identifies_it() {
    recorded(100, true, |records, recorded| {
        let pool = pool(Overflow::Reject, 0);
        let bulkhead = pool.bulkhead(1, 1).unwrap();
        let permit = || pool.reserve().now_or_never().expect("at once").unwrap();
        for (number, way) in (100..).zip(["pool", "bulkhead", "batch", "permit"]) {
            let ran = records.clone();
            let captured = [0_u8; 500];
            let task = move || {
                ran.send(Recorded::Ran(format!("{way} {}", captured.len())))
                    .unwrap();
            };
            let (line, handle) = match way {
                "pool" => (line!(), pool.spawn_blocking(task)),
                "bulkhead" => (line!(), bulkhead.spawn_blocking(task)),
                "batch" => (line!(), pool.spawn_batch([task]).remove(0)),
                _ => (line!(), permit().spawn_blocking(task)),
            };
            let id = handle.id().to_string();
            output(handle);
            let records: Vec<_> = recorded.try_iter().collect();
            let Some((
                Recorded::New {
                    span,
                    parent,
                    name,
                    fields,
                },
                run,
            )) = records.split_first()
            else {
                panic!("{way}: {records:?}");
            };
            assert_eq!((*span, *parent), (number, None));
            assert_eq!(name, "tokio::task::blocking runtime.spawn");
            for expected in [
                ";kind=\"blocking\";",
                ";task.name=\"disk\";",
                &format!(";task.id={id};"),
                ";fn=\"blocking_spans::a_task_runs_in_a_span_that_identifies_it::",
                ";loc.file=\"tests/blocking_spans.rs\";",
                &format!(";loc.line={line};"),
                ";loc.col=",
            ] {
                assert!(fields.contains(expected), "{way}: {expected} in {fields}");
            }
            let (_, size) = fields.split_once(";original_size.bytes=").expect("a size");
            let (size, _) = size.split_once(';').expect("an end");
            let size: usize = size.parse().expect("a number");
            assert!((500..1_000).contains(&size), "{size}");
            let on = String::from("disk-0");
            let expected = [
                Recorded::Enter(number, on.clone()),
                Recorded::Ran(format!("{way} 500")),
                Recorded::Exit(number, on),
                Recorded::Close(number),
            ];
            assert_eq!(run, expected, "{way}");
        }
    });
}

/// The span of the dropped task is closed, and never entered.
#[test]
fn a_task_that_replaces_another_has_the_location_of_its_caller() {
    recorded(200, true, |_, recorded| {
        let pool = pool(Overflow::DropOldest, 1);
        let busy = Busy::keep(&pool, 1);
        let oldest = pool.spawn_blocking(|| ());
        let (line, newest) = (line!(), pool.spawn_blocking(|| ()));
        busy.release();
        output(newest);
        assert!(oldest.is_finished());
        let records: Vec<_> = recorded.try_iter().collect();
        let of = |number| {
            records.iter().filter(move |record| match record {
                Recorded::New { span, .. } => *span == number,
                Recorded::Enter(span, _) | Recorded::Exit(span, _) | Recorded::Close(span) => {
                    *span == number
                }
                Recorded::Ran(_) => false,
            })
        };
        assert_eq!(of(201).count(), 2, "{records:?}");
        let Some(Recorded::New { fields, .. }) = of(202).next() else {
            panic!("{records:?}");
        };
        let location = format!(";loc.file=\"tests/blocking_spans.rs\";loc.line={line};");
        assert!(fields.contains(&location), "{fields}");
    });
}

#[test]
fn the_span_of_a_task_is_a_child_of_the_caller_s() {
    recorded(300, true, |_, recorded| {
        let pool = pool(Overflow::Reject, 1);
        let caller = tracing::info_span!(target: "caller", "request");
        output(caller.in_scope(|| pool.spawn_blocking(|| ())));
        let parents = recorded.try_iter().filter_map(|record| match record {
            Recorded::New { span, parent, .. } => Some((span, parent)),
            _ => None,
        });
        assert_eq!(parents.collect::<Vec<_>>(), [(301, Some(300))]);
    });
}

/// A subscriber that filters the spans of tasks out still sees the caller's span around them.
#[test]
fn without_a_span_of_its_own_a_task_runs_in_the_caller_s() {
    recorded(400, false, |_, recorded| {
        let pool = pool(Overflow::Reject, 1);
        let caller = tracing::info_span!(target: "caller", "request");
        output(caller.in_scope(|| pool.spawn_blocking(|| ())));
        // Outside of the span, nothing is entered.
        output(pool.spawn_blocking(|| ()));
        let on = String::from("disk-0");
        let entered: Vec<_> = recorded.try_iter().collect();
        let on_thread = |record: &&Recorded| matches!(record, Recorded::Enter(_, thread) | Recorded::Exit(_, thread) if *thread == on);
        let entered: Vec<_> = entered.iter().filter(on_thread).collect();
        assert_eq!(
            entered,
            [
                &Recorded::Enter(400, on.clone()),
                &Recorded::Exit(400, on.clone())
            ]
        );
    });
}
