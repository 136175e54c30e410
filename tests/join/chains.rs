//! Tasks that hold one another: dropping the first handle drops all, in little stack.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng::{AbortOnDropHandle, BlockingPool, JoinHandle, SerialExecutor};

use crate::support::{Drops, PanicsOnDrop, rounds, wait_until};
use crate::{busy_pool, with_little_stack};

type Output = Box<dyn Any + Send>;

fn length() -> usize {
    rounds(100_000, 1_000_000)
}

#[test]
fn a_chain_of_captures_is_dropped_in_little_stack() {
    let (pool, busy, gate) = busy_pool();
    let captured = Drops::new();
    let mut first = None::<AbortOnDropHandle<()>>;
    for _ in 0..length() {
        let (next, value) = (first.take(), captured.value());
        let task = move || drop((next, value));
        first = Some(pool.spawn_blocking(task).abort_on_drop());
    }
    with_little_stack(move || drop(first));
    assert_eq!(captured.count(), length());
    gate.open();
    busy.blocking_join().unwrap();
}

#[test]
fn a_chain_of_captures_that_panic_is_dropped_completely() {
    const LENGTH: usize = 300;
    let (pool, busy, gate) = busy_pool();
    let captured = Drops::new();
    let mut first = None::<AbortOnDropHandle<()>>;
    for _ in 0..LENGTH {
        let (next, value) = (first.take(), PanicsOnDrop(captured.value()));
        let task = move || drop((value, next));
        first = Some(pool.spawn_blocking(task).abort_on_drop());
    }
    with_little_stack(move || drop(first));
    assert_eq!(captured.count(), LENGTH);
    gate.open();
    busy.blocking_join().unwrap();
}

/// A chain of tasks that have ended. The output of each holds the handle of the next.
fn chain_of_outputs<H: Any + Send>(
    captured: &Drops,
    spawn: impl Fn(Output) -> JoinHandle<Output>,
    keep: impl Fn(JoinHandle<Output>) -> H,
) -> H {
    let mut first = keep(spawn(Box::new(())));
    for _ in 0..length() {
        first = keep(spawn(Box::new((captured.value(), first))));
    }
    first
}

#[test]
fn a_chain_of_outputs_is_dropped_in_little_stack() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let spawn = |output: Output| pool.spawn_blocking(move || output);
    let captured = Drops::new();
    let keep = JoinHandle::abort_on_drop;
    let first = chain_of_outputs(&captured, spawn, keep);
    wait_until("the tasks have ended", || first.is_finished());
    with_little_stack(move || drop(first));
    assert_eq!(captured.count(), length());

    // Handles that detach drop the outputs of tasks that have ended, too.
    let captured = Drops::new();
    let first = chain_of_outputs(&captured, spawn, |handle| handle);
    wait_until("the tasks have ended", || first.is_finished());
    with_little_stack(move || drop(first));
    assert_eq!(captured.count(), length());
}

#[test]
fn a_chain_of_ready_outputs_is_dropped_in_little_stack() {
    let executor = SerialExecutor::new(());
    let captured = Drops::new();
    let submit = |output: Output| executor.submit(move |()| output);
    let first = chain_of_outputs(&captured, submit, JoinHandle::abort_on_drop);
    with_little_stack(move || drop(first));
    assert_eq!(captured.count(), length());
}

/// The output of each job is one word, which is stored in its handle.
struct Link(#[allow(dead_code, reason = "it is only dropped")] Option<Box<JoinHandle<Self>>>);

#[test]
fn a_chain_of_outputs_in_their_handles_is_dropped_in_little_stack() {
    let executor = SerialExecutor::new(());
    let mut first = None;
    for _ in 0..length() {
        let next = Link(first.take().map(Box::new));
        first = Some(executor.submit(move |()| next));
    }
    with_little_stack(move || drop(first));
}

/// Aborts its task when it is dropped, and counts the tasks that had ended after the abort.
struct Aborts {
    task: JoinHandle<()>,
    ended: Arc<AtomicUsize>,
}

impl Drop for Aborts {
    fn drop(&mut self) {
        self.task.abort();
        let ended = usize::from(self.task.is_finished());
        self.ended.fetch_add(ended, Ordering::SeqCst);
    }
}

#[test]
fn an_abort_ends_its_task_at_once_at_any_depth() {
    const LENGTH: usize = 100;
    let (pool, busy, gate) = busy_pool();
    let ended = Arc::new(AtomicUsize::new(0));
    let mut first = None::<Aborts>;
    for _ in 0..LENGTH {
        let next = first.take();
        let task = pool.spawn_blocking(move || drop(next));
        let ended = Arc::clone(&ended);
        first = Some(Aborts { task, ended });
    }
    drop(first);
    assert_eq!(ended.load(Ordering::SeqCst), LENGTH);
    gate.open();
    busy.blocking_join().unwrap();
}
