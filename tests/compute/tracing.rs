//! Events of `tracing`. The subscriber is that of the pool's threads only, so other tests do not see it.

use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use throng::ComputePool;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends each event.
struct Listener(Mutex<Sender<(Level, String)>>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("throng")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender
            .send((*event.metadata().level(), fields.0))
            .expect("the test receives");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?};", field.name());
    }
}

#[test]
fn the_panic_of_a_task_without_a_handle_is_an_event() {
    let (send, events) = mpsc::channel();
    let listener = Arc::new(Listener(Mutex::new(send)));
    let pool = ComputePool::builder()
        .name("sums")
        .threads(1)
        .on_thread_start(move |_| {
            std::mem::forget(tracing::subscriber::set_default(Arc::clone(&listener)));
        })
        .build()
        .expect("there are threads");
    pool.execute(|| panic!("seven is {}", 8));
    let (level, fields) = events
        .recv_timeout(Duration::from_secs(20))
        .expect("it is reported");
    assert_eq!(level, Level::ERROR);
    assert!(fields.contains("pool=\"sums\";"), "{fields}");
    assert!(fields.contains("seven is 8"), "{fields}");
}
