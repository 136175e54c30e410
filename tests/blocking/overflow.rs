//! The policies for a full queue.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use throng::blocking::Overflow;
use throng::{BlockingPool, JoinHandle, Spawn, Work};

use crate::pools::{Busy, output, run, when_idle};
use crate::support::{Drops, PanicsOnDrop, join, message, ready, thread_name};

/// A pool with one busy thread and a queue of this capacity.
fn busy(overflow: Overflow, capacity: usize) -> (BlockingPool, Busy) {
    let pool = BlockingPool::builder()
        .name("small")
        .max_threads(1)
        .queue_capacity(capacity)
        .overflow(overflow)
        .build()
        .unwrap();
    let busy = Busy::keep(&pool, 1);
    (pool, busy)
}

/// Records where closures ran, and in which order.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Vec<(usize, String)>>>);

impl Ran {
    fn task(&self, n: usize) -> impl FnOnce() -> usize + Send + use<> {
        let ran = Self::clone(self);
        move || {
            ran.0.lock().unwrap().push((n, thread_name()));
            n
        }
    }

    fn order(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(|(n, _)| *n).collect()
    }

    fn threads(&self) -> Vec<String> {
        let ran = self.0.lock().unwrap();
        ran.iter().map(|(_, name)| name.clone()).collect()
    }
}

fn custom(handler: impl Fn(Work) + Send + Sync + 'static) -> Overflow {
    Overflow::Custom(Arc::new(handler))
}

fn every_policy(handled: &Arc<AtomicUsize>) -> [Overflow; 4] {
    let handled = Arc::clone(handled);
    [
        Overflow::Reject,
        Overflow::RunOnCaller,
        Overflow::DropOldest,
        custom(move |work| {
            handled.fetch_add(1, Ordering::Relaxed);
            work.run();
        }),
    ]
}

#[test]
fn try_spawn_returns_the_closure_whatever_the_policy() {
    let handled = Arc::new(AtomicUsize::new(0));
    for policy in every_policy(&handled) {
        let (pool, busy) = busy(policy, 1);
        let ran = Ran::default();
        let queued = pool.spawn_blocking(ran.task(1));
        let refused = pool.try_spawn_blocking(ran.task(2)).unwrap_err();
        assert!(refused.is_full());
        assert!(ran.order().is_empty() && !queued.is_finished());
        assert_eq!(refused.into_inner()(), 2);
        busy.release();
        assert_eq!(output(queued), 1);
        assert_eq!(when_idle(&pool).rejected, 1);
    }
    assert_eq!(handled.load(Ordering::Relaxed), 0);
}

#[test]
fn a_closed_pool_refuses_whatever_the_policy() {
    let handled = Arc::new(AtomicUsize::new(0));
    for policy in every_policy(&handled) {
        let (pool, busy) = busy(policy, 1);
        let queued = pool.spawn_blocking(|| "runs");
        pool.close();
        let ran = Ran::default();
        assert!(
            join(pool.spawn_blocking(ran.task(1)))
                .unwrap_err()
                .is_closed()
        );
        for handle in pool.spawn_batch([2, 3].map(|n| ran.task(n))) {
            assert!(join(handle).unwrap_err().is_closed());
        }
        busy.release();
        assert_eq!(output(queued), "runs");
        run(pool.closed());
        assert!(ran.order().is_empty());
        assert_eq!((pool.metrics().rejected, pool.metrics().completed), (3, 2));
    }
    assert_eq!(handled.load(Ordering::Relaxed), 0);
}

#[test]
fn a_rejected_task_reports_a_full_queue() {
    let (pool, busy) = busy(Overflow::Reject, 2);
    let ran = Ran::default();
    let mut handles = pool.spawn_batch([1, 2, 3, 4].map(|n| ran.task(n)));
    for handle in handles.split_off(2) {
        let error = ready(handle).unwrap_err();
        assert!(error.is_rejected() && !error.is_cancelled());
        assert!(error.to_string().contains("the queue is full"), "{error}");
    }
    busy.release();
    assert_eq!(handles.into_iter().map(output).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ran.order(), [1, 2]);
    assert_eq!(when_idle(&pool).rejected, 2);
}

#[test]
fn run_on_caller_runs_the_task_on_the_submitting_thread() {
    for policy in [Overflow::RunOnCaller, custom(Work::run)] {
        let (pool, busy) = busy(policy, 0);
        let ran = Ran::default();
        assert_eq!(ready(pool.spawn_blocking(ran.task(1))).unwrap(), 1);
        let batch = pool.spawn_batch([2, 3].map(|n| ran.task(n)));
        assert!(batch.iter().all(JoinHandle::is_finished));
        assert_eq!(batch.into_iter().map(output).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(ran.order(), [1, 2, 3]);
        assert_eq!(ran.threads(), [(); 3].map(|()| thread_name()));
        let panics = pool.spawn_blocking(|| panic!("as it should"));
        let error = ready::<JoinHandle<()>>(panics).unwrap_err();
        assert_eq!(message(error.into_panic()), "as it should");
        busy.release();
        let metrics = when_idle(&pool);
        assert_eq!((metrics.submitted, metrics.rejected), (1, 4));
        assert_eq!((metrics.completed, metrics.panicked), (1, 0));
    }
}

#[test]
fn only_run_on_any_caller_runs_a_task_inside_a_runtime() {
    let (pool, busy) = busy(Overflow::RunOnCaller, 0);
    let ran = Ran::default();
    run(async {
        let handles = pool.spawn_batch([ran.task(1)]);
        let handles = handles
            .into_iter()
            .chain([pool.spawn_blocking(ran.task(2))]);
        for handle in handles {
            let error = handle.await.unwrap_err();
            assert!(error.is_rejected());
            assert!(error.to_string().contains("`Overflow::Custom`"), "{error}");
        }
    });
    assert!(ran.order().is_empty());
    busy.release();

    let (pool, busy) = self::busy(custom(Work::run), 0);
    run(async {
        assert_eq!(ready(pool.spawn_blocking(ran.task(3))).unwrap(), 3);
    });
    assert_eq!(ran.threads(), [thread_name()]);
    busy.release();
}

/// The threads of the pool are in a runtime, but may block.
#[test]
fn run_on_caller_runs_the_task_on_a_pool_thread() {
    run(async {
        let pool = BlockingPool::builder()
            .name("own")
            .max_threads(1)
            .queue_capacity(0)
            .overflow(Overflow::RunOnCaller)
            .build()
            .unwrap();
        let own = pool.clone();
        let task = move || {
            assert!(tokio::runtime::Handle::try_current().is_ok());
            ready(own.spawn_blocking(thread_name)).unwrap()
        };
        assert_eq!(pool.spawn_blocking(task).await.unwrap(), "own-0");
    });
}

#[test]
fn drop_newest_drops_the_new_task() {
    let (pool, busy) = busy(custom(drop), 1);
    let (ran, drops) = (Ran::default(), Drops::new());
    let queued = pool.spawn_blocking(ran.task(1));
    let value = drops.value();
    let dropped = pool.spawn_blocking(move || drop(value));
    assert_eq!(drops.count(), 1);
    let panics = PanicsOnDrop(drops.value());
    let panicking = pool.spawn_blocking(move || drop(panics));
    assert_eq!(drops.count(), 2);
    assert!(ready(dropped).unwrap_err().is_cancelled());
    assert!(ready(panicking).is_err());
    for handle in pool.spawn_batch([2, 3].map(|n| ran.task(n))) {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    busy.release();
    assert_eq!(output(queued), 1);
    assert_eq!(ran.order(), [1]);
    let metrics = when_idle(&pool);
    assert_eq!((metrics.submitted, metrics.rejected), (2, 4));
    assert_eq!((metrics.completed, metrics.cancelled), (2, 0));
}

#[test]
fn drop_oldest_keeps_the_order_of_the_others() {
    let (pool, busy) = busy(Overflow::DropOldest, 3);
    let ran = Ran::default();
    let mut handles: Vec<_> = (0..5).map(|n| pool.spawn_blocking(ran.task(n))).collect();
    handles.extend(pool.spawn_batch([5, 6].map(|n| ran.task(n))));
    assert_eq!(pool.metrics().queued, 3);
    for dropped in handles.drain(..4) {
        assert!(ready(dropped).unwrap_err().is_cancelled());
    }
    busy.release();
    assert_eq!(
        handles.into_iter().map(output).collect::<Vec<_>>(),
        [4, 5, 6]
    );
    assert_eq!(ran.order(), [4, 5, 6]);
    let metrics = when_idle(&pool);
    assert_eq!((metrics.submitted, metrics.rejected), (8, 4));
    assert_eq!((metrics.completed, metrics.cancelled), (4, 4));
}

#[test]
fn drop_oldest_skips_aborted_tasks() {
    let (pool, busy) = busy(Overflow::DropOldest, 2);
    let ran = Ran::default();
    let [aborted, second, third] = [1, 2, 3].map(|n| {
        let handle = pool.spawn_blocking(ran.task(n));
        if n == 1 {
            handle.abort();
        }
        handle
    });
    assert!(ready(aborted).unwrap_err().is_cancelled());
    let fourth = pool.spawn_blocking(ran.task(4));
    assert!(ready(second).unwrap_err().is_cancelled());
    busy.release();
    assert_eq!((output(third), output(fourth)), (3, 4));
    assert_eq!(ran.order(), [3, 4]);
    let metrics = when_idle(&pool);
    assert_eq!((metrics.completed, metrics.cancelled), (3, 2));
}

#[test]
fn drop_oldest_rejects_if_no_task_waits() {
    let (pool, busy) = busy(Overflow::DropOldest, 0);
    let ran = Ran::default();
    for _ in 0..3 {
        let error = ready(pool.spawn_blocking(ran.task(1))).unwrap_err();
        assert!(error.is_rejected());
    }
    busy.release();
    assert!(ran.order().is_empty());
    // No permit was lost or released twice.
    let busy = Busy::keep(&pool, 1);
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    busy.release();
    assert_eq!(when_idle(&pool).rejected, 4);
}

#[test]
fn a_handler_may_run_pass_on_or_drop_a_task() {
    let spare = BlockingPool::builder().name("spare").build().unwrap();
    let next = AtomicUsize::new(0);
    let handler = custom(move |work| match next.fetch_add(1, Ordering::Relaxed) {
        0 => work.run(),
        1 => spare.spawn_work(work).unwrap(),
        2 => drop(work),
        _ => _ = thread::spawn(move || work.run()),
    });
    let (pool, busy) = busy(handler, 0);
    let [run, passed, dropped, taken] = [(); 4].map(|()| pool.spawn_blocking(thread_name));
    assert_eq!(ready(run).unwrap(), thread_name());
    assert_eq!(output(passed), "spare-0");
    assert!(ready(dropped).unwrap_err().is_cancelled());
    assert_eq!(output(taken), "");
    busy.release();
    let metrics = when_idle(&pool);
    assert_eq!((metrics.submitted, metrics.rejected), (1, 4));
}

#[test]
fn a_handler_that_panics_is_contained() {
    let (pool, busy) = busy(custom(|_| panic!("as it should")), 0);
    let (dropped, drops) = mpsc::channel::<()>();
    let handle = pool.spawn_blocking(move || dropped.send(()).unwrap());
    assert!(ready(handle).unwrap_err().is_cancelled());
    assert_eq!(drops.recv(), Err(mpsc::RecvError));
    for handle in pool.spawn_batch([|| 1, || 2]) {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    busy.release();
    assert_eq!(output(pool.spawn_blocking(|| "goes on")), "goes on");
}

/// A handler may submit to its own pool.
#[test]
fn a_handler_may_use_the_pool() {
    let own: Arc<Mutex<Option<BlockingPool>>> = Arc::default();
    let pool = Arc::clone(&own);
    let (pool_of, busy) = busy(
        custom(move |work| {
            let pool = pool.lock().unwrap().clone().expect("the pool is set");
            assert_eq!(pool.metrics().busy, 1);
            let refused = pool.spawn_work(work).unwrap_err();
            refused.run();
        }),
        0,
    );
    *own.lock().unwrap() = Some(pool_of.clone());
    assert_eq!(ready(pool_of.spawn_blocking(|| 1)).unwrap(), 1);
    own.lock().unwrap().take();
    busy.release();
}

#[test]
fn debug_output_names_the_policy() {
    let handled = Arc::default();
    let names = every_policy(&handled).map(|policy| format!("{policy:?}"));
    assert_eq!(names[1], "RunOnCaller");
    assert_eq!(names[3], "Custom(..)");
}
