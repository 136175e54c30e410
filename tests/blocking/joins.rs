//! Tasks that wait for tasks of their own pool.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use throng::blocking::Overflow;
use throng::{AbortHandle, BlockingPool, JoinError, JoinHandle};
use tokio::runtime::Handle;

use crate::pools::{Busy, jitter, output, rounds_for, when, when_idle};
use crate::support::{
    Drops, Gate, Numbers, block_on, message, multi_thread, poll, receive, thread_name,
};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

/// Runs a closure on the pool, to which it passes the pool.
#[track_caller]
fn on<R: Send + 'static>(
    pool: &BlockingPool,
    f: impl FnOnce(&BlockingPool) -> R + Send + 'static,
) -> R {
    let own = pool.clone();
    output(pool.spawn_blocking(move || f(&own)))
}

/// Waits until no task waits, and all threads are idle.
#[track_caller]
fn assert_back_to(pool: &BlockingPool, threads: usize) {
    let threads = threads as u64;
    let metrics = when(pool, |metrics| {
        metrics.threads <= threads && metrics.idle == metrics.threads
    });
    assert_eq!((metrics.blocked, metrics.queued), (0, 0));
    let ended = metrics.completed + metrics.panicked + metrics.cancelled;
    assert_eq!(ended, metrics.submitted, "{metrics:?}");
}

fn nested(pool: &BlockingPool, depth: u32) -> u32 {
    if depth == 0 {
        return 0;
    }
    let own = pool.clone();
    let inner = pool.spawn_blocking(move || nested(&own, depth - 1));
    inner.blocking_join().unwrap() + 1
}

#[test]
fn one_thread_is_enough_for_tasks_that_wait_for_tasks() {
    let pool = of(1);
    assert_eq!(on(&pool, |pool| nested(pool, 5)), 5);
    assert_back_to(&pool, 1);
    let metrics = pool.metrics();
    assert_eq!((metrics.largest, metrics.completed), (1, 6));
}

#[test]
fn a_queued_task_is_run_by_the_thread_that_waits_for_it() {
    let pool = of(1);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let (outer, inner) = on(&pool, move |pool| {
        let inner = pool.spawn_blocking(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            thread::current().id()
        });
        (thread::current().id(), inner.blocking_join().unwrap())
    });
    assert_eq!(outer, inner);
    assert_back_to(&pool, 1);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn an_awaited_task_runs_before_older_queued_tasks() {
    let pool = of(1);
    let ran = on(&pool, |pool| {
        let (ran, order) = mpsc::channel();
        let mut handles: Vec<_> = (0..4)
            .map(|n| {
                let ran = ran.clone();
                pool.spawn_blocking(move || ran.send(n).unwrap())
            })
            .collect();
        handles.pop().unwrap().blocking_join().unwrap();
        (order.try_iter().collect::<Vec<_>>(), order)
    });
    assert_eq!(ran.0, [3]);
    assert_back_to(&pool, 1);
    assert_eq!(ran.1.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

/// A task that runs until the gate is opened. It runs when this returns.
fn held_by(gate: &Gate, pool: &BlockingPool) -> JoinHandle<String> {
    let (started, starts) = mpsc::channel();
    let gate = gate.clone();
    let handle = pool.spawn_blocking(move || {
        started.send(()).unwrap();
        gate.pass();
        String::from("let go")
    });
    receive(&starts);
    handle
}

/// Both threads wait for a task that only a third can run.
#[test]
fn a_compensating_thread_runs_for_one_that_waits() {
    let pool = of(2);
    let gate = Gate::new();
    let running = held_by(&gate, &pool);
    let waiting = pool.spawn_blocking(move || running.blocking_join().unwrap());
    when(&pool, |metrics| metrics.blocked == 1);
    output(pool.spawn_blocking(move || gate.open()));
    assert_eq!(output(waiting), "let go");
    assert_eq!(pool.metrics().largest, 3);
    assert_back_to(&pool, 2);
}

/// The task that releases the others is queued already.
#[test]
fn a_compensating_thread_is_created_for_queued_tasks() {
    let pool = of(2);
    let (gate, begin) = (Gate::new(), Gate::new());
    let running = held_by(&gate, &pool);
    let waiting = pool.spawn_blocking({
        let begin = begin.clone();
        move || {
            begin.pass();
            running.blocking_join().unwrap()
        }
    });
    when(&pool, |metrics| metrics.busy == 2);
    let queued = pool.spawn_blocking(move || gate.open());
    assert_eq!(pool.metrics().queued, 1);
    begin.open();
    output(queued);
    assert_eq!(output(waiting), "let go");
    assert_back_to(&pool, 2);
}

type End = Result<(), JoinError>;

const BOTH_WAYS: [fn(JoinHandle<()>) -> End; 2] =
    [JoinHandle::blocking_join, |handle| block_on(handle)];

/// A chain of tasks, each of which waits for the one before it.
fn row(
    pool: &BlockingPool,
    first: JoinHandle<()>,
    tasks: usize,
    way: fn(JoinHandle<()>) -> End,
    waited: &mpsc::Sender<End>,
) -> JoinHandle<()> {
    let before = pool.metrics().blocked;
    (1..=tasks).fold(first, |last, n| {
        let waited = waited.clone();
        let next = pool.spawn_blocking(move || waited.send(way(last)).unwrap());
        when(pool, |metrics| metrics.blocked == before + n as u64);
        next
    })
}

/// All allowed threads but one wait for a task that has started.
#[test]
fn all_threads_but_one_may_wait_for_tasks_that_have_started() {
    const MAX: usize = 3;
    for way in BOTH_WAYS {
        let pool = of(MAX);
        let gate = Gate::new();
        let (waited, waits) = mpsc::channel();
        let held = held_by(&gate, &pool);
        let first = pool.spawn_blocking(move || _ = held.blocking_join().unwrap());
        when(&pool, |metrics| metrics.blocked == 1);
        let last = row(&pool, first, 2 * MAX - 2, way, &waited);
        // There is no thread for it.
        let late = pool.spawn_blocking(move || last.blocking_join());
        let metrics = pool.metrics();
        let counts = [metrics.blocked, metrics.threads, metrics.queued];
        assert_eq!(counts, [2 * MAX - 1, 2 * MAX, 1].map(|n| n as u64));
        gate.open();
        for _ in 0..2 * MAX - 2 {
            receive(&waits).unwrap();
        }
        output(late).unwrap();
        assert_back_to(&pool, MAX);
        assert_eq!(pool.metrics().largest, 2 * MAX as u64);
    }
}

/// A wait that is over does not count as one that would never end.
#[test]
fn a_task_that_has_waited_can_be_awaited() {
    let pool = of(1);
    let gate = Gate::new();
    let (tell, told) = mpsc::channel();
    let (own, goes_on) = (pool.clone(), gate.clone());
    let has_waited = pool.spawn_blocking(move || {
        // It polls, so a compensating thread runs it.
        tell.send(block_on(own.spawn_blocking(|| 7)).unwrap())
            .unwrap();
        goes_on.pass();
    });
    assert_eq!(receive(&told), 7);
    let waits = pool.spawn_blocking(move || has_waited.blocking_join());
    when(&pool, |metrics| metrics.blocked == 2 || waits.is_finished());
    gate.open();
    output(waits).unwrap();
    assert_back_to(&pool, 1);
}

/// The maximum was lowered, and all threads but one wait for a queued task: the last one takes it instead of exiting.
#[test]
fn the_last_thread_that_does_not_wait_does_not_exit() {
    let pool = of(2);
    let (gate, begin) = (Gate::new(), Gate::new());
    let running = held_by(&gate, &pool);
    let (own, begins) = (pool.clone(), begin.clone());
    let polls = pool.spawn_blocking(move || {
        begins.pass();
        block_on(own.spawn_blocking(|| 7)).unwrap()
    });
    when(&pool, |metrics| metrics.busy == 2);
    // Queued ahead of the task that is polled above.
    let waits = pool.spawn_blocking(move || polls.blocking_join().unwrap());
    let waits = pool.spawn_blocking(move || waits.blocking_join().unwrap());
    begin.open();
    when(&pool, |metrics| metrics.blocked == 3);
    assert_eq!(pool.metrics().queued, 1);
    pool.set_max_threads(1).unwrap();
    gate.open();
    assert_eq!(output(running), "let go");
    assert_eq!(output(waits), 7);
    assert_back_to(&pool, 1);
}

/// Each task waits for the one before it, and the first for the last: the wait that would close the circle fails, so
/// that all tasks end.
#[test]
fn a_circle_of_waits_is_an_error() {
    const MAX: usize = 3;
    for way in BOTH_WAYS {
        let pool = of(MAX);
        let (waited, waits) = mpsc::channel();
        let (give, given) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let first = pool.spawn_blocking(move || {
            started.send(()).unwrap();
            told.send(way(receive(&given))).unwrap();
        });
        // Otherwise, the task that waits for it might run it.
        receive(&starts);
        give.send(row(&pool, first, 2 * MAX - 1, way, &waited))
            .unwrap();
        let error = receive(&tells).unwrap_err();
        assert!(error.is_would_deadlock() && !error.is_cancelled() && !error.is_panic());
        for _ in 0..2 * MAX - 1 {
            receive(&waits).unwrap();
        }
        assert_eq!(output(pool.spawn_blocking(|| "runs")), "runs");
        assert_back_to(&pool, MAX);
        assert_eq!(pool.metrics().largest, 2 * MAX as u64);
    }
}

/// An abort does not end a running closure, so its task can close a circle.
#[test]
fn a_circle_through_a_task_that_was_aborted_while_it_runs_is_an_error() {
    for way in BOTH_WAYS {
        let pool = of(2);
        let (waited, waits) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let (give, given) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let first = pool.spawn_blocking(move || {
            started.send(()).unwrap();
            told.send(way(receive(&given))).unwrap();
        });
        receive(&starts);
        first.abort();
        give.send(row(&pool, first, 3, way, &waited)).unwrap();
        let error = receive(&tells).unwrap_err();
        assert!(error.is_would_deadlock(), "{error}");
        for _ in 0..3 {
            receive(&waits).unwrap();
        }
        assert_back_to(&pool, 2);
    }
}

/// Its drop sends a message, and blocks until the gate is open.
struct DropsSlowly(mpsc::Sender<()>, Gate);

impl Drop for DropsSlowly {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        self.1.pass();
    }
}

/// A task that another thread drops ends without a thread of the pool, so all of them may wait for it.
#[test]
fn a_task_that_is_being_dropped_can_be_awaited() {
    let ways: [fn(&BlockingPool, &AbortHandle); 3] = [
        |_, dropped| dropped.abort(),
        |pool, _| drop(pool.spawn_blocking(|| ())),
        |pool, _| _ = pool.shutdown_now(),
    ];
    for drop_it in ways {
        let mut builder = BlockingPool::builder();
        builder.max_threads(1).queue_capacity(2);
        let pool = builder.overflow(Overflow::DropOldest).build().unwrap();
        let (gate, (dropping, drops)) = (Gate::new(), mpsc::channel());
        let (give, given) = mpsc::channel::<JoinHandle<()>>();
        let (started, starts) = mpsc::channel();
        let own = pool.clone();
        let waits = pool.spawn_blocking(move || {
            let also_waits = own.spawn_blocking(move || {
                started.send(()).unwrap();
                receive(&given).blocking_join()
            });
            block_on(also_waits).unwrap()
        });
        // There is no third thread.
        receive(&starts);
        let captured = DropsSlowly(dropping, gate.clone());
        let dropped = pool.spawn_blocking(move || drop(captured));
        let (own, abort) = (pool.clone(), dropped.abort_handle());
        let drops_it = thread::spawn(move || drop_it(&own, &abort));
        receive(&drops);
        give.send(dropped).unwrap();
        when(&pool, |metrics| metrics.blocked == 2 || waits.is_finished());
        gate.open();
        let error = output(waits).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
        drops_it.join().unwrap();
    }
}

/// A way in which a task can wait for a handle.
type Way = fn(JoinHandle<String>) -> Result<String, JoinError>;

const WAYS: [Way; 4] = [
    JoinHandle::blocking_join,
    |handle| Handle::current().block_on(handle),
    |handle| futures::executor::block_on(handle),
    |handle| handle.abort_on_drop().detach().blocking_join(),
];

#[test]
fn polling_a_handle_counts_as_waiting() {
    let runtime = multi_thread(1, "worker");
    for way in WAYS {
        let pool = BlockingPool::builder()
            .name("polled")
            .max_threads(1)
            .runtime(runtime.handle().clone())
            .build()
            .unwrap();
        // No thread has started it: the waiting thread runs it, or a compensating one.
        let name = on(&pool, move |pool| way(pool.spawn_blocking(thread_name)));
        assert!(name.unwrap().starts_with("polled-"));
        // A thread has started it, and the task that releases it is queued.
        pool.set_max_threads(2).unwrap();
        let gate = Gate::new();
        let running = held_by(&gate, &pool);
        let waiting = pool.spawn_blocking(move || way(running).unwrap());
        when(&pool, |metrics| metrics.blocked == 1);
        output(pool.spawn_blocking(move || gate.open()));
        assert_eq!(output(waiting), "let go");
        assert_back_to(&pool, 2);
    }
}

/// The first task waits for a future that is polled after it, so the thread must not run that task meanwhile.
#[test]
fn polling_several_handles_does_not_run_the_first_task() {
    let pool = of(1);
    let (tell, told) = mpsc::channel();
    let sum = on(&pool, move |pool| {
        let waits = pool.spawn_blocking(move || receive(&told));
        let tells = async { tell.send(7).unwrap() };
        futures::executor::block_on(async { futures::join!(waits, tells).0 })
    });
    assert_eq!(sum.unwrap(), 7);
    assert_back_to(&pool, 1);
}

/// The thread counts as waiting until its own task has ended.
#[test]
fn an_abandoned_wait_counts_until_its_task_has_ended() {
    let pool = of(2);
    let (gate, goes_on) = (Gate::new(), Gate::new());
    let running = held_by(&gate, &pool);
    let waiting = pool.spawn_blocking({
        let goes_on = goes_on.clone();
        move || {
            assert!(poll(&mut Box::pin(running)).is_pending());
            goes_on.pass();
        }
    });
    when(&pool, |metrics| metrics.blocked == 1);
    assert_eq!(output(pool.spawn_blocking(|| "runs")), "runs");
    goes_on.open();
    output(waiting);
    gate.open();
    assert_back_to(&pool, 2);
}

#[test]
fn a_thread_does_not_run_a_task_of_another_pool() {
    let [pool, other] = ["waits", "runs"].map(|name| {
        let mut builder = BlockingPool::builder();
        builder.name(name).max_threads(1).build().unwrap()
    });
    let busy = Busy::keep(&other, 1);
    let elsewhere = other.spawn_blocking(thread_name);
    let (begins, began) = mpsc::channel();
    let waiting = pool.spawn_blocking(move || {
        begins.send(()).unwrap();
        elsewhere.blocking_join().unwrap()
    });
    receive(&began);
    assert_eq!(pool.metrics().blocked, 0);
    busy.release();
    assert_eq!(output(waiting), "runs-0");
    assert_eq!(
        (pool.metrics().largest, when_idle(&other).completed),
        (1, 2)
    );
}

#[test]
fn waiting_inside_reports_a_panic_and_an_abort() {
    let pool = of(1);
    let (panicked, cancelled) = on(&pool, |pool| {
        let panics = pool.spawn_blocking(|| panic!("as it should"));
        let aborted = pool.spawn_blocking(|| ());
        aborted.abort();
        let panicked: Result<(), _> = panics.blocking_join();
        (panicked.unwrap_err(), aborted.blocking_join().unwrap_err())
    });
    assert_eq!(message(panicked.into_panic()), "as it should");
    assert!(cancelled.is_cancelled());
    assert_back_to(&pool, 1);
    let metrics = pool.metrics();
    assert_eq!((metrics.completed, metrics.panicked), (1, 1));
    assert_eq!(metrics.cancelled, 1);
}

#[test]
fn a_task_run_by_the_waiting_thread_releases_its_permit() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .build()
        .unwrap();
    on(&pool, |pool| {
        for _ in 0..100 {
            let inner = pool.try_spawn_blocking(|| ()).expect("a permit is free");
            assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
            inner.blocking_join().unwrap();
        }
    });
    assert_back_to(&pool, 1);
    assert_eq!(pool.metrics().completed, 101);
}

#[test]
fn a_task_of_a_bulkhead_is_run_by_the_thread_that_waits_for_it() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let own = bulkhead.clone();
    let names = output(bulkhead.spawn_blocking(move || {
        let inner = [(); 3].map(|()| own.spawn_blocking(thread_name));
        inner.map(|inner| inner.blocking_join().unwrap())
    }));
    assert_eq!(names, [(); 3].map(|()| "throng-blocking-0"));
    assert_back_to(&pool, 1);
    let metrics = pool.metrics();
    assert_eq!((metrics.completed, metrics.largest), (4, 1));
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
}

/// A pool thread, a waiting thread and an abort compete for each task.
#[test]
fn a_task_is_started_once_by_a_thread_a_waiter_or_an_abort() {
    let pool = of(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let drops = Drops::new();
    let (hand, handed) = mpsc::channel::<AbortHandle>();
    let aborting = thread::spawn(move || {
        let mut numbers = Numbers::new(1);
        for task in handed {
            jitter(&mut numbers, 30);
            task.abort();
        }
    });
    let mut numbers = Numbers::new(2);
    let (mut returned, mut cancelled) = (0, 0);
    for n in rounds_for(1.0) {
        let (counted, value, hand) = (Arc::clone(&ran), drops.value(), hand.clone());
        let pause = numbers.below(40);
        let inner = on(&pool, move |pool| {
            let inner = pool.spawn_blocking(move || {
                drop(value);
                counted.fetch_add(1, Ordering::Relaxed)
            });
            if n % 2 == 0 {
                hand.send(inner.abort_handle()).unwrap();
            }
            jitter(&mut Numbers::new(n as u64), pause + 1);
            inner.blocking_join()
        });
        match inner {
            Ok(_) => returned += 1,
            Err(error) => {
                assert!(error.is_cancelled() && n % 2 == 0);
                cancelled += 1;
            }
        }
        assert_eq!(ran.load(Ordering::Relaxed), returned);
        assert_eq!(drops.count(), drops.made());
    }
    drop(hand);
    aborting.join().unwrap();
    assert_back_to(&pool, 2);
    let metrics = pool.metrics();
    assert_eq!(metrics.completed as usize, 2 * returned + cancelled);
    assert_eq!(metrics.cancelled as usize, cancelled);
}

/// Returns how a tree of tasks waits for the leaves of a branch at this depth.
type Join = fn(JoinHandle<usize>, u32) -> usize;

/// The number of leaves of a tree, whose branches are tasks.
fn leaves(pool: &BlockingPool, depth: u32, join: Join) -> usize {
    if depth == 0 {
        return 1;
    }
    let branches = [(); 2].map(|()| {
        let own = pool.clone();
        pool.spawn_blocking(move || leaves(&own, depth - 1, join))
    });
    // Other threads may start them now.
    thread::yield_now();
    branches
        .map(|branch| join(branch, depth - 1))
        .into_iter()
        .sum()
}

#[track_caller]
fn grow_trees(join: Join) {
    for threads in rounds_for(2.0).map(|round| round % 4 + 1) {
        let pool = of(threads);
        let roots: Vec<_> = (0..3)
            .map(|_| {
                let own = pool.clone();
                pool.spawn_blocking(move || leaves(&own, 6, join))
            })
            .collect();
        for root in roots {
            assert_eq!(output(root), 1 << 6);
        }
        assert_back_to(&pool, threads);
        assert!(pool.metrics().largest <= 2 * threads as u64);
    }
}

/// It has polled two tasks, and the one polled last has ended.
#[test]
fn a_thread_that_polls_two_tasks_waits_for_both() {
    for is_last in [false, true] {
        let pool = of(1);
        let (give, given) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let (polled, polls) = mpsc::channel();
        let gate = Gate::new();
        let (own, held) = (pool.clone(), gate.clone());
        let waits = pool.spawn_blocking(move || {
            let ends = own.spawn_blocking(move || held.pass());
            own.spawn_blocking(move || {
                let circle: JoinHandle<()> = receive(&given);
                told.send(circle.blocking_join()).unwrap();
            });
            let comes_last = own.spawn_blocking(|| ());
            let both = match is_last {
                true => [comes_last, ends],
                false => [ends, comes_last],
            };
            let both: FuturesUnordered<_> = both.into_iter().collect();
            let mut both = both.collect::<Vec<_>>();
            let ended = block_on(poll_fn(|cx| {
                let ended = both.poll_unpin(cx);
                polled.send(()).unwrap();
                ended
            }));
            assert!(ended.iter().all(Result::is_ok));
        });
        // It has polled both: it would run a task that it has not polled.
        receive(&polls);
        gate.open();
        give.send(waits).unwrap();
        let error = receive(&tells).unwrap_err();
        assert!(error.is_would_deadlock(), "{error}");
        when(&pool, |metrics| metrics.completed == 4);
    }
}

/// An awaited task has started on another thread, or the waiting thread runs it: no wait fails, however few threads
/// are allowed.
#[test]
fn fork_and_join_is_never_refused() {
    grow_trees(|branch, _| branch.blocking_join().expect("there is no circle of waits"));
}

/// Tasks that poll may all wait for tasks that have not started. The refused one counts its own leaves.
#[test]
fn trees_of_tasks_that_poll_end() {
    grow_trees(|branch, depth| match block_on(branch) {
        Ok(count) => count,
        Err(error) => {
            assert!(error.is_would_deadlock(), "{error}");
            1 << depth
        }
    });
}
