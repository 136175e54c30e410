//! Models of the stream: completions against the reader, the end, and the limits.

use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use futures_core::Stream;
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::shared::Shared;
use super::{CompletionStream, Submitter};
use crate::join::{JoinHandle, RunContext, Spawn, Work, sealed};
use crate::task::{Task, Thunk};

type Ends = (Submitter<Arc<()>, u32>, CompletionStream<Arc<()>, u32>);

fn ends() -> Ends {
    CompletionStream::builder().build().unwrap()
}

/// Completions are spilled as soon as one is unread.
fn ends_that_spill() -> Ends {
    CompletionStream::new(Shared::new(8, 8, 1))
}

/// Runs each job on a thread of its own.
struct OnThread;

impl sealed::Sealed for OnThread {}
impl Spawn for OnThread {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
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

/// A waiting reader sees the end.
#[test]
fn loom_close_against_read() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let closer = thread::spawn(move || drop(jobs));
        assert!(block_on(done.next()).is_none());
        closer.join().unwrap();
    });
}

/// A submitter waits for room while the stream is closed: it gets an error, or its item comes before the
/// end. The end does not wait for it.
#[test]
fn loom_waiting_for_room_against_close() {
    loom::model(|| {
        let (jobs, mut done) = CompletionStream::<Arc<()>, u32>::builder()
            .max_running(1)
            .max_outstanding(2)
            .build()
            .unwrap();
        let slot = block_on(jobs.slot(1)).unwrap();
        let waiter = {
            let jobs = jobs.clone();
            // It has a permit for `max_outstanding`, and waits for one for `max_running`.
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

/// Reading makes room, and wakes a submitter that waits.
#[test]
fn loom_read_against_waiting_for_room() {
    loom::model(|| {
        let (jobs, mut done) = CompletionStream::<Arc<()>, u32>::builder()
            .max_running(1)
            .max_outstanding(1)
            .build()
            .unwrap();
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

/// A reader parks, and then takes a completion without parking again. The next one wakes it when it has parked for
/// the second time.
#[test]
fn loom_two_completions_against_a_reader_that_parks_twice() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let (one, two) = (
            block_on(jobs.slot(1)).unwrap(),
            block_on(jobs.slot(2)).unwrap(),
        );
        let mut other = Context::from_waker(Waker::noop());
        let polled = Pin::new(&mut done).poll_next(&mut other);
        assert!(polled.is_pending());
        let completer = thread::spawn(move || {
            one.complete(Arc::new(()));
            two.complete(Arc::new(()));
        });
        assert_eq!(block_on(done.next()).unwrap().tag, 1);
        assert_eq!(block_on(done.next()).unwrap().tag, 2);
        completer.join().unwrap();
    });
}

/// A completion that arrives while the stream is dropped is dropped at once, although submitters hold the queue.
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

/// A job runs or is aborted, and its completion arrives or is dropped.
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

/// A submission while the stream is dropped gets an error, or an aborted slot.
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
            Err(closed) => assert_eq!(closed.into_inner(), 1),
        }
    });
}

/// The reader has left another waker before.
#[test]
fn loom_complete_against_a_change_of_readers() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let completer = thread::spawn(move || slot.complete(Arc::new(())));
        let mut other = Context::from_waker(Waker::noop());
        if Pin::new(&mut done).poll_next(&mut other).is_pending() {
            assert!(block_on(done.next()).is_some());
        }
        completer.join().unwrap();
    });
}

/// A task ends while its handle is bound to a slot: the later of the two completes it.
#[test]
fn loom_end_of_a_task_against_its_slot() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let output = Arc::new(());
        let value = output.clone();
        let (task, join_ref) = Task::joinable(Thunk(move || value));
        let runner = thread::spawn(move || task.run(&mut RunContext::default()));
        JoinHandle::waiting(join_ref).complete(slot);
        assert!(block_on(done.next()).unwrap().outcome.is_ok());
        runner.join().unwrap();
        // Neither the waker nor the cell is leaked.
        assert_eq!(Arc::strong_count(&output), 1);
    });
}

/// An abort by id while the job runs and is read.
#[test]
fn loom_abort_by_id_against_run_and_read() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let output = Arc::new(());
        let value = output.clone();
        let submitted = block_on(jobs.submit_blocking(&OnThread, 1, move || value));
        let id = submitted.ok().unwrap();
        jobs.abort(id);
        let completed = block_on(done.next()).unwrap();
        assert_eq!(completed.id, id);
        drop(completed);
        assert!(!jobs.abort(id));
        assert_eq!(jobs.in_flight(), 0);
    });
}

/// The stream is dropped while a future is polled in place, without a runtime. One of the two drops the future.
#[test]
fn loom_poll_in_place_against_drop() {
    loom::model(|| {
        let (jobs, done) = CompletionStream::<(), u32>::builder()
            .poll_in_place(true)
            .build()
            .unwrap();
        let captured = Arc::new(());
        let job = {
            let captured = captured.clone();
            async move {
                let _captured = captured;
                std::future::pending().await
            }
        };
        let submitter = thread::spawn(move || block_on(jobs.submit(1, job)).is_ok());
        drop(done);
        submitter.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}

/// A job that is ready where it is submitted arrives at a reader that may be about to wait.
#[test]
fn loom_ready_in_place_against_read() {
    loom::model(|| {
        let (jobs, mut done) = CompletionStream::<Arc<()>, u32>::builder()
            .poll_in_place(true)
            .build()
            .unwrap();
        let submitter = thread::spawn(move || {
            let submitted = block_on(jobs.submit(1, async { Arc::new(()) }));
            assert!(submitted.is_ok());
        });
        assert!(block_on(done.next()).unwrap().outcome.is_ok());
        assert!(block_on(done.next()).is_none());
        submitter.join().unwrap();
    });
}

/// The item comes whether the slot is aborted or completed first.
#[test]
fn loom_abort_against_complete() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let id = slot.id();
        let completer = thread::spawn(move || slot.run(|| Arc::new(())));
        let aborted = jobs.abort(id);
        let outcome = block_on(done.next()).unwrap().outcome;
        assert!(outcome.is_ok() || aborted);
        assert!(done.try_next().is_none());
        completer.join().unwrap();
    });
}

/// The item is read and released while another thread has found the job and is about to abort it.
#[test]
fn loom_abort_against_release() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let id = slot.id();
        let output = Arc::new(());
        slot.complete(output.clone());
        let aborter = thread::spawn(move || assert!(!jobs.abort(id)));
        assert!(done.try_next().unwrap().outcome.is_ok());
        assert_eq!(Arc::strong_count(&output), 1);
        aborter.join().unwrap();
        assert!(block_on(done.next()).is_none());
    });
}

/// Another job gets the key of the job that is aborted: it is not aborted.
#[test]
fn loom_abort_against_the_next_job_with_its_key() {
    loom::model(|| {
        let (jobs, mut done) = CompletionStream::<Arc<()>, u32>::builder()
            .max_running(1)
            .max_outstanding(1)
            .build()
            .unwrap();
        let slot = block_on(jobs.slot(1)).unwrap();
        let id = slot.id();
        slot.complete(Arc::new(()));
        let aborter = {
            let jobs = jobs.clone();
            thread::spawn(move || jobs.abort(id))
        };
        assert_eq!(done.try_next().unwrap().tag, 1);
        let next = jobs.try_slot(2).unwrap();
        assert!(!aborter.join().unwrap());
        assert!(!next.is_aborted());
        next.complete(Arc::new(()));
        assert_eq!(done.try_next().unwrap().tag, 2);
    });
}

/// A slot that was open before is aborted, and all items come.
#[test]
fn loom_abort_all_against_submit() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let first = block_on(jobs.slot(1)).unwrap();
        let submitter = {
            let jobs = jobs.clone();
            thread::spawn(move || drop(block_on(jobs.slot(2)).unwrap()))
        };
        assert!((1..=2).contains(&jobs.abort_all()));
        assert!(first.is_aborted());
        drop((first, jobs));
        let mut read = 0;
        while block_on(done.next()).is_some() {
            read += 1;
        }
        assert_eq!(read, 2);
        submitter.join().unwrap();
    });
}

/// A `try_next` between two polls loses no wake-up.
#[test]
fn loom_try_next_after_a_pending_poll() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slots = [1, 2].map(|tag| block_on(jobs.slot(tag)).unwrap());
        drop(jobs);
        let completer = thread::spawn(move || {
            for slot in slots {
                slot.complete(Arc::new(()));
            }
        });
        let mut read = 0;
        let mut noop = Context::from_waker(Waker::noop());
        if Pin::new(&mut done).poll_next(&mut noop).is_ready() {
            read += 1;
        }
        read += u32::from(done.try_next().is_some());
        while block_on(done.next()).is_some() {
            read += 1;
        }
        assert_eq!(read, 2);
        completer.join().unwrap();
    });
}

/// The last submitter is dropped while a completion arrives: the completion comes first, then the end.
#[test]
fn loom_close_against_complete_and_read() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let slot = block_on(jobs.slot(1)).unwrap();
        let completer = thread::spawn(move || slot.complete(Arc::new(())));
        let closer = thread::spawn(move || drop(jobs));
        assert_eq!(block_on(done.next()).unwrap().tag, 1);
        assert!(block_on(done.next()).is_none());
        completer.join().unwrap();
        closer.join().unwrap();
    });
}

/// A completion wakes the reader, and is then spilled by the next one of its thread. Both come in order, and the first
/// comes before a completion that the reader makes after the wake-up.
#[test]
fn loom_spilled_completions_are_not_overtaken() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    loom::model(|| {
        let (jobs, mut done) = ends_that_spill();
        let [third, first, second] = [3, 1, 2].map(|tag| block_on(jobs.slot(tag)).unwrap());
        let woken = std::sync::Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut done).poll_next(&mut cx).is_pending());
        let completer = thread::spawn(move || {
            first.complete(Arc::new(()));
            second.complete(Arc::new(()));
        });
        while !woken.0.load(Ordering::Acquire) {
            thread::yield_now();
        }
        third.complete(Arc::new(()));
        let tags = [(); 3].map(|()| block_on(done.next()).unwrap().tag);
        assert!(tags == [1, 2, 3] || tags == [1, 3, 2], "{tags:?}");
        completer.join().unwrap();
    });
}

/// Two threads spill while the reader reads to the end.
#[test]
fn loom_spill_against_read() {
    loom::model(|| {
        let (jobs, mut done) = ends_that_spill();
        let slots = [0, 1, 2].map(|tag| block_on(jobs.slot(tag)).unwrap());
        drop(jobs);
        let [zeroth, first, second] = slots;
        zeroth.complete(Arc::new(()));
        let completers =
            [first, second].map(|slot| thread::spawn(move || slot.complete(Arc::new(()))));
        let mut tags = Vec::new();
        while let Some(completed) = block_on(done.next()) {
            assert!(completed.outcome.is_ok());
            tags.push(completed.tag);
        }
        assert_eq!(tags[0], 0);
        tags.sort_unstable();
        assert_eq!(tags, [0, 1, 2]);
        let _ = completers.map(|completer| completer.join().unwrap());
    });
}

/// The reader takes the spill while another thread spills: the completions keep their order.
#[test]
fn loom_spill_while_the_reader_takes() {
    let mut model = loom::model::Builder::new();
    // The order can only be broken with three preemptions.
    model.preemption_bound = model.preemption_bound.map(|bound| bound.max(3));
    model.check(|| {
        let (jobs, mut done) = ends_that_spill();
        let slots = [0, 1, 2, 3].map(|tag| block_on(jobs.slot(tag)).unwrap());
        let [zeroth, first, second, third] = slots;
        zeroth.complete(Arc::new(()));
        first.complete(Arc::new(()));
        let completer = thread::spawn(move || {
            second.complete(Arc::new(()));
            third.complete(Arc::new(()));
        });
        let tags = [(); 4].map(|()| block_on(done.next()).unwrap().tag);
        assert_eq!(tags, [0, 1, 2, 3]);
        completer.join().unwrap();
    });
}

/// The stream is dropped while completions are spilled: none is leaked.
#[test]
fn loom_spill_against_drop() {
    loom::model(|| {
        let (jobs, mut done) = ends_that_spill();
        let slots = [0, 1].map(|tag| block_on(jobs.slot(tag)).unwrap());
        let output = Arc::new(());
        let completer = {
            let output = Arc::clone(&output);
            thread::spawn(move || slots.map(|slot| slot.complete(Arc::clone(&output))))
        };
        drop(done.try_next());
        drop(done);
        completer.join().unwrap();
        assert_eq!(Arc::strong_count(&output), 1);
        assert_eq!(jobs.in_flight(), 0);
    });
}

/// The holder of a slot waits for an abort.
#[test]
fn loom_abort_against_a_wait_for_it() {
    loom::model(|| {
        let (jobs, mut done) = ends();
        let mut slot = block_on(jobs.slot(1)).unwrap();
        let id = slot.id();
        let holder = thread::spawn(move || {
            block_on(slot.aborted());
            drop(slot);
        });
        assert!(jobs.abort(id));
        let completed = block_on(done.next()).unwrap();
        assert!(completed.outcome.unwrap_err().is_cancelled());
        holder.join().unwrap();
    });
}
