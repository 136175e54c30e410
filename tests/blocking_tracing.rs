//! The spans of tasks of a `BlockingPool`. A binary of its own: the subscriber is the process's.
#![cfg(feature = "tracing")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use futures::FutureExt;
use throng::BlockingPool;
use throng::blocking::Overflow;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What has happened, and on which thread.
#[derive(Debug, PartialEq)]
enum Heard {
    /// The number of the span, its target and name, and its fields.
    New(u64, String, String),
    Enter(u64, String),
    Exit(u64, String),
    Close(u64),
    /// A task has sent this.
    Ran(String),
}

/// Sends what it hears.
struct Listener(Mutex<Sender<Heard>>, AtomicU64);

impl Listener {
    fn hear(&self, heard: Heard) {
        let listener = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The test may have ended.
        listener.send(heard).ok();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tokio::task::blocking"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::from(";"));
        span.record(&mut fields);
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        let metadata = span.metadata();
        let name = format!("{} {}", metadata.target(), metadata.name());
        assert!(span.is_root());
        self.hear(Heard::New(number, name, fields.0));
        Id::from_u64(number)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.hear(Heard::Enter(id.into_u64(), thread_name()));
    }

    fn exit(&self, id: &Id) {
        self.hear(Heard::Exit(id.into_u64(), thread_name()));
    }

    fn try_close(&self, id: Id) -> bool {
        self.hear(Heard::Close(id.into_u64()));
        true
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?};", field.name());
    }
}

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn a_task_runs_in_a_span_that_says_what_it_is() {
    let (send, heard) = mpsc::channel();
    let listener = Listener(Mutex::new(send.clone()), AtomicU64::new(1));
    tracing::subscriber::set_global_default(listener).expect("there is no other");
    let pool = BlockingPool::builder()
        .name("disk")
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .expect("the options are right");
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let permit = || {
        pool.reserve()
            .now_or_never()
            .expect("there is room")
            .expect("it is open")
    };

    for (number, place) in [(1, "pool"), (2, "bulkhead"), (3, "batch"), (4, "permit")] {
        let ran = send.clone();
        let captured = [0_u8; 500];
        let task = move || {
            ran.send(Heard::Ran(format!("{place} {}", captured.len())))
                .expect("the test listens");
        };
        let (line, handle) = match number {
            1 => (line!(), pool.spawn_blocking(task)),
            2 => (line!(), bulkhead.spawn_blocking(task)),
            3 => (line!(), pool.spawn_batch([task]).remove(0)),
            _ => (line!(), permit().spawn_blocking(task)),
        };
        let id = handle.id().to_string();
        handle.blocking_join().expect("it returns");
        let events: Vec<_> = heard.try_iter().collect();
        let Some((Heard::New(span, name, fields), run)) = events.split_first() else {
            panic!("{place}: {events:?}");
        };
        assert_eq!(
            (*span, &**name),
            (number, "tokio::task::blocking runtime.spawn")
        );
        let expected = [
            ";kind=\"blocking\";",
            ";task.name=\"disk\";",
            &format!(";task.id={id};"),
            ";fn=\"blocking_tracing::a_task_runs_in_a_span_that_says_what_it_is::{{closure}}\";",
            ";loc.file=\"tests/blocking_tracing.rs\";",
            &format!(";loc.line={line};"),
            ";loc.col=",
        ];
        for expected in expected {
            assert!(fields.contains(expected), "{place}: {expected} in {fields}");
        }
        let size: usize = {
            let (_, size) = fields.split_once(";original_size.bytes=").expect("a size");
            let (size, _) = size.split_once(';').expect("an end");
            size.parse().expect("a number")
        };
        assert!((500..1_000).contains(&size), "{size}");
        let on = String::from("disk-0");
        let expected = [
            Heard::Enter(number, on.clone()),
            Heard::Ran(format!("{place} 500")),
            Heard::Exit(number, on),
            Heard::Close(number),
        ];
        assert_eq!(run, expected, "{place}");
    }
    drop(pool);
    one_that_replaces_another_was_spawned_where_it_was(&heard);
}

/// The task that is dropped has a span that is closed, and never entered.
fn one_that_replaces_another_was_spawned_where_it_was(heard: &mpsc::Receiver<Heard>) {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .overflow(Overflow::DropOldest)
        .build()
        .expect("the options are right");
    let (finish, finished) = mpsc::channel::<()>();
    let (start, started) = mpsc::channel();
    let busy = pool.spawn_blocking(move || {
        start.send(()).expect("the test listens");
        finished.recv().is_err()
    });
    started.recv().expect("it starts");
    let oldest = pool.spawn_blocking(|| ());
    let (line, newest) = (line!(), pool.spawn_blocking(|| ()));
    drop(finish);
    assert!(busy.blocking_join().expect("it returns"));
    newest.blocking_join().expect("it returns");
    assert!(oldest.is_finished());

    let (mut of_oldest, mut of_newest) = (Vec::new(), Vec::new());
    for heard in heard.try_iter() {
        match &heard {
            Heard::New(6, ..) | Heard::Enter(6, _) | Heard::Close(6) => of_oldest.push(heard),
            Heard::New(7, ..) => of_newest.push(heard),
            _ => {}
        }
    }
    assert!(
        matches!(&*of_oldest, [Heard::New(..), Heard::Close(_)]),
        "{of_oldest:?}"
    );
    let [Heard::New(_, _, fields)] = &*of_newest else {
        panic!("{of_newest:?}");
    };
    let place = format!(";loc.file=\"tests/blocking_tracing.rs\";loc.line={line};");
    assert!(fields.contains(&place), "{fields}");
}
