//! The last clone of a pool may be dropped anywhere: it closes the pool, and never blocks.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use throng::ComputePool;

use crate::pools::{Busy, of, output, run};
use crate::support::{Gate, TEST_TIMEOUT, receive};

/// Accepts tasks behind a gate, and returns what tells that they have run.
fn with_tasks_behind(gate: &Gate) -> (ComputePool, mpsc::Receiver<u32>) {
    let pool = of(1);
    let (ran, runs) = mpsc::channel();
    for n in 0..3 {
        let (gate, ran) = (gate.clone(), ran.clone());
        let task = move || {
            gate.pass();
            ran.send(n).unwrap();
        };
        match n {
            0 => pool.execute(task),
            1 => drop(pool.spawn(task)),
            _ => drop(pool.spawn_keyed("key", task)),
        }
    }
    (pool, runs)
}

#[track_caller]
fn assert_ran(runs: &mpsc::Receiver<u32>) {
    assert_eq!([(); 3].map(|()| receive(runs)), [0, 1, 2]);
}

/// Asserts that all senders are gone.
#[track_caller]
fn assert_hung_up<T: std::fmt::Debug + PartialEq>(runs: &mpsc::Receiver<T>) {
    let end = runs.recv_timeout(TEST_TIMEOUT);
    assert_eq!(end, Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn in_async_code() {
    run(async {
        let gate = Gate::new();
        let (pool, runs) = with_tasks_behind(&gate);
        drop(pool.clone());
        assert!(pool.try_execute(|| ()).is_ok());
        // If this waited for the tasks, nobody would open the gate.
        drop(pool);
        gate.open();
        assert_ran(&runs);
    });
}

#[test]
fn in_a_worker() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    let last = pool.spawn(move || drop(own));
    let behind_it = pool.spawn(|| "ran");
    drop(pool);
    gate.open();
    assert_ran(&runs);
    output(last);
    assert_eq!(output(behind_it), "ran");
}

#[test]
fn in_a_task_of_a_key() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    let last = pool.spawn_keyed("key", move || drop(own));
    let behind_it = pool.spawn_keyed("key", || "ran");
    drop(pool);
    gate.open();
    assert_ran(&runs);
    output(last);
    assert_eq!(output(behind_it), "ran");
}

#[test]
fn as_the_output_of_a_task_that_nobody_waits_for() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    drop(pool.spawn(move || own));
    drop(pool);
    gate.open();
    assert_ran(&runs);
}

#[test]
fn with_the_captures_of_an_aborted_task() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    let aborted = pool.spawn(move || drop(own));
    drop(pool);
    aborted.abort();
    gate.open();
    assert_ran(&runs);
}

#[test]
fn while_unwinding() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _pool = pool;
        panic!("as it should");
    }));
    assert!(unwound.is_err());
    gate.open();
    assert_ran(&runs);
}

#[test]
fn while_its_own_worker_unwinds() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    pool.execute(move || {
        let _own = own;
        panic!("as it should");
    });
    let behind_it = pool.spawn(|| "ran");
    drop(pool);
    gate.open();
    assert_ran(&runs);
    assert_eq!(output(behind_it), "ran");
}

/// Uses a pool, and drops it, when a thread ends.
struct AtTheEnd(ComputePool, mpsc::Sender<&'static str>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let tell = |what| {
            let ran = self.1.clone();
            move || ran.send(what).unwrap()
        };
        self.0.execute(tell("executed"));
        drop(self.0.spawn(tell("spawned")));
        drop(self.0.spawn_keyed("key", tell("keyed")));
        self.0.execute_batch([tell("batch")]);
    }
}

thread_local! {
    static AT_THE_END: Cell<Option<AtTheEnd>> = const { Cell::new(None) };
}

#[test]
fn in_the_destructor_of_a_thread_local() {
    for used_before in [false, true] {
        let pool = of(2);
        let (ran, runs) = mpsc::channel();
        thread::spawn(move || {
            // The thread-local variables of the pool may be there before, or not.
            if used_before {
                output(pool.spawn(|| ()));
            }
            AT_THE_END.set(Some(AtTheEnd(pool.clone(), ran)));
            if !used_before {
                output(pool.spawn(|| ()));
            }
        })
        .join()
        .unwrap();
        let mut seen: Vec<_> = (0..4).map(|_| receive(&runs)).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["batch", "executed", "keyed", "spawned"]);
        // The closures are gone, and with them the senders.
        assert_hung_up(&runs);
    }
}

/// The pool is closed then, or the thread would not end: it refuses.
#[test]
fn in_the_destructor_of_a_thread_local_of_a_worker() {
    let pool = of(1);
    let (ran, runs) = mpsc::channel();
    let own = pool.clone();
    output(pool.spawn(move || AT_THE_END.set(Some(AtTheEnd(own, ran)))));
    pool.close();
    run(pool.closed());
    drop(pool);
    assert_hung_up(&runs);
}

/// A thread-local of a worker uses another pool when the worker's own is gone.
#[test]
fn another_pool_can_be_used_in_the_destructor_of_a_thread_local_of_a_worker() {
    let (pool, other) = (of(2), of(1));
    let (ran, runs) = mpsc::channel();
    let own = other.clone();
    output(pool.spawn(move || AT_THE_END.set(Some(AtTheEnd(own, ran)))));
    drop(pool);
    for _ in 0..4 {
        receive(&runs);
    }
}

#[test]
fn threads_end_when_it_is_dropped() {
    struct TellsOfItsEnd(mpsc::Sender<()>);
    impl Drop for TellsOfItsEnd {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    thread_local! {
        static OF_THREAD: Cell<Option<TellsOfItsEnd>> = const { Cell::new(None) };
    }
    let pool = of(3);
    let (ended, ends) = mpsc::channel();
    let meeting = std::sync::Arc::new(std::sync::Barrier::new(3));
    let handles = [(); 3].map(|()| {
        let (ended, meeting) = (ended.clone(), meeting.clone());
        pool.spawn(move || {
            OF_THREAD.set(Some(TellsOfItsEnd(ended)));
            meeting.wait();
        })
    });
    handles.into_iter().for_each(output);
    Busy::keep(&pool, 3).release();
    assert!(ends.try_recv().is_err());
    drop(pool);
    for _ in 0..3 {
        receive(&ends);
    }
}
