//! Models of the stream: completions against their reader, its end, and the bounds.

use std::task::{Context, Waker};

use futures_core::Stream;
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::{CompletionStream, Submitter};
use crate::join::{Spawn, Work, sealed};

type Ends = (Submitter<Arc<()>, u32>, CompletionStream<Arc<()>, u32>);

fn ends() -> Ends {
    CompletionStream::builder().build()
}

/// Runs each job on a thread of its own.
struct OnThread;

impl sealed::Sealed for OnThread {}
impl Spawn for OnThread {
    fn spawn(&self, work: Work) -> Result<(), Work> {
        thread::spawn(move || work.run());
        Ok(())
    }
}

#[test]
fn loom_complete_against_read() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let completer = thread::spawn(move || slot.complete(Arc::new(())));
        let completed = block_on(done.next()).unwrap();
        assert!(completed.tag == 1 && completed.outcome.is_ok());
        completer.join().unwrap();
        assert_eq!(jobs.in_flight(), 0);
    });
}

/// Two completions, one of them lost, against a reader that has polled before.
#[test]
fn loom_two_completions_against_read_to_the_end() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let (one, two) = (
            block_on(jobs.slot(1)).unwrap(),
            block_on(jobs.slot(2)).unwrap(),
        );
        drop(jobs);
        let first = thread::spawn(move || one.complete(Arc::new(())));
        let second = thread::spawn(move || drop(two));
        let mut tags = Vec::new();
        while let Some(completed) = block_on(done.next()) {
            assert_eq!(completed.outcome.is_ok(), completed.tag == 1);
            tags.push(completed.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, [1, 2]);
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// A reader that waits is told of the end.
#[test]
fn loom_close_against_read() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let closer = thread::spawn(move || drop(jobs));
        assert!(block_on(done.next()).is_none());
        closer.join().unwrap();
    });
}

/// A submitter waits for room while the stream is closed: it is refused, or its item comes before the
/// end. The end does not wait for it.
#[test]
fn loom_waiting_for_room_against_close() {
    loom::model(|| {
        let (jobs, mut done) = CompletionStream::<Arc<()>, u32>::builder()
            .max_running(1)
            .max_outstanding(2)
            .build();
        let slot = block_on(jobs.slot(1)).unwrap();
        let waiter = {
            let jobs = jobs.clone();
            // It has a place among the outstanding, and waits for one among the running.
            thread::spawn(move || block_on(jobs.slot(2)).is_ok())
        };
        drop(slot);
        jobs.close();
        let mut read = 0;
        while block_on(done.next()).is_some() {
            read += 1;
        }
        // A slot that was granted is dropped by the thread: lost, which is an item.
        assert_eq!(read, 1 + u32::from(waiter.join().unwrap()));
    });
}

/// Reading makes room, and wakes who waits for it.
#[test]
fn loom_read_against_waiting_for_room() {
    loom::model(|| {
        let (jobs, mut done) = CompletionStream::<Arc<()>, u32>::builder()
            .max_running(1)
            .max_outstanding(1)
            .build();
        block_on(jobs.slot(1)).unwrap().complete(Arc::new(()));
        let waiter = thread::spawn(move || {
            let slot = block_on(jobs.slot(2)).unwrap();
            slot.complete(Arc::new(()));
        });
        assert_eq!(block_on(done.next()).unwrap().tag, 1);
        assert_eq!(block_on(done.next()).unwrap().tag, 2);
        assert!(block_on(done.next()).is_none());
        waiter.join().unwrap();
    });
}

/// What arrives while the reader goes is dropped at once, although submitters still hold the outlet.
#[test]
fn loom_complete_against_drop() {
    loom::model(|| {
        let (jobs, done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let output = Arc::new(());
        let completer = {
            let output = output.clone();
            thread::spawn(move || slot.complete(output))
        };
        drop(done);
        completer.join().unwrap();
        assert_eq!(Arc::strong_count(&output), 1);
        assert!(block_on(jobs.slot(2)).is_err());
    });
}

/// A job is run or aborted, and arrives or is dropped.
#[test]
fn loom_run_against_drop() {
    loom::model(|| {
        let (jobs, done) = ends();
        let captured = Arc::new(());
        let output = captured.clone();
        block_on(jobs.submit_blocking(&OnThread, 1, move || output))
            .ok()
            .unwrap();
        drop(done);
        drop(jobs);
    });
}

/// Submitting while the reader goes: refused, or accepted and told that nobody wants it.
#[test]
fn loom_submit_against_drop() {
    loom::model(|| {
        let (jobs, done) = ends();
        let submitter = thread::spawn(move || block_on(jobs.slot(1)));
        drop(done);
        match submitter.join().unwrap() {
            Ok(slot) => {
                assert!(slot.is_aborted());
                slot.complete(Arc::new(()));
            }
            Err(refused) => assert!(refused.is_closed()),
        }
    });
}

/// A reader that has left another waker before.
#[test]
fn loom_complete_against_a_change_of_readers() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let completer = thread::spawn(move || slot.complete(Arc::new(())));
        let mut other = Context::from_waker(Waker::noop());
        if std::pin::Pin::new(&mut done)
            .poll_next(&mut other)
            .is_pending()
        {
            assert!(block_on(done.next()).is_some());
        }
        completer.join().unwrap();
    });
}
