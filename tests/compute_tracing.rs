//! What a pool reports through `tracing`. A binary of its own: the subscriber is the process's.
#![cfg(feature = "tracing")]

use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use throng::ComputePool;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends what it hears.
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
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard
            .send((*event.metadata().level(), fields.0))
            .expect("the test listens");
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
fn a_panic_that_nobody_hears_of_is_an_event() {
    let (send, heard) = mpsc::channel();
    let listener = Listener(Mutex::new(send));
    tracing::subscriber::set_global_default(listener).expect("there is no other");
    let pool = ComputePool::builder()
        .name("sums")
        .threads(1)
        .build()
        .expect("there are threads");
    pool.execute(|| panic!("seven is {}", 8));
    let (level, fields) = heard
        .recv_timeout(Duration::from_secs(20))
        .expect("it is reported");
    assert_eq!(level, Level::ERROR);
    assert!(fields.contains("pool=\"sums\";"), "{fields}");
    assert!(fields.contains("seven is 8"), "{fields}");
}
