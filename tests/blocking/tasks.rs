//! Single tasks: output, abort and order.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use throng::{BlockingPool, JoinHandle};

use crate::pools::{Busy, output, run, when, when_idle};
use crate::support::{Gate, join, receive, thread_name, wait_until};

fn one_thread() -> BlockingPool {
    BlockingPool::builder().max_threads(1).build().unwrap()
}

#[test]
fn a_handle_yields_the_output() {
    let pool = one_thread();
    let text = pool.spawn_blocking(|| String::from("text"));
    let large = pool.spawn_blocking(|| [7_u64; 1_000]);
    let captured = [3_u64; 1_000];
    let sum = pool.spawn_blocking(move || captured.iter().sum::<u64>());
    pool.spawn_blocking(|| ()).blocking_join().unwrap();
    run(async {
        assert_eq!(text.await.unwrap(), "text");
        assert_eq!(large.await.unwrap(), [7; 1_000]);
        assert_eq!(sum.await.unwrap(), 3_000);
    });
}

#[test]
fn threads_have_the_name_of_the_pool() {
    let pool = BlockingPool::builder().name("called-so").build().unwrap();
    assert_eq!(output(pool.spawn_blocking(thread_name)), "called-so-0");
}

#[test]
fn threads_that_are_not_async_can_wait() {
    let pool = one_thread();
    let busy = Busy::keep(&pool, 1);
    let waiting: Vec<_> = (0..4)
        .map(|n| {
            let handle = pool.spawn_blocking(move || n);
            thread::spawn(move || handle.blocking_join())
        })
        .collect();
    busy.release();
    for (n, thread) in waiting.into_iter().enumerate() {
        wait_until("the thread has its outcome", || thread.is_finished());
        assert_eq!(thread.join().unwrap().unwrap(), n);
    }
}

#[test]
fn a_handle_polled_once_can_be_awaited_later() {
    let pool = one_thread();
    let gate = Gate::new();
    let mut handle = pool.spawn_blocking({
        let gate = gate.clone();
        move || gate.pass()
    });
    run(async {
        let impatient = tokio::time::timeout(Duration::from_millis(1), &mut handle).await;
        assert!(impatient.is_err() && !handle.is_finished());
        gate.open();
        handle.await.unwrap();
    });
}

#[test]
fn a_task_whose_handle_is_dropped_still_runs() {
    let pool = one_thread();
    let busy = Busy::keep(&pool, 1);
    let (ran, runs) = mpsc::channel();
    drop(pool.spawn_blocking(move || ran.send(()).unwrap()));
    busy.release();
    receive(&runs);
}

/// Counts its holders, and whether it was run.
#[derive(Clone, Default)]
struct Captured {
    holders: Arc<()>,
    ran: Arc<AtomicBool>,
}

impl Captured {
    fn spawn_on(&self, pool: &BlockingPool) -> JoinHandle<()> {
        let this = self.clone();
        pool.spawn_blocking(move || this.ran.store(true, Ordering::Relaxed))
    }

    fn is_dropped_unrun(&self) -> bool {
        Arc::strong_count(&self.holders) == 1 && !self.ran.load(Ordering::Relaxed)
    }
}

#[test]
fn an_abort_before_the_start_drops_the_captures_at_once() {
    let pool = one_thread();
    let busy = Busy::keep(&pool, 1);
    let captured = Captured::default();
    let handle = captured.spawn_on(&pool);
    handle.abort();
    // The only thread is still busy, so this thread has dropped them.
    assert!(captured.is_dropped_unrun());
    assert!(handle.is_finished());
    let error = join(handle).unwrap_err();
    assert!(error.is_cancelled() && !error.is_panic() && !error.is_rejected());
    busy.release();
    let metrics = when(&pool, |metrics| metrics.cancelled == 1);
    assert_eq!((metrics.submitted, metrics.completed), (2, 1));
}

#[test]
fn an_abort_handle_outlives_the_handle() {
    let pool = one_thread();
    let busy = Busy::keep(&pool, 1);
    let captured = Captured::default();
    let handle = captured.spawn_on(&pool);
    let abort = handle.abort_handle();
    assert_eq!(abort.id(), handle.id());
    drop(handle);
    assert!(!abort.is_finished());
    abort.clone().abort();
    assert!(captured.is_dropped_unrun() && abort.is_finished());
    busy.release();
    when(&pool, |metrics| metrics.cancelled == 1);
    assert!(captured.is_dropped_unrun());
}

#[test]
fn an_abort_after_the_start_does_nothing() {
    let pool = one_thread();
    let gate = Gate::new();
    let (started, starts) = mpsc::channel();
    let handle = pool.spawn_blocking({
        let gate = gate.clone();
        move || {
            started.send(()).unwrap();
            gate.pass();
            "to its end"
        }
    });
    receive(&starts);
    handle.abort();
    assert!(!handle.is_finished());
    gate.open();
    wait_until("the task has ended", || handle.is_finished());
    handle.abort();
    assert_eq!(output(handle), "to its end");
    assert_eq!(when_idle(&pool).cancelled, 0);
}

#[test]
fn one_thread_starts_tasks_in_the_order_of_submission() {
    let pool = one_thread();
    let busy = Busy::keep(&pool, 1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let aborted = 10;
    for n in 0..100 {
        let order = Arc::clone(&order);
        let handle = pool.spawn_blocking(move || order.lock().unwrap().push(n));
        if n == aborted {
            handle.abort();
        }
    }
    busy.release();
    when_idle(&pool);
    let expected: Vec<_> = (0..100).filter(|n| *n != aborted).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn each_submitter_keeps_its_order_among_others() {
    let pool = one_thread();
    let order = Arc::new(Mutex::new(vec![Vec::new(); 4]));
    thread::scope(|scope| {
        for submitter in 0..4 {
            let (pool, order) = (&pool, &order);
            scope.spawn(move || {
                for n in 0..500 {
                    let order = Arc::clone(order);
                    drop(pool.spawn_blocking(move || order.lock().unwrap()[submitter].push(n)));
                }
            });
        }
    });
    when_idle(&pool);
    for of_one in order.lock().unwrap().iter() {
        assert!(of_one.iter().copied().eq(0..500));
    }
}

/// Uses the pool when it is dropped.
struct UsesPool {
    pool: BlockingPool,
    ran: mpsc::Sender<()>,
}

impl Drop for UsesPool {
    fn drop(&mut self) {
        let ran = self.ran.clone();
        drop(self.pool.spawn_blocking(move || ran.send(())));
        self.pool.metrics();
    }
}

#[test]
fn captures_and_outputs_may_use_the_pool_in_their_drop() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (ran, runs) = mpsc::channel();
    let uses_pool = || UsesPool {
        pool: pool.clone(),
        ran: ran.clone(),
    };
    let (aborted, captured, output) = (uses_pool(), uses_pool(), uses_pool());
    let busy = Busy::keep(&pool, 1);
    pool.spawn_blocking(move || drop(aborted)).abort();
    drop(pool.spawn_blocking(move || drop(captured)));
    drop(pool.spawn_blocking(move || output));
    busy.release();
    for _ in 0..3 {
        receive(&runs);
    }
}

/// Captures may use the pool that refuses their task.
#[test]
fn captures_of_a_refused_task_may_use_the_pool_in_their_drop() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let (ran, _runs) = mpsc::channel();
    let busy = Busy::keep(&pool, 1);
    let capture = UsesPool {
        pool: pool.clone(),
        ran,
    };
    let error = join(pool.spawn_blocking(move || drop(capture))).unwrap_err();
    assert!(error.is_rejected());
    busy.release();
    assert_eq!(when_idle(&pool).rejected, 2);
}

#[test]
fn a_thread_local_may_use_the_pool_in_its_destructor() {
    thread_local! {
        static OF_THREAD: Cell<Option<UsesPool>> = const { Cell::new(None) };
    }
    let pool = BlockingPool::builder()
        .max_threads(1)
        .keep_alive(Duration::ZERO)
        .build()
        .unwrap();
    let (ran, runs) = mpsc::channel();
    for _ in 0..20 {
        let of_thread = UsesPool {
            pool: pool.clone(),
            ran: ran.clone(),
        };
        output(pool.spawn_blocking(move || OF_THREAD.set(Some(of_thread))));
        // The thread is no longer one of the pool when its thread-locals are destroyed: another thread runs the task.
        receive(&runs);
    }
}

#[test]
fn metrics_add_up_when_idle() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .queue_capacity(3)
        .build()
        .unwrap();
    let busy = Busy::keep(&pool, 2);
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.busy, metrics.idle), (2, 2, 0));
    drop(pool.spawn_blocking(|| panic!("as it should")));
    drop(pool.spawn_blocking(|| ()));
    pool.spawn_blocking(|| ()).abort();
    assert_eq!((pool.metrics().queued, pool.metrics().cancelled), (2, 1));
    drop(pool.spawn_blocking(|| ()));
    assert_eq!(pool.metrics().queued, 3);
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    assert!(join(pool.spawn_blocking(|| ())).unwrap_err().is_rejected());
    busy.release();

    let metrics = when_idle(&pool);
    assert_eq!((metrics.threads, metrics.idle, metrics.busy), (2, 2, 0));
    assert_eq!((metrics.largest, metrics.queued), (2, 0));
    assert_eq!((metrics.submitted, metrics.rejected), (6, 2));
    let ended = (metrics.completed, metrics.panicked, metrics.cancelled);
    assert_eq!(ended, (4, 1, 1));
    assert_eq!(metrics.spawn_failures, 0);
}

/// An aborted task does not count as queued, before and after a thread finds its cell.
#[test]
fn an_aborted_task_is_not_queued() {
    let pool = one_thread();
    for _ in 0..2 {
        let busy = Busy::keep(&pool, 1);
        let aborted = pool.spawn_blocking(|| 1);
        let queued = pool.spawn_blocking(|| 2);
        assert_eq!(pool.metrics().queued, 2);
        aborted.abort();
        assert_eq!(pool.metrics().queued, 1);
        busy.release();
        assert_eq!(output(queued), 2);
        when_idle(&pool);
    }
}
