//! The cell on one thread and on many; Miri runs them too.

use std::any::Any;
use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;

use super::{
    Abort, Call, Destination, Done, Fault, FaultKind, JobContext, JoinRef, Outcome, Polled,
    Promise, Ran, Task, Thunk,
};
use crate::inbox::{Batch, Inbox};
use crate::join::{RunContext, Work};
use crate::sync::{AtomicUsize, Ordering};

fn poll<T>(join_ref: &mut JoinRef<T>) -> Poll<()> {
    join_ref.poll_complete(&mut Context::from_waker(Waker::noop()))
}

fn kind<T>(outcome: Outcome<T>) -> FaultKind {
    match outcome {
        Ok(_) => panic!("it has an output"),
        Err(fault) => fault.into_kind(),
    }
}

/// Counts wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_job_runs_on_the_state_that_it_is_lent() {
    struct List(Vec<u32>, bool);
    impl JobContext for List {
        fn ended(&mut self, _: Ran) {
            self.1 = true;
        }
    }
    let (task, mut join_ref) = Task::<List>::joinable(Call(|list: &mut List| {
        assert!(!list.1);
        list.0.push(1);
        list.0.len()
    }));
    assert!(poll(&mut join_ref).is_pending());
    let mut list = List(vec![0], false);
    assert_eq!(task.run(&mut list), Ran::Returned);
    assert!(poll(&mut join_ref).is_ready());
    assert_eq!(join_ref.into_outcome().unwrap(), 2);
    assert!(list.0 == [0, 1] && list.1);
}

#[test]
fn the_context_is_told_before_the_outcome_is_visible() {
    struct Told(Abort, Option<bool>);
    impl JobContext for Told {
        fn ended(&mut self, _: Ran) {
            self.1 = Some(self.0.is_complete());
        }
    }
    let (task, join_ref) = Task::<Told>::joinable(Thunk(|| 1));
    let mut told = Told(join_ref.abort_ref(), None);
    assert_eq!(task.run(&mut told), Ran::Returned);
    assert_eq!(told.1, Some(false));
    assert_eq!(join_ref.into_outcome().unwrap(), 1);
}

#[test]
fn a_panic_is_the_outcome() {
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| panic_any(7_u32)));
    assert_eq!(task.run(&mut ()), Ran::Panicked);
    let FaultKind::Panicked(payload) = kind(join_ref.into_outcome()) else {
        panic!("it panicked")
    };
    let payload: Box<dyn Any + Send> = payload.into_inner();
    assert_eq!(payload.downcast_ref(), Some(&7_u32));
}

#[test]
fn an_abort_drops_the_captures_at_once() {
    let captured = Arc::new(());
    let (task, join_ref) = {
        let captured = captured.clone();
        Task::<()>::joinable(Thunk(move || drop(captured)))
    };
    let abort = join_ref.abort_ref();
    abort.abort();
    assert_eq!(Arc::strong_count(&captured), 1);
    assert!(abort.is_complete());
    assert!(matches!(
        kind(join_ref.into_outcome()),
        FaultKind::Cancelled
    ));
    abort.abort();
    assert_eq!(task.run(&mut ()), Ran::Cancelled);
    abort.clone().abort();
}

#[test]
fn the_fault_of_a_dropped_task_differs_from_that_of_a_failed_one() {
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| ()));
    drop(task);
    assert!(matches!(
        kind(join_ref.into_outcome()),
        FaultKind::Cancelled
    ));
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| ()));
    task.fail(Fault::closed());
    assert!(matches!(kind(join_ref.into_outcome()), FaultKind::Closed));
}

#[test]
fn a_job_can_be_taken_out_of_its_cell() {
    fn thunk(text: String) -> impl FnOnce() -> String + Send {
        move || text
    }
    fn back<F: FnOnce() -> String + Send + 'static>(f: F) -> Option<F> {
        let (task, join_ref) = Task::<()>::joinable(Thunk(f));
        // SAFETY: it was made of a `Thunk<F>`.
        let job = unsafe { task.take_back::<Thunk<F>>() };
        assert!(matches!(
            kind(join_ref.into_outcome()),
            FaultKind::Cancelled
        ));
        job.map(|Thunk(f)| f)
    }
    assert_eq!(back(thunk("kept".into())).unwrap()(), "kept");
}

#[test]
fn the_last_waker_is_woken_and_the_others_are_dropped() {
    let (task, mut join_ref) = Task::<()>::joinable(Thunk(|| ()));
    let (first, second) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    for wakes in [&first, &first, &second] {
        let waker = Waker::from(Arc::clone(wakes));
        assert!(
            join_ref
                .poll_complete(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    assert_eq!(Arc::strong_count(&first), 1);
    task.run(&mut ());
    assert_eq!(first.0.load(Ordering::SeqCst), 0);
    assert_eq!(second.0.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn a_dropped_handle_drops_its_waker() {
    let (task, mut join_ref) = Task::<()>::joinable(Thunk(|| ()));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    assert!(
        join_ref
            .poll_complete(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    drop(join_ref);
    assert_eq!(Arc::strong_count(&wakes), 1);
    task.run(&mut ());
    assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
}

#[test]
fn the_output_of_a_detached_task_is_dropped_once() {
    let output = Arc::new(());
    for before in [true, false] {
        let (task, join_ref) = {
            let output = output.clone();
            Task::<()>::joinable(Thunk(move || output))
        };
        if before {
            drop(join_ref);
            task.run(&mut ());
        } else {
            task.run(&mut ());
            drop(join_ref);
        }
        assert_eq!(Arc::strong_count(&output), 1);
    }
}

#[test]
fn panics_of_drops_and_wakers_are_contained() {
    // In the drop of what was captured.
    let (task, join_ref) = Task::<()>::joinable({
        let bomb = Bomb;
        Thunk(move || std::mem::forget(bomb))
    });
    join_ref.abort_ref().abort();
    assert!(matches!(
        kind(join_ref.into_outcome()),
        FaultKind::Cancelled
    ));
    drop(task);
    // In the drop of an output that nobody wants.
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| Bomb));
    drop(join_ref);
    assert_eq!(task.run(&mut ()), Ran::Returned);
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| Bomb));
    task.run(&mut ());
    drop(join_ref);
    // In the drop of a panic's payload.
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| panic_any(Bomb)));
    task.run(&mut ());
    drop(join_ref);
    // In a waker.
    struct Explodes;
    impl Wake for Explodes {
        fn wake(self: Arc<Self>) {
            panic!("woken");
        }
    }
    let (task, mut join_ref) = Task::<()>::joinable(Thunk(|| 7));
    let waker = Waker::from(Arc::new(Explodes));
    assert!(
        join_ref
            .poll_complete(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert_eq!(task.run(&mut ()), Ran::Returned);
    assert_eq!(join_ref.into_outcome().unwrap(), 7);
}

#[test]
fn a_payload_whose_drop_always_panics_is_leaked() {
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            panic_any(Self);
        }
    }
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| Again));
    drop(join_ref);
    // The leak is expected; the test is that this returns.
    let ran = catch_unwind(AssertUnwindSafe(|| task.run(&mut ())));
    assert_eq!(ran.ok(), Some(Ran::Returned));
}

#[test]
fn a_future_is_polled_in_place_until_it_is_ready() {
    let (task, join_ref) = Task::<RunContext>::joinable(Polled(async {
        tokio::task::yield_now().await;
        7
    }));
    assert_eq!(
        Work::new(task).run_in(&mut RunContext::default()),
        Ran::Returned
    );
    assert_eq!(join_ref.into_outcome().unwrap(), 7);
}

#[test]
fn a_future_that_panics_is_dropped() {
    let captured = Arc::new(());
    let (task, join_ref) = {
        let captured = captured.clone();
        Task::<RunContext>::joinable(Polled(async move {
            let _captured = captured;
            ready(()).await;
            panic!("in a future");
        }))
    };
    assert_eq!(
        Work::new(task).run_in(&mut RunContext::default()),
        Ran::Panicked
    );
    assert_eq!(Arc::strong_count(&captured), 1);
    assert!(matches!(
        kind::<()>(join_ref.into_outcome()),
        FaultKind::Panicked(_)
    ));
}

#[test]
fn an_abort_wakes_work_that_waits_and_a_drop_cancels_it() {
    let captured = Arc::new(());
    let waiting = || {
        let captured = captured.clone();
        Task::<RunContext>::joinable(Polled(async move {
            pending::<()>().await;
            drop(captured);
        }))
    };
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);

    let (task, join_ref) = waiting();
    let mut work = Work::new(task);
    assert!(std::pin::Pin::new(&mut work).poll(&mut cx).is_pending());
    join_ref.abort_ref().abort();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert!(std::pin::Pin::new(&mut work).poll(&mut cx).is_ready());
    assert!(matches!(
        kind(join_ref.into_outcome()),
        FaultKind::Cancelled
    ));
    assert_eq!(Arc::strong_count(&captured), 1);

    let (task, join_ref) = waiting();
    let mut work = Work::new(task);
    assert!(std::pin::Pin::new(&mut work).poll(&mut cx).is_pending());
    drop(work);
    assert!(matches!(
        kind(join_ref.into_outcome()),
        FaultKind::Cancelled
    ));
    assert_eq!(Arc::strong_count(&captured), 1);
    drop(waker);
    assert_eq!(Arc::strong_count(&wakes), 1);
}

/// Collects the outcomes of the cells that arrive.
struct List(Arc<Mutex<Vec<Outcome<Arc<u32>>>>>);

impl Destination<Arc<u32>> for List {
    fn deliver(done: Done<Arc<u32>, Self>) {
        done.complete();
        let list = Arc::clone(&done.destination().0);
        list.lock().unwrap().push(done.take_outcome().0);
    }
}

#[test]
fn a_promise_is_completed_once() {
    let list = Arc::default();
    let (promise, abort) = Promise::new(List(Arc::clone(&list)));
    assert!(!promise.is_aborted());
    abort.abort();
    assert!(promise.is_aborted() && !abort.is_complete());
    promise.complete(Ok(Arc::new(7)));
    assert!(abort.is_complete());
    drop(Promise::new(List(Arc::clone(&list))));
    let outcomes = std::mem::take(&mut *list.lock().unwrap());
    let [Ok(seven), Err(lost)] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!((**seven, Arc::strong_count(seven)), (7, 1));
    assert!(matches!(lost.kind(), FaultKind::Lost));
    drop(abort);
    assert_eq!(Arc::strong_count(&list), 1);
}

#[test]
fn a_handle_runs_a_job_that_has_not_started() {
    #[derive(Default)]
    struct Counts(Vec<usize>);
    impl JobContext for Counts {}
    let captured = Arc::new(());
    let (task, mut join_ref) = {
        let captured = captured.clone();
        Task::<Counts>::joinable(Call(move |counts: &mut Counts| {
            counts.0.push(Arc::strong_count(&captured));
            counts.0.len()
        }))
    };
    // The handle has stored a waker for the runner, and wakes it itself.
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    assert!(
        join_ref
            .poll_complete(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut counts = Counts::default();
    // SAFETY: the job was made for this state.
    let ran = unsafe { join_ref.run_here(&mut counts) };
    assert_eq!(ran, Some(Ran::Returned));
    assert_eq!((counts.0[0], Arc::strong_count(&captured)), (2, 1));
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    // SAFETY: as above.
    assert_eq!(unsafe { join_ref.run_here(&mut counts) }, None);
    assert_eq!(join_ref.into_outcome().unwrap(), 1);
    assert_eq!(task.run(&mut counts), Ran::Cancelled);
    drop(waker);
    assert_eq!(Arc::strong_count(&wakes), 1);
}

#[test]
fn a_handle_that_runs_a_job_contains_its_panic() {
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| panic_any(7_u32)));
    // The runner goes first.
    // SAFETY: the job was made for this state.
    let ran = unsafe { join_ref.run_here(&mut ()) };
    drop(task);
    assert_eq!(ran, Some(Ran::Panicked));
    assert!(matches!(
        kind::<()>(join_ref.into_outcome()),
        FaultKind::Panicked(_)
    ));
}

#[test]
fn a_handle_runs_neither_aborted_jobs_nor_futures() {
    let (task, join_ref) = Task::<()>::joinable(Thunk(|| ()));
    join_ref.abort_ref().abort();
    // SAFETY: the job was made for this state.
    assert_eq!(unsafe { join_ref.run_here(&mut ()) }, None);
    drop((task, join_ref));
    let (task, join_ref) = Task::<RunContext>::joinable(Polled(ready(7)));
    let mut context = RunContext::default().by_waiter();
    // SAFETY: as above.
    assert_eq!(unsafe { join_ref.run_here(&mut context) }, None);
    assert_eq!(
        Work::new(task).run_in(&mut RunContext::default()),
        Ran::Returned
    );
    assert_eq!(join_ref.into_outcome().unwrap(), 7);
}

#[test]
fn either_the_runner_or_the_handle_runs_a_job() {
    const JOBS: usize = if cfg!(miri) { 20 } else { 2_000 };
    let captured = Arc::new(());
    for job in 0..JOBS {
        let output = captured.clone();
        let (task, join_ref) = Task::<()>::joinable(Thunk(move || output));
        let abort = join_ref.abort_ref();
        thread::scope(|scope| {
            let runner = scope.spawn(move || task.run(&mut ()));
            // SAFETY: the job was made for this state.
            let here = unsafe { join_ref.run_here(&mut ()) };
            if job % 2 == 0 {
                abort.abort();
            }
            drop(join_ref);
            let there = runner.join().unwrap();
            let ends = [here, Some(there)];
            assert!(
                ends == [Some(Ran::Returned), Some(Ran::Cancelled)]
                    || ends == [None, Some(Ran::Returned)],
                "{ends:?}"
            );
        });
        assert_eq!(Arc::strong_count(&captured), 1);
    }
}

#[test]
fn tasks_of_all_sizes_and_alignments_go_through_an_inbox() {
    #[repr(align(64))]
    struct Aligned(u8);
    let inbox = Inbox::<Task>::new();
    let aligned = Aligned(3);
    let large = [7_u64; 100];
    let (small, small_handle) = Task::joinable(Thunk(|| 1_u8));
    let (over, over_handle) = Task::joinable(Thunk(move || {
        let whole = aligned;
        whole.0
    }));
    let (big, big_handle) = Task::joinable(Thunk(move || large.iter().sum::<u64>()));
    let mut batch = Batch::of(small);
    batch.push(over);
    batch.push(big);
    batch.push(Task::detached(Thunk(|| ())));
    assert!(inbox.push(batch, |head| Some(head.tags)).is_ok());
    let mut list = inbox.take();
    while let Some(task) = list.pop_front() {
        assert_eq!(task.run(&mut ()), Ran::Returned);
    }
    assert_eq!(small_handle.into_outcome().unwrap(), 1);
    assert_eq!(over_handle.into_outcome().unwrap(), 3);
    assert_eq!(big_handle.into_outcome().unwrap(), 700);
}

#[test]
fn runs_aborts_and_detaches_race() {
    const JOBS: usize = if cfg!(miri) { 40 } else { 10_000 };
    let dropped = Arc::new(());
    for job in 0..JOBS {
        let captured = dropped.clone();
        let (task, mut join_ref) = Task::<()>::joinable(Thunk(move || captured));
        let abort = join_ref.abort_ref();
        thread::scope(|scope| {
            if job % 8 == 0 || cfg!(miri) {
                scope.spawn(move || task.run(&mut ()));
                scope.spawn(move || abort.abort());
            } else {
                abort.abort();
                task.run(&mut ());
            }
            let _ = poll(&mut join_ref);
            if job % 2 == 0 {
                drop(join_ref);
            }
        });
    }
    assert_eq!(Arc::strong_count(&dropped), 1);
}

#[test]
fn a_future_ends_if_its_waker_panics_when_cloned() {
    static TABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("cloned"), |_| {}, |_| {}, |_| {});
    let captured = Arc::new(());
    let capture = Arc::clone(&captured);
    let (task, join_ref) = Task::<()>::joinable(Polled(async move {
        let _capture = capture;
        pending::<()>().await;
    }));
    assert!(task.claim());
    // SAFETY: the functions of the table use no pointer.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
    let mut cx = Context::from_waker(&waker);
    // SAFETY: claimed above.
    let polled = unsafe { task.poll_claimed_or_return(&mut (), &mut cx) };
    assert!(polled.is_ok_and(|ran| ran == Ran::Cancelled));
    assert!(matches!(
        kind(join_ref.into_outcome()),
        FaultKind::Panicked(_)
    ));
    assert_eq!(Arc::strong_count(&captured), 1);
}
