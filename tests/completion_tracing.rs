//! The warning about a submission that waits while the stream is not polled.
//!
//! A binary of its own, because the subscriber is that of the whole process: the warning comes from the timer thread.

mod support;

use std::fmt;
use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use throng::CompletionStream;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use self::support::{block_on, poll, wait_until};

/// The warnings so far.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("throng::completion")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        WARNINGS.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{value:?}");
    }
}

fn warnings() -> usize {
    WARNINGS.lock().unwrap().len()
}

#[test]
fn a_submission_that_waits_while_nothing_polls_the_stream_warns_once() {
    tracing::subscriber::set_global_default(Recorder).unwrap();
    let (jobs, mut done) = CompletionStream::builder()
        .max_outstanding(1)
        .build()
        .unwrap();
    block_on(jobs.slot(0)).unwrap().complete(());

    // The task that should read waits for room.
    let start = Instant::now();
    let mut waits = pin!(jobs.slot(1));
    assert!(poll(&mut waits).is_pending());
    wait_until("it warns", || warnings() == 1);
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(WARNINGS.lock().unwrap()[0].contains("`reserve`"));
    // Not once a second.
    std::thread::sleep(Duration::from_millis(2_100));
    assert_eq!(warnings(), 1);
    assert!(done.try_next().is_some());
    block_on(waits).unwrap().complete(());

    // A reader that polls, or waits, is not to blame.
    done.try_next();
    let open = block_on(jobs.slot(2)).unwrap();
    assert!(poll(&mut pin!(done.next())).is_pending());
    let mut waits = pin!(jobs.slot(3));
    assert!(poll(&mut waits).is_pending());
    std::thread::sleep(Duration::from_millis(2_100));
    assert_eq!(warnings(), 1);
    drop(open);

    // Its next wait is.
    wait_until("it warns again", || warnings() == 2);
}
