//! Models of the cell: each pair of parties that can meet in it.

use std::future::poll_fn;
use std::sync::{Arc as StdArc, Mutex as StdMutex, OnceLock};
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::{
    Abort, Call, Destination, Done, Fault, FaultKind, JoinRef, Outcome, Polled, Promise, Ran,
    Resumed, Spent, Stepped, Task, Thunk,
};
use crate::join::RunContext;
use crate::sync::Plain;

/// A job on nothing. Loom reports the captured `Arc` if the closure is never dropped, and the cell
/// in it if the output was not published.
fn job() -> (Task, JoinRef<Arc<Plain>>, Arc<()>) {
    let captured = Arc::new(());
    let witness = captured.clone();
    let (task, join_ref) = Task::joinable(Call(move |(): &mut ()| {
        drop(captured);
        let output = Arc::new(Plain::new(0));
        output.add(7);
        output
    }));
    (task, join_ref, witness)
}

async fn join<T>(mut join_ref: JoinRef<T>) -> Outcome<T> {
    poll_fn(|cx| join_ref.poll_complete(cx)).await;
    join_ref.into_outcome()
}

fn is_cancelled<T>(outcome: &Outcome<T>) -> bool {
    matches!(outcome, Err(fault) if matches!(fault.kind(), FaultKind::Cancelled))
}

#[test]
fn loom_run_against_await() {
    loom::model(|| {
        let (task, join_ref, captured) = job();
        let runner = thread::spawn(move || task.run(&mut ()));
        let output = block_on(join(join_ref)).unwrap();
        assert_eq!(output.get(), 7);
        assert_eq!(runner.join().unwrap(), Ran::Returned);
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}

/// `is_awaited` sees the end of a job, although nothing else orders the two.
#[test]
fn loom_a_job_that_has_ended_is_not_awaited() {
    loom::model(|| {
        let (task, join_ref, _) = job();
        let (asks, ended) = (join_ref.abort_ref(), Arc::new(AtomicUsize::new(0)));
        let ends = Arc::clone(&ended);
        let runner = thread::spawn(move || {
            task.run(&mut ());
            ends.store(1, Ordering::Relaxed);
        });
        if ended.load(Ordering::Relaxed) == 1 {
            assert!(!asks.is_awaited());
        }
        runner.join().unwrap();
        drop(join_ref);
    });
}

/// Asks on drop whether its own job is awaited: in the run, or instead of the run.
struct Asks {
    own: StdArc<OnceLock<Abort>>,
    runs: bool,
    is_right_answer: Arc<AtomicUsize>,
}

impl Drop for Asks {
    fn drop(&mut self) {
        let is_awaited = self.own.get().is_some_and(Abort::is_awaited);
        let is_right = usize::from(is_awaited == self.runs);
        self.is_right_answer.store(is_right, Ordering::Relaxed);
    }
}

/// An aborted job is awaited while it runs, and not while its captures are dropped instead: by the abort, or with the
/// task.
#[test]
fn loom_a_job_that_was_aborted_is_awaited_if_it_runs() {
    for drops_task in [false, true] {
        loom::model(move || {
            let (own, is_right_answer) =
                (StdArc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
            let mut asks = Asks {
                own: StdArc::clone(&own),
                runs: false,
                is_right_answer: Arc::clone(&is_right_answer),
            };
            let (task, join_ref) = Task::<()>::joinable(Thunk(move || {
                asks.runs = true;
                drop(asks);
            }));
            let _ = own.set(join_ref.abort_ref());
            let abort = join_ref.abort_ref();
            let other = thread::spawn(move || match drops_task {
                true => drop(task),
                false => _ = task.run(&mut ()),
            });
            abort.abort();
            other.join().unwrap();
            assert_eq!(is_right_answer.load(Ordering::Relaxed), 1);
        });
    }
}

/// A second poll with another waker: the first one may be taken, or be taken back, or be read.
#[test]
fn loom_run_against_a_change_of_wakers() {
    loom::model(|| {
        let (task, mut join_ref, _) = job();
        let runner = thread::spawn(move || task.run(&mut ()));
        let mut other = Context::from_waker(Waker::noop());
        let _ = join_ref.poll_complete(&mut other);
        let output = block_on(async {
            poll_fn(|cx| join_ref.poll_complete(cx)).await;
            join_ref.into_outcome()
        });
        assert_eq!(output.unwrap().get(), 7);
        runner.join().unwrap();
    });
}

/// The same waker twice: the second poll compares while the runner may take it.
#[test]
fn loom_run_against_the_same_waker_twice() {
    loom::model(|| {
        let (task, mut join_ref, _) = job();
        let runner = thread::spawn(move || task.run(&mut ()));
        let polls = AtomicUsize::new(0);
        block_on(poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            let _ = join_ref.poll_complete(cx);
            join_ref.poll_complete(cx)
        }));
        assert_eq!(join_ref.into_outcome().unwrap().get(), 7);
        runner.join().unwrap();
    });
}

#[test]
fn loom_run_against_detach() {
    loom::model(|| {
        let (task, join_ref, captured) = job();
        let runner = thread::spawn(move || task.run(&mut ()));
        drop(join_ref);
        runner.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}

/// The handle is dropped after it has stored a waker.
#[test]
fn loom_run_against_detach_after_a_poll() {
    loom::model(|| {
        let (task, mut join_ref, _) = job();
        let runner = thread::spawn(move || task.run(&mut ()));
        let _ = join_ref.poll_complete(&mut Context::from_waker(Waker::noop()));
        drop(join_ref);
        runner.join().unwrap();
    });
}

/// One of the two gets the closure, and the captures are gone when both have returned.
#[test]
fn loom_run_against_abort() {
    loom::model(|| {
        let (task, join_ref, captured) = job();
        let abort = join_ref.abort_ref();
        let runner = thread::spawn(move || task.run(&mut ()));
        abort.abort();
        let ran = runner.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
        assert!(join_ref.is_complete());
        let outcome = join_ref.into_outcome();
        match ran {
            Ran::Returned => assert_eq!(outcome.unwrap().get(), 7),
            Ran::Cancelled => assert!(is_cancelled(&outcome)),
            Ran::Panicked => unreachable!(),
        }
    });
}

#[test]
fn loom_abort_against_abort_and_await() {
    loom::model(|| {
        let (task, join_ref, captured) = job();
        let (one, two) = (join_ref.abort_ref(), join_ref.abort_ref());
        let thread = thread::spawn(move || one.abort());
        two.abort();
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
        assert!(is_cancelled(&join_ref.into_outcome()));
        assert_eq!(task.run(&mut ()), Ran::Cancelled);
    });
}

#[test]
fn loom_abort_against_await() {
    loom::model(|| {
        let (task, join_ref, _) = job();
        let abort = join_ref.abort_ref();
        let aborter = thread::spawn(move || abort.abort());
        assert!(is_cancelled(&block_on(join(join_ref))));
        aborter.join().unwrap();
        drop(task);
    });
}

/// A dropped task wakes its handle.
#[test]
fn loom_drop_against_await() {
    loom::model(|| {
        let (task, join_ref, captured) = job();
        let dropper = thread::spawn(move || drop(task));
        assert!(is_cancelled(&block_on(join(join_ref))));
        dropper.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}

/// The last of three references frees the cell, whichever it is, and does so once.
#[test]
fn loom_release_against_release() {
    loom::model(|| {
        let (task, join_ref, captured) = job();
        let abort = join_ref.abort_ref();
        let one = thread::spawn(move || drop(abort));
        let two = thread::spawn(move || drop(join_ref));
        task.run(&mut ());
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}

/// An abort wakes a job that waits, whether or not it has registered its waker yet.
#[test]
fn loom_a_waiting_future_against_abort() {
    loom::model(|| {
        let captured = Arc::new(());
        let witness = captured.clone();
        let (task, join_ref) = Task::<RunContext>::joinable(Polled(poll_fn(move |_| {
            let _captured = &captured;
            Poll::<()>::Pending
        })));
        let abort = join_ref.abort_ref();
        let aborter = thread::spawn(move || abort.abort());
        block_on(crate::join::Work::new(task));
        aborter.join().unwrap();
        assert_eq!(Arc::strong_count(&witness), 1);
        assert!(is_cancelled(&join_ref.into_outcome()));
    });
}

/// An aborted job sees what happened before the abort.
#[test]
fn loom_an_abort_publishes() {
    loom::model(|| {
        let before = Arc::new(Plain::new(0));
        let (promise, abort) = Promise::<(), Nowhere>::new(Nowhere);
        let aborter = {
            let before = before.clone();
            thread::spawn(move || {
                before.add(1);
                abort.abort();
            })
        };
        if promise.is_aborted() {
            assert_eq!(before.get(), 1);
        }
        aborter.join().unwrap();
    });
}

struct Nowhere;

impl<T: Send + 'static> Destination<T> for Nowhere {
    fn deliver(done: Done<T, Self>) {
        done.complete();
    }
}

/// A promise is completed once, also while it is aborted.
#[test]
fn loom_promise_against_abort() {
    loom::model(|| {
        let (promise, abort) = Promise::<Arc<()>, Nowhere>::new(Nowhere);
        let completer = thread::spawn(move || promise.complete(Ok(Arc::new(()))));
        abort.abort();
        completer.join().unwrap();
        assert!(abort.is_complete());
    });
}

#[test]
fn loom_fail_against_await() {
    loom::model(|| {
        let (task, join_ref, _) = job();
        let failer = thread::spawn(move || task.fail(Fault::poisoned()));
        let fault = block_on(join(join_ref)).unwrap_err();
        assert!(matches!(fault.kind(), FaultKind::Poisoned));
        failer.join().unwrap();
    });
}

/// A cell is freed after the others are done with it: one party reads the destination and releases the cell, and the
/// drop of the destination writes to it.
#[test]
fn loom_free_against_release() {
    struct Checked(Plain);
    impl Drop for Checked {
        fn drop(&mut self) {
            self.0.add(1);
        }
    }
    impl<T: Send + 'static> Destination<T> for Checked {
        fn deliver(done: Done<T, Self>) {
            done.complete();
            assert_eq!(done.destination().0.get(), 0);
        }
    }
    loom::model(|| {
        let (promise, abort) = Promise::<(), Checked>::new(Checked(Plain::new(0)));
        let aborter = thread::spawn(move || drop(abort));
        promise.complete(Ok(()));
        aborter.join().unwrap();
    });
}

/// The two references that are released together are the last, or a third party's is. The drop of the destination
/// comes after what that party did before.
#[test]
fn loom_release_of_two_against_release() {
    struct Stashes(StdArc<Plain>, StdArc<StdMutex<Option<Spent<Self>>>>);
    impl Drop for Stashes {
        fn drop(&mut self) {
            self.0.add(1);
        }
    }
    impl<T: Send + 'static> Destination<T> for Stashes {
        fn deliver(done: Done<T, Self>) {
            done.complete();
            let stash = done.destination().1.clone();
            *stash.lock().unwrap() = Some(done.take_outcome().1);
        }
    }
    loom::model(|| {
        let (plain, stash) = (StdArc::new(Plain::new(0)), StdArc::new(StdMutex::new(None)));
        let stashes = Stashes(plain.clone(), stash.clone());
        let (promise, abort) = Promise::<(), Stashes>::new(stashes);
        let other = abort.clone();
        promise.complete(Ok(()));
        let spent: Spent<_> = stash.lock().unwrap().take().unwrap();
        let reader = thread::spawn(move || spent.release_with(abort));
        assert_eq!(plain.get(), 0);
        drop(other);
        reader.join().unwrap();
    });
}

/// Polls jobs again where they are woken.
struct ResumesHere;

impl Destination<()> for ResumesHere {
    const RESUMES: bool = true;

    fn deliver(done: Done<(), Self>) {
        done.complete();
    }

    fn resume(&self, job: Resumed) {
        // SAFETY: the jobs below are made for nothing.
        let task: Task = unsafe { Task::from_resumed(job) };
        assert!(task.is_resumed());
        poll_again(task);
    }
}

/// Polls a job for the last time.
fn poll_again(task: Task) {
    // SAFETY: the job was claimed before its first poll.
    let polled = unsafe { task.poll_claimed_or_return(&mut (), &mut noop()) };
    assert!(polled.is_ok(), "the wake-up is not seen");
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Drops a job if it is suspended.
fn drop_suspended(abort: &Abort) {
    if let Some(job) = abort.take_suspended() {
        // SAFETY: the jobs below are made for nothing.
        drop::<Task>(unsafe { Task::from_resumed(job) });
    }
}

/// Claims a job and polls it for the first time. Returns it if it was woken meanwhile.
fn poll_first(task: Task) -> Option<Task> {
    assert!(task.claim());
    // SAFETY: it was claimed.
    match unsafe { task.poll_claimed_or_suspend(&mut ()) } {
        Stepped::Pending(task) => Some(task),
        Stepped::Ended | Stepped::Suspended => None,
    }
}

/// A job is woken before, while or after it is suspended. Loom reports it if two polls race, and the second poll sees
/// what was done before the wake-up, of which nothing but the state word tells.
#[test]
fn loom_a_suspended_job_against_its_wake_up() {
    loom::model(|| {
        let opened = Arc::new(AtomicBool::new(false));
        let offered = Arc::new(Offered::default());
        let (is_open, offers, mine) = (opened.clone(), offered.clone(), Plain::new(0));
        let job = poll_fn(move |cx| {
            mine.add(1);
            if mine.get() == 1 {
                offers.offer(cx.waker().clone());
                return Poll::Pending;
            }
            match is_open.load(Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        let (task, abort) = Task::<()>::bound_for(Polled(job), ResumesHere);
        let runner = thread::spawn(move || {
            if let Some(task) = poll_first(task) {
                poll_again(task);
            }
        });
        opened.store(true, Ordering::Relaxed);
        offered.wake();
        runner.join().unwrap();
        // If the job was polled after the first call.
        offered.wake();
        assert!(abort.is_complete());
    });
}

/// A waker that passes from one thread to another. Loom sees that they use the same, but nothing is ordered by it.
#[derive(Default)]
struct Offered {
    is_set: AtomicBool,
    waker: StdMutex<Option<Waker>>,
}

impl Offered {
    fn offer(&self, waker: Waker) {
        *self.waker.lock().unwrap() = Some(waker);
        self.is_set.store(true, Ordering::Relaxed);
    }

    fn wake(&self) {
        if self.is_set.load(Ordering::Relaxed) {
            // By reference, since the drop of a waker publishes what came before it.
            let waker = self.waker.lock().unwrap();
            waker.iter().for_each(Waker::wake_by_ref);
        }
    }
}

/// The runtime ends before, while or after a job is suspended: the job is dropped once. Loom reports it if the drop races
/// with the first poll.
#[test]
fn loom_a_suspended_job_against_the_end_of_its_runtime() {
    struct Touched(Plain);
    impl Drop for Touched {
        fn drop(&mut self) {
            self.0.add(1);
        }
    }
    loom::model(|| {
        let touched = Touched(Plain::new(0));
        let job = poll_fn(move |_| {
            touched.0.add(1);
            Poll::Pending
        });
        let (task, abort) = Task::<()>::bound_for(Polled(job), ResumesHere);
        let runner = thread::spawn(move || {
            if let Some(task) = poll_first(task) {
                // SAFETY: it was claimed.
                unsafe { task.fail_claimed(Fault::cancelled()) };
            }
        });
        drop_suspended(&abort);
        runner.join().unwrap();
        assert!(abort.is_complete());
    });
}

/// Of a wake-up, an abort and the end of the runtime, one gets the suspended job.
#[test]
fn loom_a_suspended_job_against_its_end() {
    loom::model(|| {
        let held = Arc::new(());
        let (captured, waker) = (held.clone(), StdArc::new(StdMutex::new(None)));
        let slot = waker.clone();
        let mut polled = false;
        let job = poll_fn(move |cx| {
            let _held = &captured;
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            *slot.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        });
        let (task, abort) = Task::<()>::bound_for(Polled(job), ResumesHere);
        assert!(poll_first(task).is_none());
        let waker: Waker = waker.lock().unwrap().take().unwrap();
        let wakes = thread::spawn(move || waker.wake());
        let other = abort.clone();
        let aborts = thread::spawn(move || other.abort());
        drop_suspended(&abort);
        wakes.join().unwrap();
        aborts.join().unwrap();
        assert!(abort.is_complete());
        assert_eq!(Arc::strong_count(&held), 1);
    });
}
