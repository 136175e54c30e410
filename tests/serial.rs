//! What `SerialExecutor` promises, seen from outside.
//!
//! That idle executors do not allocate, `serial_alloc.rs` shows.

mod support;

#[path = "serial/bounded.rs"]
mod bounded;
#[path = "serial/cancel.rs"]
mod cancel;
#[path = "serial/left.rs"]
mod left;
#[path = "serial/levels.rs"]
mod levels;
#[path = "serial/metrics.rs"]
mod metrics;
#[path = "serial/never_inline.rs"]
mod never_inline;
#[path = "support/occupied.rs"]
mod occupied;
#[path = "serial/waits.rs"]
mod waits;

use std::cell::Cell;
use std::collections::HashMap;
use std::error::Error;
use std::panic::{catch_unwind, panic_any};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use throng::serial::{IntoInnerError, OnPanic};
use throng::{BlockingPool, JoinHandle, SerialExecutor};
use tokio::runtime::Handle;

use self::occupied::{Busy, occupy};
use self::support::{
    Drops, Gate, Numbers, PATIENCE, PanicsOnDrop, block_on, current_thread, join, message,
    multi_thread, panicking_waker, poll, poll_with, ready, receive, rounds, thread_name,
    wait_until, within,
};

// ===== idle: inline =====

#[test]
fn an_idle_executor_runs_the_job_on_the_caller() {
    let executor = SerialExecutor::new(1);
    let handle = executor.submit(|n| {
        *n += 1;
        (*n, thread::current().id())
    });
    assert!(handle.is_finished());
    assert_eq!(ready(handle).unwrap(), (2, thread::current().id()));
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn a_job_runs_although_its_handle_is_dropped() {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| *n += 1));
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn a_clone_is_the_same_executor() {
    let executor = SerialExecutor::new(0);
    drop(executor.clone().submit(|n| *n += 1));
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn a_loop_over_ready_handles_lets_others_run() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0_u64);
        let fired = Arc::new(AtomicBool::new(false));
        let timer = tokio::spawn({
            let fired = Arc::clone(&fired);
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                fired.store(true, Ordering::SeqCst);
            }
        });
        let deadline = Instant::now() + PATIENCE;
        while !fired.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline, "the loop never yielded");
            executor.submit(|n| *n += 1).await.unwrap();
        }
        timer.await.unwrap();
    });
}

// ===== busy: queued =====

#[test]
fn a_busy_executor_queues_and_the_submitter_goes_on() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let mut handle = executor.submit(|n| {
        *n += 1;
        (*n, thread::current().id())
    });
    assert!(!handle.is_finished());
    assert!(poll(&mut handle).is_pending());

    let holder = busy.release();
    assert_eq!(join(handle).unwrap(), (1, holder));
}

#[test]
fn a_job_sees_the_thread_that_runs_it() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let in_runtime = |_: &mut ()| Handle::try_current().is_ok();
    let queued = {
        let _in = runtime.enter();
        executor.submit(in_runtime)
    };
    busy.release();
    assert!(!join(queued).unwrap());

    assert!(!ready(executor.submit(in_runtime)).unwrap());
    let _in = runtime.enter();
    assert!(ready(executor.submit(in_runtime)).unwrap());
}

#[test]
fn jobs_run_in_the_order_of_submission() {
    for limit in [0, 1, 16] {
        let runtime = multi_thread(2, "drain");
        let executor = SerialExecutor::builder()
            .capture_jobs(limit)
            .build(Tickets::default());
        check_order(&executor, Some(runtime.handle()));
    }
    check_order(&SerialExecutor::new(Tickets::default()), None);
}

/// A job that was submitted after another's `submit` had returned runs after it, whoever submitted
/// the two; and none runs while another does.
fn check_order(executor: &SerialExecutor<Tickets>, runtime: Option<&Handle>) {
    const THREADS: usize = 8;
    let jobs = rounds(500, 50_000);
    let clock = AtomicUsize::new(0);
    let barrier = Barrier::new(THREADS);
    let mut stamps: Vec<(usize, usize, usize)> = thread::scope(|scope| {
        let submitter = || {
            let _in = runtime.map(Handle::enter);
            barrier.wait();
            let submit = |_| {
                let before = clock.fetch_add(1, Ordering::SeqCst);
                let handle = executor.submit(Tickets::take);
                let after = clock.fetch_add(1, Ordering::SeqCst);
                (before, after, handle)
            };
            let submitted: Vec<_> = (0..jobs).map(submit).collect();
            let ticket = |(before, after, handle)| (join(handle).unwrap(), before, after);
            submitted.into_iter().map(ticket).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(submitter)).collect();
        let stamps = threads.into_iter().map(|thread| thread.join().unwrap());
        stamps.flatten().collect()
    });

    stamps.sort_unstable();
    let mut latest_begin = 0;
    for (index, &(ticket, before, after)) in stamps.iter().enumerate() {
        assert_eq!(ticket, index, "each job runs once");
        assert!(after >= latest_begin, "job {ticket} ran too late");
        latest_begin = latest_begin.max(before);
    }
}

/// Numbers those who come, and notices if two come at once.
#[derive(Default)]
struct Tickets {
    next: usize,
    taking: AtomicBool,
}

impl Tickets {
    fn take(&mut self) -> usize {
        assert!(!self.taking.swap(true, Ordering::SeqCst), "not exclusive");
        let ticket = self.next;
        self.next += 1;
        // Now and then, let the others queue.
        if ticket.is_multiple_of(16) {
            thread::yield_now();
        }
        self.taking.store(false, Ordering::SeqCst);
        ticket
    }
}

#[test]
fn a_state_that_cannot_be_shared_is_changed_by_many_threads() {
    let executor = SerialExecutor::new(Cell::new(0_usize));
    let jobs = rounds(1_000, 100_000);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..jobs {
                    drop(executor.submit(|n| n.set(n.get() + 1)));
                }
            });
        }
    });
    assert_eq!(
        block_on(executor.into_inner()).unwrap().into_inner(),
        8 * jobs
    );
}

#[test]
fn without_a_runtime_the_submitters_run_everything() {
    let executor = SerialExecutor::builder().capture_jobs(1).build(0_usize);
    let jobs = rounds(1_000, 100_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..jobs {
                    executor.submit(|n| *n += 1).blocking_join().unwrap();
                }
            });
        }
    });
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 4 * jobs);
    assert_eq!(executor.metrics().handed_over, 0);
}

// ===== the capture limit =====

#[test]
fn a_caller_runs_no_more_jobs_of_others_than_the_limit() {
    let runtime = multi_thread(1, "drain");
    for limit in [0, 1, 16] {
        for depth in 0..20 {
            let executor = SerialExecutor::builder()
                .capture_jobs(limit)
                .capture_time(PATIENCE)
                .drain_on(runtime.handle().clone())
                .build(());
            let others = if captures_at(depth) { limit } else { 0 };
            assert_eq!(captured_by(executor, depth), 1 + others, "at {depth}");
        }
    }
}

#[test]
fn a_caller_runs_jobs_of_others_for_no_longer_than_the_limit() {
    let runtime = multi_thread(1, "drain");
    for micros in [0, 1_000] {
        for depth in (0..20).filter(|depth| captures_at(*depth)) {
            let executor = SerialExecutor::builder()
                .capture_jobs(usize::MAX)
                .capture_time(Duration::from_micros(micros))
                .drain_on(runtime.handle().clone())
                .build(());
            let jobs = captured_by(executor, depth);
            assert!(jobs > 1, "it runs some");
            assert!(micros > 0 || jobs <= 1 + 4, "{jobs} jobs in no time");
        }
    }
}

/// Whether a job inside of so many others has none of them around it when it has ended: that of the caller,
/// and those that are left to the outermost job, which runs the first seven behind each anew.
fn captures_at(depth: usize) -> bool {
    depth.is_multiple_of(8)
}

/// How many jobs run on a caller whose job is the first of an endless row, before it returns. It
/// submits from within jobs of other executors, of as many as `depth`.
fn captured_by(executor: SerialExecutor<()>, depth: usize) -> usize {
    let endless = Arc::new(Endless::new());
    let (returned, has_returned) = channel();
    let caller = thread::spawn({
        let endless = Arc::clone(&endless);
        move || {
            let on_caller = Arc::new(AtomicUsize::new(0));
            let (caller, counter) = (thread::current().id(), Arc::clone(&on_caller));
            let count = move || {
                if thread::current().id() == caller {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            };
            nest(depth, Box::new(move || endless.start(&executor, count)));
            returned.send(on_caller.load(Ordering::SeqCst)).unwrap();
        }
    });
    let jobs = receive(&has_returned);
    endless.stop();
    caller.join().unwrap();
    jobs
}

/// Calls `f` in a job of an executor, in a job of another, and so on.
fn nest(depth: usize, f: Box<dyn FnOnce() + Send>) {
    match depth.checked_sub(1) {
        Some(depth) => drop(SerialExecutor::new(()).submit(move |()| nest(depth, f))),
        None => f(),
    }
}

/// A job that submits itself again, so that the queue is never empty, until it is stopped.
struct Endless {
    stopped: AtomicBool,
    /// When it stops by itself: so that a test fails, and does not hang.
    deadline: Instant,
}

impl Endless {
    fn new() -> Self {
        Self {
            stopped: AtomicBool::new(false),
            deadline: Instant::now() + PATIENCE,
        }
    }

    fn start<S, F>(self: &Arc<Self>, executor: &SerialExecutor<S>, each: F)
    where
        S: Send + 'static,
        F: Fn() + Send + 'static,
    {
        let (this, again) = (Arc::clone(self), executor.clone());
        drop(executor.submit(move |_| {
            each();
            if !this.stopped.load(Ordering::SeqCst) && Instant::now() < this.deadline {
                this.start(&again, each);
            }
        }));
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_caller_returns_although_many_others_submit() {
    const LIMIT: usize = 2;
    thread_local! {
        static RAN_HERE: Cell<usize> = const { Cell::new(0) };
    }
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder().capture_jobs(LIMIT).build(());
    let jobs = rounds(3_000, 300_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _in = runtime.enter();
                for _ in 0..jobs {
                    RAN_HERE.set(0);
                    drop(executor.submit(|()| RAN_HERE.set(RAN_HERE.get() + 1)));
                    assert!(RAN_HERE.get() <= 1 + LIMIT);
                }
            });
        }
    });
    block_on(executor.into_inner()).unwrap();
}

// ===== handing over =====

#[test]
fn the_rest_is_handed_over_to_the_submitters_runtime() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder().capture_jobs(1).build(());
    let names = {
        let _in = runtime.enter();
        nested_names(&executor)
    };
    assert_eq!(names, [thread_name(), "drain".into(), "drain".into()]);
    assert_eq!(executor.metrics().handed_over, 1);
}

#[test]
fn the_rest_is_handed_over_to_a_given_runtime() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(runtime.handle().clone())
        .build(());
    assert_eq!(nested_names(&executor), ["drain"; 3]);
}

#[test]
fn the_rest_is_handed_over_to_a_pool() {
    let pool = BlockingPool::builder().name("pool").build().unwrap();
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(pool.clone())
        .build(());
    assert_eq!(nested_names(&executor), ["pool-0"; 3]);
    wait_until("the pool counts the drain", || {
        pool.metrics().completed == 1
    });
}

#[test]
fn a_caller_runs_what_a_pool_refuses() {
    let pool = BlockingPool::builder().build().unwrap();
    pool.shutdown();
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(pool)
        .build(());
    let here = thread_name();
    assert_eq!(nested_names(&executor), [here.as_str(); 3]);
}

/// The names of the threads that run three jobs which another submits from within.
fn nested_names(executor: &SerialExecutor<()>) -> Vec<String> {
    let again = executor.clone();
    let outer = executor.submit(move |()| {
        let name = |_| again.submit(|()| thread_name());
        [(); 3].map(name)
    });
    let inner = ready(outer).unwrap();
    inner.into_iter().map(|name| join(name).unwrap()).collect()
}

#[test]
fn a_drain_lets_other_tasks_of_its_thread_run() {
    current_thread().block_on(async {
        let executor = SerialExecutor::builder().capture_jobs(0).build(());
        let endless = Arc::new(Endless::new());
        endless.start(&executor, || ());
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(Instant::now() < endless.deadline, "the drain never yielded");
        }
        endless.stop();
        within(executor.into_inner()).await.unwrap();
    });
}

#[test]
fn a_runtime_that_shuts_down_cancels_what_was_handed_over() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let handles: Vec<JoinHandle<()>> = {
        let _in = runtime.enter();
        let job = |_| {
            let captured = captured.value();
            executor.post(move |n: &mut u32| {
                *n += 1;
                drop(captured);
            })
        };
        (0..10).map(job).collect()
    };
    assert_eq!(captured.count(), 0);

    drop(runtime);
    assert_eq!(captured.count(), 10);
    for handle in handles {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
    assert!(!executor.is_poisoned());
}

#[test]
fn a_runtime_that_is_shut_down_cancels_what_is_handed_over() {
    let runtime = current_thread();
    let dead = runtime.handle().clone();
    drop(runtime);
    let executor = SerialExecutor::builder().drain_on(dead).build(0);
    assert!(
        ready(executor.post(|n| *n += 1))
            .unwrap_err()
            .is_cancelled()
    );
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
}

// ===== post =====

#[test]
fn post_returns_before_the_job_runs() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let returned = Arc::new(AtomicBool::new(false));
        let has_returned = Arc::clone(&returned);
        let handle = executor.post(move |()| has_returned.load(Ordering::SeqCst));
        assert!(!handle.is_finished());
        returned.store(true, Ordering::SeqCst);
        assert!(within(handle).await.unwrap());
        assert_eq!(executor.metrics().inline, 0);
        assert_eq!(executor.metrics().handed_over, 1);
    });
}

#[test]
fn post_goes_to_another_thread_if_there_is_one() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(());
    let _in = runtime.enter();
    assert_eq!(join(executor.post(|()| thread_name())).unwrap(), "drain");
}

#[test]
fn post_may_be_called_under_a_lock_that_the_job_takes() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(());
    let lock = Arc::new(Mutex::new(0));
    let _in = runtime.enter();
    let handles = {
        let mut held = lock.lock().unwrap();
        *held = 1;
        let job = |_| {
            let lock = Arc::clone(&lock);
            executor.post(move |()| *lock.lock().unwrap() += 1)
        };
        [(); 3].map(job)
    };
    for handle in handles {
        join(handle).unwrap();
    }
    assert_eq!(*lock.lock().unwrap(), 4);
}

#[test]
fn post_to_an_idle_executor_is_rejected_without_a_runtime() {
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let value = captured.value();
    let error = ready(executor.post(move |_| drop(value))).unwrap_err();
    assert!(error.is_rejected());
    assert!(error.source().unwrap().to_string().contains("runtime"));
    assert_eq!(captured.count(), 1);
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
}

#[test]
fn post_to_a_busy_executor_needs_no_runtime() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let handle = executor.post(|()| thread::current().id());
    assert!(!handle.is_finished());
    let holder = busy.release();
    assert_eq!(join(handle).unwrap(), holder);
}

#[test]
fn post_from_a_job_runs_after_it() {
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let inner = ready(executor.submit(move |n| {
        let inner = again.post(|n| *n * 10);
        *n = 5;
        inner
    }));
    assert_eq!(join(inner.unwrap()).unwrap(), 50);
}

#[test]
fn post_is_refused_as_submit_is() {
    let executor = SerialExecutor::new(());
    drop(executor.submit(|()| panic!("on purpose")));
    assert!(ready(executor.post(|()| ())).unwrap_err().is_poisoned());
    executor.close();
    assert!(ready(executor.post(|()| ())).unwrap_err().is_closed());
}

// ===== try_run =====

#[test]
fn try_run_borrows_from_its_surroundings() {
    let executor = SerialExecutor::new(String::from("state"));
    let mut seen = String::new();
    let length = executor.try_run(|state| {
        seen.push_str(state);
        state.len()
    });
    assert_eq!((length.unwrap(), seen.as_str()), (5, "state"));
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn try_run_gives_the_job_back_to_one_who_comes_too_early_or_too_late() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let error = executor.try_run(|n| *n).unwrap_err();
    assert!(error.is_busy());
    assert_eq!(format!("{error:?}"), "Busy(..)");
    assert!(error.to_string().contains("busy"));
    assert_eq!(error.into_inner()(&mut 7), 7);
    busy.release();

    drop(executor.submit(|_| panic!("on purpose")));
    let error = executor.try_run(|n| *n).unwrap_err();
    assert!(error.is_poisoned());
    assert_eq!(format!("{error:?}"), "Poisoned(..)");
    assert!(error.to_string().contains("poisoned"));
    assert_eq!(error.into_inner()(&mut 8), 8);

    executor.close();
    let error = executor.try_run(|n| *n).unwrap_err();
    assert!(error.is_closed());
    assert_eq!(format!("{error:?}"), "Closed(..)");
    assert!(error.to_string().contains("closed"));
    assert_eq!(error.into_inner()(&mut 9), 9);
}

#[test]
fn try_run_within_a_job_of_the_same_executor_is_refused() {
    let executor = SerialExecutor::new(());
    let again = executor.clone();
    let inner = ready(executor.submit(move |()| again.try_run(|()| ()).is_err()));
    assert!(inner.unwrap());
}

#[test]
fn try_run_lets_a_panic_go_on_and_poisons() {
    let executor = SerialExecutor::new(0);
    let job = |n: &mut i32| {
        *n = 1;
        panic!("on purpose");
    };
    let payload = catch_unwind(|| executor.try_run(job)).unwrap_err();
    assert_eq!(message(payload), "on purpose");
    assert!(executor.is_poisoned());
    assert_eq!(executor.metrics().panics, 1);

    assert!(executor.clear_poison());
    assert_eq!(executor.try_run(|n| *n).unwrap(), 1);
}

#[test]
fn try_run_runs_what_came_meanwhile() {
    let executor = SerialExecutor::new(0);
    let inner = executor.try_run(|n| {
        *n = 1;
        executor.submit(|n| *n + 1)
    });
    assert_eq!(ready(inner.unwrap()).unwrap(), 2);
}

// ===== jobs that submit =====

#[test]
fn a_job_submitted_from_a_job_runs_after_those_that_wait() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    let again = executor.clone();
    let first = executor.submit(move |list| {
        let inner = again.submit(|list: &mut Vec<_>| list.push("inner"));
        assert!(!inner.is_finished());
        list.push("first");
        inner
    });
    let second = executor.submit(|list| list.push("second"));
    busy.release();
    join(second).unwrap();
    join(join(first).unwrap()).unwrap();
    assert_eq!(
        ready(executor.submit(|list| list.clone())).unwrap(),
        ["first", "second", "inner"]
    );
}

#[test]
fn a_job_submits_to_another_executor_inline() {
    // In a runtime, which would be handed over to if it came to that.
    let runtime = current_thread();
    let _in = runtime.enter();
    let (outer, inner) = (SerialExecutor::new(()), SerialExecutor::new(()));
    let handle = outer.submit(move |()| inner.submit(|()| thread::current().id()));
    let nested = ready(handle).unwrap();
    assert_eq!(ready(nested).unwrap(), thread::current().id());
}

#[test]
fn two_executors_submit_to_each_other() {
    let (a, b) = (SerialExecutor::new("a"), SerialExecutor::new("b"));
    let (a_again, b_again) = (a.clone(), b.clone());
    let handle = a.submit(move |_| b_again.submit(move |_| a_again.submit(|name| *name)));
    let in_b = ready(handle).unwrap();
    let in_a = ready(in_b).unwrap();
    assert_eq!(ready(in_a).unwrap(), "a");
}

#[test]
fn jobs_of_many_executors_do_not_pile_up_on_one_stack() {
    const EXECUTORS: usize = 100_000;
    let runtime = multi_thread(2, "drain");
    let chain: Arc<[_]> = (0..EXECUTORS)
        .map(|_| SerialExecutor::new(0_usize))
        .collect();
    let deepest = Arc::new(AtomicUsize::new(0));
    let (end, has_ended) = channel();
    {
        let _in = runtime.enter();
        descend(&chain, 0, &deepest, end);
    }
    receive(&has_ended);
    for executor in chain.iter() {
        assert_eq!(join(executor.submit(|runs| *runs)).unwrap(), 1);
    }
    let deepest = deepest.load(Ordering::SeqCst);
    assert!((4..=100).contains(&deepest), "{deepest} jobs deep");
}

#[test]
fn without_a_runtime_nested_jobs_have_run_when_the_outermost_submit_returns() {
    let chain: Arc<[_]> = (0..50).map(|_| SerialExecutor::new(0_usize)).collect();
    let (end, has_ended) = channel();
    descend(&chain, 0, &Arc::default(), end);
    has_ended.try_recv().unwrap();
    for executor in chain.iter() {
        assert_eq!(ready(executor.submit(|runs| *runs)).unwrap(), 1);
    }
}

/// Has the job of each executor submit to the next one, and counts how many are on one stack.
fn descend(
    chain: &Arc<[SerialExecutor<usize>]>,
    index: usize,
    deepest: &Arc<AtomicUsize>,
    end: Sender<()>,
) {
    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    let Some(executor) = chain.get(index) else {
        end.send(()).unwrap();
        return;
    };
    let (chain, deepest) = (Arc::clone(chain), Arc::clone(deepest));
    drop(executor.submit(move |runs| {
        *runs += 1;
        DEPTH.set(DEPTH.get() + 1);
        deepest.fetch_max(DEPTH.get(), Ordering::SeqCst);
        descend(&chain, index + 1, &deepest, end);
        DEPTH.set(DEPTH.get() - 1);
    }));
}

// ===== panics =====

#[test]
fn the_panic_of_an_inline_job_is_an_error() {
    let executor = SerialExecutor::new(());
    let error = ready(executor.submit(|()| panic!("on purpose"))).unwrap_err();
    assert!(error.is_panic());
    assert_eq!(message(error.into_panic()), "on purpose");
    assert_eq!(executor.metrics().panics, 1);
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn the_panic_of_a_queued_job_does_not_reach_who_runs_it() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let handle = executor.submit(|()| panic!("on purpose"));
    busy.release();
    assert_eq!(
        message(join(handle).unwrap_err().into_panic()),
        "on purpose"
    );
}

#[test]
fn a_panic_poisons_until_that_is_cleared() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let before = executor.submit(|n| *n += 1);
    let panics = executor.submit(|n| {
        *n += 10;
        panic!("on purpose");
    });
    let captured = Drops::new();
    let queued: Vec<_> = (0..10)
        .map(|_| {
            let value = captured.value();
            executor.submit(move |_| drop(value))
        })
        .collect();
    busy.release();

    join(before).unwrap();
    assert!(join(panics).unwrap_err().is_panic());
    for handle in queued {
        assert!(join(handle).unwrap_err().is_poisoned());
    }
    assert_eq!(captured.count(), 10);
    assert!(executor.is_poisoned());
    assert!(ready(executor.submit(|n| *n)).unwrap_err().is_poisoned());
    assert_eq!(executor.metrics().panics, 1);

    assert!(executor.clear_poison());
    assert!(!executor.clear_poison());
    assert!(!executor.is_poisoned());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 11);
}

#[test]
fn who_is_told_of_a_panic_finds_the_state_poisoned() {
    for _ in 0..rounds(200, 20_000) {
        let executor = SerialExecutor::new(());
        let busy = occupy(&executor);
        let handle = executor.submit(|()| panic_any(()));
        thread::scope(|scope| {
            scope.spawn(|| busy.release());
            // Not `wait_until`: at once.
            let deadline = Instant::now() + PATIENCE;
            while !handle.is_finished() && Instant::now() < deadline {
                std::hint::spin_loop();
            }
            assert!(handle.is_finished());
            assert!(executor.is_poisoned());
            assert!(ready(executor.submit(|()| ())).unwrap_err().is_poisoned());
        });
    }
}

#[test]
fn with_continue_later_jobs_run_on_what_the_panic_left() {
    let executor = SerialExecutor::builder()
        .on_panic(OnPanic::Continue)
        .build(0);
    let busy = occupy(&executor);
    let panics = executor.submit(|n| {
        *n = 5;
        panic!("on purpose");
    });
    let after = executor.submit(|n| *n);
    busy.release();
    assert!(join(panics).unwrap_err().is_panic());
    assert_eq!(join(after).unwrap(), 5);
    assert!(!executor.is_poisoned());
    assert!(!executor.clear_poison());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 5);
}

#[test]
fn a_panic_in_the_drop_of_captures_is_the_jobs() {
    let executor = SerialExecutor::new(0);
    let dropped = Drops::new();
    let bomb = PanicsOnDrop(dropped.value());
    let handle = executor.submit(move |n| {
        let _bomb = &bomb;
        *n += 1;
    });
    assert!(ready(handle).unwrap_err().is_panic());
    assert_eq!(dropped.count(), 1);
    assert!(executor.clear_poison());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn a_panic_in_the_drop_of_aborted_captures_is_contained() {
    let executor = SerialExecutor::new(0);
    let dropped = Drops::new();
    let busy = occupy(&executor);
    let bomb = PanicsOnDrop(dropped.value());
    let aborted = executor.submit(move |_| drop(bomb));
    let next = executor.submit(|n| *n);
    aborted.abort();
    assert_eq!(dropped.count(), 1);
    assert!(ready(aborted).unwrap_err().is_cancelled());
    busy.release();
    assert_eq!(join(next).unwrap(), 0);
    assert!(!executor.is_poisoned());
}

#[test]
fn a_panic_in_the_drop_of_an_unwanted_output_is_contained() {
    let executor = SerialExecutor::new(0);
    let dropped = Drops::new();
    let busy = occupy(&executor);
    let bomb = PanicsOnDrop(dropped.value());
    drop(executor.submit(move |_| bomb));
    let next = executor.submit(|n| *n);
    busy.release();
    assert_eq!(join(next).unwrap(), 0);
    assert_eq!(dropped.count(), 1);
    assert!(!executor.is_poisoned());
}

#[test]
fn a_panic_in_the_drop_of_an_unwanted_panic_is_contained() {
    let executor = SerialExecutor::builder()
        .on_panic(OnPanic::Continue)
        .build(0);
    let dropped = Drops::new();
    let busy = occupy(&executor);
    let bomb = PanicsOnDrop(dropped.value());
    drop(executor.submit(move |_| panic_any(bomb)));
    let next = executor.submit(|n| *n);
    busy.release();
    assert_eq!(join(next).unwrap(), 0);
    assert_eq!(dropped.count(), 1);
}

#[test]
fn a_panic_that_panics_when_it_is_dropped_is_contained() {
    struct PanicsTwice(Drops);
    impl Drop for PanicsTwice {
        fn drop(&mut self) {
            panic_any(PanicsOnDrop(self.0.value()));
        }
    }

    let executor = SerialExecutor::new(0);
    let dropped = Drops::new();
    let busy = occupy(&executor);
    let bomb = PanicsTwice(dropped.clone());
    drop(executor.submit(move |_| bomb));
    let next = executor.submit(|n| *n);
    busy.release();
    assert_eq!(join(next).unwrap(), 0);
    assert_eq!((dropped.made(), dropped.count()), (1, 1));
}

#[test]
fn a_panic_that_goes_on_runs_what_was_left_to_its_job() {
    for panics in [false, true] {
        let executor = SerialExecutor::new(());
        let (ran, has_run) = channel();
        let deep = move || {
            ran.send(()).unwrap();
            assert!(!panics, "on purpose, while the other one goes on");
        };
        let payload = catch_unwind(|| {
            executor.try_run(|()| {
                nest(20, Box::new(deep));
                panic!("on purpose");
            })
        });
        assert_eq!(message(payload.unwrap_err()), "on purpose");
        has_run.try_recv().unwrap();
        assert!(executor.clear_poison());
        executor.try_run(|()| ()).unwrap();
    }
}

#[test]
fn a_job_that_blocks_on_the_runtime_that_runs_it_panics() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(());
    runtime.block_on(async {
        let blocks = executor.submit(|()| Handle::current().block_on(async {}));
        assert!(blocks.await.unwrap_err().is_panic());
        assert!(executor.clear_poison());
        executor.submit(|()| ()).await.unwrap();
    });
}

#[test]
fn a_panic_in_the_waker_of_a_handle_is_contained() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let mut watched = executor.submit(|n| *n += 1);
    let next = executor.submit(|n| *n);
    assert!(poll_with(&panicking_waker(), &mut watched).is_pending());
    busy.release();
    join(watched).unwrap();
    assert_eq!(join(next).unwrap(), 1);
    assert!(!executor.is_poisoned());
}

#[test]
fn a_panic_in_the_waker_of_one_who_wants_the_state_is_contained() {
    let executor = SerialExecutor::new(7);
    let busy = occupy(&executor);
    let waker = panicking_waker();
    let mut wanted = Box::pin(executor.clone().into_inner());
    assert!(poll_with(&waker, &mut wanted).is_pending());

    // The holder's `submit` returns as if nothing had been.
    busy.release();
    assert_eq!(ready(wanted).unwrap(), 7);

    let executor = SerialExecutor::new(7);
    let busy = occupy(&executor);
    let mut wanted = Box::pin(executor.clone().into_inner());
    assert!(poll_with(&waker, &mut wanted).is_pending());
    executor.close();
    busy.release();
    assert_eq!(ready(wanted).unwrap(), 7);
}

// ===== close =====

#[test]
fn a_closed_executor_refuses_and_runs_what_it_accepted() {
    let executor = SerialExecutor::new(0);
    assert!(!executor.is_closed());
    let busy = occupy(&executor);
    let accepted: Vec<_> = (0..5).map(|_| executor.submit(|n| *n += 1)).collect();
    executor.close();
    executor.close();
    assert!(executor.is_closed());

    let captured = Drops::new();
    let value = captured.value();
    let refused = executor.submit(move |_| drop(value));
    assert!(ready(refused).unwrap_err().is_closed());
    assert_eq!(captured.count(), 1);

    busy.release();
    for handle in accepted {
        join(handle).unwrap();
    }
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_closed());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 5);
}

#[test]
fn a_job_closes_its_own_executor() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let again = executor.clone();
    let closes = executor.submit(move |_| {
        again.close();
        again.submit(|_| ())
    });
    let accepted = executor.submit(|n| *n += 1);
    busy.release();
    let refused = join(closes).unwrap();
    assert!(ready(refused).unwrap_err().is_closed());
    join(accepted).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), 1);
}

#[test]
fn what_is_accepted_while_somebody_closes_is_run() {
    const THREADS: usize = 4;
    let runtime = multi_thread(1, "drain");
    for round in 0..rounds(300, 30_000) {
        let executor = SerialExecutor::builder()
            .capture_jobs(round % 3)
            .build(0_usize);
        let barrier = Barrier::new(THREADS + 1);
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let _in = runtime.enter();
                    barrier.wait();
                    let deadline = Instant::now() + PATIENCE;
                    // Until one is refused.
                    while join(executor.submit(|n| *n += 1)).is_ok() {
                        accepted.fetch_add(1, Ordering::SeqCst);
                        assert!(Instant::now() < deadline, "never closed");
                    }
                });
            }
            barrier.wait();
            wait_until("a job was accepted", || accepted.load(Ordering::SeqCst) > 0);
            executor.close();
        });
        let executed = block_on(executor.into_inner()).unwrap();
        assert_eq!(executed, accepted.into_inner());
    }
}

// ===== into_inner =====

#[test]
fn into_inner_waits_for_what_was_accepted() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    for n in 0..5 {
        drop(executor.submit(move |list| list.push(n)));
    }
    let mut inner = Box::pin(executor.clone().into_inner());
    assert!(poll(&mut inner).is_pending());
    assert!(executor.is_closed());
    busy.release();
    assert_eq!(block_on(inner).unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn into_inner_waits_for_a_drain_on_a_runtime() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0);
        for _ in 0..1_000 {
            drop(executor.post(|n| *n += 1));
        }
        assert_eq!(within(executor.into_inner()).await.unwrap(), 1_000);
    });
}

#[test]
fn into_inner_gives_a_poisoned_state_with_the_error() {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| {
        *n = 3;
        panic!("on purpose");
    }));
    let error = block_on(executor.into_inner()).unwrap_err();
    assert_eq!(format!("{error:?}"), "Poisoned(..)");
    assert_eq!(
        error.to_string(),
        "a job panicked and left the state poisoned"
    );
    assert!(matches!(error, IntoInnerError::Poisoned(3)));
}

#[test]
fn into_inner_gives_the_state_to_one() {
    let executor = SerialExecutor::new(1);
    let second = executor.clone();
    assert_eq!(ready(Box::pin(executor.into_inner())).unwrap(), 1);
    let error = ready(Box::pin(second.clone().into_inner())).unwrap_err();
    assert!(matches!(error, IntoInnerError::Taken));
    assert_eq!(format!("{error:?}"), "Taken");
    assert_eq!(
        error.to_string(),
        "the state was taken by another call of `into_inner`"
    );
    assert!(ready(second.submit(|_| ())).unwrap_err().is_closed());
}

#[test]
fn into_inner_gives_the_state_to_one_of_many_who_race() {
    const THREADS: usize = 4;
    for _ in 0..rounds(500, 50_000) {
        let dropped = Drops::new();
        let executor = SerialExecutor::new((0, dropped.value()));
        let barrier = Barrier::new(THREADS);
        let (done, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let executor = executor.clone();
                scope.spawn(|| {
                    barrier.wait();
                    if join(executor.submit(|(n, _)| *n += 1)).is_ok() {
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    match block_on(executor.into_inner()) {
                        Ok((n, _)) => taken.fetch_add(1 + n, Ordering::SeqCst),
                        Err(IntoInnerError::Taken) => 0,
                        Err(error) => panic!("{error}"),
                    };
                });
            }
        });
        assert_eq!(taken.into_inner(), 1 + done.into_inner());
        assert_eq!(dropped.count(), 1);
    }
}

#[test]
fn into_inner_loses_nothing_when_it_is_dropped() {
    let executor = SerialExecutor::new(5);
    let busy = occupy(&executor);
    {
        let mut inner = pin!(executor.clone().into_inner());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(inner.as_mut().poll(&mut cx).is_pending());
    }
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_closed());
    busy.release();
    assert_eq!(ready(Box::pin(executor.into_inner())).unwrap(), 5);
}

// ===== the end of the handles =====

#[test]
fn what_is_queued_runs_after_the_last_handle_was_dropped() {
    let runtime = current_thread();
    let dropped = Drops::new();
    let executor = SerialExecutor::new((0, dropped.value()));
    let handles: Vec<_> = {
        let _in = runtime.enter();
        let job = |_| {
            executor.post(|(n, _)| {
                *n += 1;
                *n
            })
        };
        (0..200).map(job).collect()
    };
    drop(executor);
    assert_eq!(dropped.count(), 0);

    runtime.block_on(async {
        for (index, handle) in handles.into_iter().enumerate() {
            assert_eq!(within(handle).await.unwrap(), index + 1);
        }
        within(async {
            while dropped.count() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    });
    drop(runtime);
    assert_eq!(dropped.count(), 1);
}

#[test]
fn the_last_handle_may_go_with_a_job() {
    let dropped = Drops::new();
    let executor = SerialExecutor::new(dropped.value());
    let busy = occupy(&executor);
    let last = executor.clone();
    let handle = executor.submit(move |_| drop(last));
    drop(executor);
    busy.release();
    join(handle).unwrap();
    wait_until("the state is dropped", || dropped.count() == 1);
}

#[test]
fn an_idle_executor_drops_its_state_with_its_last_handle() {
    let dropped = Drops::new();
    let executor = SerialExecutor::new(dropped.value());
    let clone = executor.clone();
    drop(executor);
    assert_eq!(dropped.count(), 0);
    drop(clone);
    assert_eq!(dropped.count(), 1);
}

// ===== the end of a job's handle =====

#[test]
fn an_output_is_dropped_once_whenever_the_handle_goes() {
    let executor = SerialExecutor::new(());
    let drops = Drops::new();

    // Before the job runs.
    let busy = occupy(&executor);
    let output = drops.value();
    drop(executor.submit(move |()| output));
    assert_eq!(drops.count(), 0);
    busy.release();
    assert_eq!(drops.count(), 1);

    // While it runs.
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let busy = occupy(&executor);
    let (output, passed) = (drops.value(), gate.clone());
    let handle = executor.submit(move |()| {
        entered.send(()).unwrap();
        passed.pass();
        output
    });
    thread::scope(|scope| {
        let released = scope.spawn(|| busy.release());
        receive(&has_entered);
        drop(handle);
        assert_eq!(drops.count(), 1);
        gate.open();
        released.join().unwrap();
    });
    assert_eq!(drops.count(), 2);

    // After it.
    let busy = occupy(&executor);
    let output = drops.value();
    let handle = executor.submit(move |()| output);
    busy.release();
    assert_eq!(drops.count(), 2);
    drop(handle);
    assert_eq!(drops.count(), 3);

    // After it ran inline.
    let output = drops.value();
    drop(executor.submit(move |()| output));
    assert_eq!(drops.count(), 4);
}

#[test]
fn an_output_is_dropped_once_when_the_handle_goes_at_the_same_time() {
    let executor = SerialExecutor::new(());
    let drops = Drops::new();
    let jobs = rounds(5_000, 500_000);
    let (send, receiver) = channel::<JoinHandle<_>>();
    thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop));
        let occupier = scope.spawn(|| {
            for _ in 0..jobs {
                drop(executor.submit(|()| ()));
            }
        });
        for _ in 0..jobs {
            let output = drops.value();
            send.send(executor.submit(move |()| output)).unwrap();
        }
        drop(send);
        occupier.join().unwrap();
    });
    block_on(executor.into_inner()).unwrap();
    assert_eq!(drops.count(), jobs);
}

// ===== abort =====

#[test]
fn an_aborted_job_drops_its_captures_at_once_and_is_skipped() {
    let executor = SerialExecutor::new(Vec::new());
    let captured = Drops::new();
    let busy = occupy(&executor);
    let first = executor.submit(|list| list.push(1));
    let value = captured.value();
    let second = executor.submit(move |list| {
        drop(value);
        list.push(2);
    });
    let third = executor.submit(|list| list.push(3));

    second.abort();
    second.abort();
    assert_eq!(captured.count(), 1);
    assert!(second.is_finished());
    assert!(ready(second).unwrap_err().is_cancelled());

    busy.release();
    join(first).unwrap();
    join(third).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), [1, 3]);
}

#[test]
fn a_job_that_runs_or_has_run_is_not_aborted() {
    let executor = SerialExecutor::new(0);
    let inline = executor.submit(|n| *n += 1);
    inline.abort();
    inline.abort_handle().abort();
    ready(inline).unwrap();

    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let busy = occupy(&executor);
    let passed = gate.clone();
    let running = executor.submit(move |n| {
        entered.send(()).unwrap();
        passed.pass();
        *n += 1;
    });
    thread::scope(|scope| {
        let released = scope.spawn(|| busy.release());
        receive(&has_entered);
        running.abort();
        assert!(!running.is_finished());
        gate.open();
        released.join().unwrap();
    });
    join(running).unwrap();
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 2);
}

#[test]
fn many_aborted_jobs_are_no_burden() {
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let jobs = rounds(10_000, 1_000_000);
    let busy = occupy(&executor);
    for _ in 0..jobs {
        let value = captured.value();
        executor.submit(move |_| drop(value)).abort();
    }
    assert_eq!(captured.count(), jobs);
    let last = executor.submit(|n| *n += 1);
    busy.release();
    join(last).unwrap();
}

#[test]
fn an_abort_races_with_the_run() {
    let executor = SerialExecutor::new(0_usize);
    let captured = Drops::new();
    let jobs = rounds(5_000, 500_000);
    let (send, receiver) = channel::<JoinHandle<()>>();
    let ran = thread::scope(|scope| {
        let aborter = scope.spawn(move || {
            let outcome = |handle: JoinHandle<()>| {
                handle.abort();
                match join(handle) {
                    Ok(()) => 1,
                    Err(error) if error.is_cancelled() => 0,
                    Err(error) => panic!("{error}"),
                }
            };
            receiver.into_iter().map(outcome).sum::<usize>()
        });
        for _ in 0..jobs {
            let value = captured.value();
            // Queued: the executor is busy with the outer job.
            let (again, send) = (executor.clone(), send.clone());
            drop(executor.submit(move |_| {
                let inner = again.submit(move |ran| {
                    *ran += 1;
                    drop(value);
                });
                send.send(inner).unwrap();
            }));
        }
        drop(send);
        aborter.join().unwrap()
    });
    assert_eq!(captured.count(), jobs);
    assert_eq!(block_on(executor.into_inner()).unwrap(), ran);
}

// ===== all at once =====

#[test]
fn results_are_those_of_one_thread_in_some_order() {
    const THREADS: u64 = 8;
    let jobs = rounds(1_500, 150_000);
    let runtime = multi_thread(2, "drain");
    let executor = SerialExecutor::builder()
        .capture_jobs(2)
        .build(Recorded::default());
    let clock = AtomicU64::new(0);
    let mut history: Vec<Event> = thread::scope(|scope| {
        let client = |seed| {
            let (executor, clock, runtime) = (&executor, &clock, &runtime);
            move || {
                let _in = runtime.enter();
                let mut numbers = Numbers::new(seed);
                let event = |_| Event::record(executor, clock, &mut numbers);
                (0..jobs).map(event).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (1..=THREADS)
            .map(|seed| scope.spawn(client(seed)))
            .collect();
        let histories = threads.into_iter().map(|thread| thread.join().unwrap());
        histories.flatten().collect()
    });

    history.sort_unstable_by_key(|event| event.turn);
    let mut model = Recorded::default();
    let mut latest_begin = 0;
    for event in &history {
        assert_eq!(model.apply(event.operation), (event.turn, event.result));
        assert!(event.end > latest_begin, "{event:?} took effect too late");
        latest_begin = latest_begin.max(event.begin);
    }
    assert_eq!(block_on(executor.into_inner()).unwrap(), model);
}

/// A map that counts its operations.
#[derive(Debug, Default, PartialEq)]
struct Recorded {
    turn: usize,
    counters: HashMap<u64, u64>,
}

impl Recorded {
    fn apply(&mut self, operation: Operation) -> (usize, Option<u64>) {
        self.turn += 1;
        let result = match operation {
            Operation::Get(key) => self.counters.get(&key).copied(),
            Operation::Add(key, n) => {
                let counter = self.counters.entry(key).or_default();
                *counter += n;
                Some(*counter)
            }
            Operation::Remove(key) => self.counters.remove(&key),
        };
        (self.turn, result)
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u64),
    Add(u64, u64),
    Remove(u64),
}

/// An operation, when it was called and when it returned, and what it returned.
#[derive(Debug)]
struct Event {
    operation: Operation,
    begin: u64,
    end: u64,
    turn: usize,
    result: Option<u64>,
}

impl Event {
    fn record(
        executor: &SerialExecutor<Recorded>,
        clock: &AtomicU64,
        numbers: &mut Numbers,
    ) -> Self {
        let key = numbers.below(4);
        let operation = match numbers.below(4) {
            0 => Operation::Get(key),
            1 => Operation::Remove(key),
            _ => Operation::Add(key, numbers.below(10)),
        };
        let job = move |state: &mut Recorded| state.apply(operation);
        let begin = clock.fetch_add(1, Ordering::SeqCst);
        let (turn, result) = match numbers.below(4) {
            0 => join(executor.post(job)).unwrap(),
            1 => match executor.try_run(job) {
                Ok(result) => result,
                Err(busy) => join(executor.submit(busy.into_inner())).unwrap(),
            },
            _ => join(executor.submit(job)).unwrap(),
        };
        Self {
            operation,
            begin,
            end: clock.fetch_add(1, Ordering::SeqCst),
            turn,
            result,
        }
    }
}

#[test]
fn many_tasks_share_one_executor() {
    multi_thread(2, "worker").block_on(async {
        let executor = SerialExecutor::new(0_usize);
        let jobs = rounds(2_000, 200_000);
        let tasks = (0..16).map(|_| {
            let executor = executor.clone();
            tokio::spawn(async move {
                for _ in 0..jobs {
                    executor.submit(|n| *n += 1).await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            within(task).await.unwrap();
        }
        assert_eq!(within(executor.into_inner()).await.unwrap(), 16 * jobs);
    });
}

// ===== metrics and texts =====

#[test]
fn metrics_count_what_was_done() {
    let executor = SerialExecutor::builder()
        .on_panic(OnPanic::Continue)
        .build(());
    let counts = || {
        let metrics = executor.metrics();
        [
            metrics.inline,
            metrics.queued,
            metrics.captured,
            metrics.handed_over,
            metrics.panics,
        ]
    };
    assert_eq!(counts(), [0, 0, 0, 0, 0]);

    drop(executor.submit(|()| ()));
    executor.try_run(|()| ()).unwrap();
    drop(executor.submit(|()| panic!("on purpose")));
    assert_eq!(counts(), [3, 0, 0, 0, 1]);

    let busy = occupy(&executor);
    for _ in 0..4 {
        drop(executor.submit(|()| ()));
    }
    drop(executor.submit(|()| panic!("on purpose")));
    assert_eq!(counts(), [3, 0, 0, 0, 1]);
    busy.release();
    assert_eq!(counts(), [4, 5, 5, 0, 2]);

    let runtime = current_thread();
    {
        let _in = runtime.enter();
        for _ in 0..3 {
            drop(executor.post(|()| ()));
        }
    }
    assert_eq!(counts(), [4, 5, 5, 1, 2]);
    runtime.block_on(executor.post(|()| ())).unwrap();
    assert_eq!(counts(), [4, 9, 5, 1, 2]);
    assert_eq!(executor.metrics(), executor.metrics().clone());
}

#[test]
fn an_executor_tells_its_condition() {
    let executor = SerialExecutor::new(());
    let text = format!("{executor:?}");
    assert!(text.contains("busy: false"), "{text}");
    assert!(text.contains("inline: 0"), "{text}");

    let busy = occupy(&executor);
    let text = format!("{executor:?}");
    assert!(text.contains("busy: true"), "{text}");
    busy.release();

    drop(executor.submit(|()| panic!("on purpose")));
    executor.close();
    let text = format!("{executor:?}");
    assert!(text.contains("closed: true"), "{text}");
    assert!(text.contains("poisoned: true"), "{text}");

    let text = format!("{:?}", SerialExecutor::builder().capture_jobs(3));
    assert!(text.contains("capture_jobs: 3"), "{text}");
}
