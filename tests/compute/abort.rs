//! Aborts: before the start, after it, and long after the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use throng::{AbortHandle, ComputePool, JoinHandle};

use crate::pools::{Busy, Count, hunt, of, output, rest};
use crate::support::{Gate, Numbers, join, receive, wait_until};

/// Counts its holders, and records that it ran.
#[derive(Clone, Default)]
struct Captured {
    holders: Arc<()>,
    ran: Arc<AtomicBool>,
}

impl Captured {
    fn task(&self) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.ran.store(true, Ordering::Relaxed)
    }

    fn is_dropped_unrun(&self) -> bool {
        Arc::strong_count(&self.holders) == 1 && !self.ran.load(Ordering::Relaxed)
    }
}

/// Spawns a closure in some way.
type Way = fn(&ComputePool, Box<dyn FnOnce() + Send>) -> JoinHandle<()>;

const WAYS: [Way; 3] = [
    |pool, task| pool.spawn(task),
    |pool, task| pool.spawn_batch([task]).remove(0),
    |pool, task| pool.spawn_keyed("key", task),
];

#[test]
fn an_abort_before_the_start_drops_the_captures_at_once() {
    for spawn in WAYS {
        let pool = of(1);
        let busy = Busy::keep(&pool, 1);
        let captured = Captured::default();
        let handle = spawn(&pool, Box::new(captured.task()));
        handle.abort();
        // The only thread is busy still: it was this one that dropped them.
        assert!(captured.is_dropped_unrun() && handle.is_finished());
        handle.abort();
        let error = join(handle).unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic() && !error.is_rejected());
        busy.release();
        rest(&pool);
        assert!(captured.is_dropped_unrun());
    }
}

#[test]
fn aborted_tasks_are_counted_apart() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let handles = pool.spawn_batch((0..100).map(|_| || ()));
    handles.iter().step_by(2).for_each(JoinHandle::abort);
    busy.release();
    let metrics = rest(&pool);
    assert_eq!((metrics.completed, metrics.cancelled), (51, 50));
}

#[test]
fn an_abort_handle_outlives_the_handle() {
    for spawn in WAYS {
        let pool = of(1);
        let busy = Busy::keep(&pool, 1);
        let captured = Captured::default();
        let handle = spawn(&pool, Box::new(captured.task()));
        let abort = handle.abort_handle();
        assert_eq!(abort.id(), handle.id());
        drop(handle);
        assert!(!abort.is_finished());
        abort.clone().abort();
        assert!(captured.is_dropped_unrun() && abort.is_finished());
        busy.release();
        rest(&pool);
        assert!(captured.is_dropped_unrun());
    }
}

#[test]
fn an_abort_after_the_start_does_nothing() {
    for spawn in WAYS {
        let pool = of(1);
        let gate = Gate::new();
        let (started, starts) = mpsc::channel();
        let handle = spawn(&pool, {
            let gate = gate.clone();
            Box::new(move || {
                started.send(()).unwrap();
                gate.pass();
            })
        });
        receive(&starts);
        handle.abort();
        assert!(!handle.is_finished());
        gate.open();
        wait_until("the task has ended", || handle.is_finished());
        handle.abort();
        output(handle);
        assert_eq!(rest(&pool).cancelled, 0);
    }
}

#[test]
fn a_task_whose_handle_is_dropped_still_runs() {
    let (pool, ran) = (of(1), Count::default());
    let busy = Busy::keep(&pool, 1);
    for spawn in WAYS {
        drop(spawn(&pool, Box::new(ran.adder())));
    }
    busy.release();
    wait_until("they have run", || ran.get() == WAYS.len());
}

/// Aborts of tasks that have ended long ago, while thousands of others come and go in their memory.
#[test]
fn a_late_abort_ends_no_other_task() {
    const TASKS: usize = 1_000;
    for threads in [1, 2] {
        let pool = of(threads);
        let mut kept: Vec<AbortHandle> = Vec::new();
        for _ in 0..20 {
            let ran = Count::default();
            let handles: Vec<_> = (0..TASKS)
                .map(|n| WAYS[n % 3](&pool, Box::new(ran.adder())))
                .collect();
            // Now: their predecessors have all ended, and these are on their way.
            kept.iter().for_each(AbortHandle::abort);
            for abort in &kept {
                assert!(abort.is_finished());
            }
            kept = handles.iter().map(JoinHandle::abort_handle).collect();
            handles.into_iter().for_each(output);
            assert_eq!(ran.get(), TASKS);
        }
        // Some whose cells are gone but for the abort handle, and many others after them.
        let busy = Busy::keep(&pool, threads);
        let ran = Count::default();
        let handles = pool.spawn_batch((0..10 * TASKS).map(|_| ran.adder()));
        kept.iter().for_each(AbortHandle::abort);
        busy.release();
        handles.into_iter().for_each(output);
        assert_eq!(rest(&pool).cancelled, 0);
    }
}

#[test]
fn an_abort_handle_may_outlive_the_pool() {
    let pool = of(2);
    let handles = pool.spawn_batch((0..200).map(|n| move || n));
    let aborts: Vec<_> = handles.iter().map(JoinHandle::abort_handle).collect();
    assert!(handles.into_iter().map(output).eq(0..200));
    drop(pool);
    for abort in aborts {
        assert!(abort.is_finished());
        thread::spawn(move || abort.abort()).join().unwrap();
    }
}

/// One of the two wins: the task runs and yields, or it does not run and says so.
#[test]
fn an_abort_that_races_with_the_start_is_decided_once() {
    let pool = of(2);
    let mut numbers = Numbers::new(1);
    let (mut ran, mut aborted) = (0, 0);
    for _ in hunt(1.0) {
        for spawn in WAYS {
            let captured = Captured::default();
            let handle = spawn(&pool, Box::new(captured.task()));
            for _ in 0..numbers.below(2_000) {
                std::hint::spin_loop();
            }
            handle.abort();
            match join(handle) {
                Ok(()) => {
                    assert!(captured.ran.load(Ordering::Relaxed));
                    ran += 1;
                }
                Err(error) => {
                    assert!(error.is_cancelled() && captured.is_dropped_unrun());
                    aborted += 1;
                }
            }
        }
    }
    println!("{ran} ran, {aborted} were aborted");
}
