//! The handles of all parts, their errors and their ids, and user code that panics in drops and wakers.

#[path = "join/abort.rs"]
mod abort;
#[path = "join/chains.rs"]
mod chains;
#[path = "join/errors.rs"]
mod errors;
#[path = "join/faulty_waker.rs"]
mod faulty_waker;
#[path = "join/futures.rs"]
mod futures;
#[path = "join/handles.rs"]
mod handles;
#[path = "join/ids.rs"]
mod ids;
#[path = "join/limits.rs"]
mod limits;
#[path = "join/nesting.rs"]
mod nesting;
#[path = "join/on_pools.rs"]
mod on_pools;
#[path = "join/panicking_drops.rs"]
mod panicking_drops;
#[path = "join/parts.rs"]
mod parts;
#[path = "join/spawn.rs"]
mod spawn;
#[path = "join/submit_errors.rs"]
mod submit_errors;
mod support;
#[path = "join/types.rs"]
mod types;
#[path = "join/under_locks.rs"]
mod under_locks;
#[path = "join/wakers.rs"]
mod wakers;

use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle as ThreadHandle};

use throng::{BlockingPool, JoinHandle, SerialExecutor, spawn_blocking};

use self::support::{Gate, receive, wait_until};

/// A task that has started, and that ends with this output once the gate is opened.
fn held<T: Send + 'static>(output: T) -> (JoinHandle<T>, Gate) {
    let (task, has_started, gate) = gated(output);
    let handle = spawn_blocking(task);
    receive(&has_started);
    (handle, gate)
}

/// A closure that reports its start, and returns this output once the gate is opened.
fn gated<T: Send + 'static>(
    output: T,
) -> (
    impl FnOnce() -> T + Send + 'static,
    std::sync::mpsc::Receiver<()>,
    Gate,
) {
    let gate = Gate::new();
    let passed = gate.clone();
    let (started, has_started) = channel();
    let task = move || {
        started.send(()).unwrap();
        passed.pass();
        output
    };
    (task, has_started, gate)
}

/// A handle that is ready from the start.
fn inline<T: Send + 'static>(output: T) -> JoinHandle<T> {
    SerialExecutor::new(()).submit(move |()| output)
}

/// A handle whose task has ended on another thread.
fn ended<T: Send + 'static>(output: T) -> JoinHandle<T> {
    let handle = spawn_blocking(move || output);
    wait_until("the task has ended", || handle.is_finished());
    handle
}

/// A pool whose only thread is busy until the gate is opened, so that its tasks are queued.
fn busy() -> (BlockingPool, Gate) {
    let (pool, _busy, gate) = busy_pool();
    (pool, gate)
}

/// The same, with the task that keeps the thread busy.
fn busy_pool() -> (BlockingPool, JoinHandle<()>, Gate) {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (busy, gate) = keep_busy(&pool);
    (pool, busy, gate)
}

/// The same without a queue, so that tasks are refused.
fn busy_and_full() -> (BlockingPool, Gate) {
    let mut builder = BlockingPool::builder();
    let pool = builder.max_threads(1).queue_capacity(0).build().unwrap();
    let (_busy, gate) = keep_busy(&pool);
    (pool, gate)
}

/// Keeps a thread of the pool busy until the gate is opened.
fn keep_busy(pool: &BlockingPool) -> (JoinHandle<()>, Gate) {
    let (task, has_started, gate) = gated(());
    let busy = pool.spawn_blocking(task);
    receive(&has_started);
    (busy, gate)
}

/// An executor that another thread keeps busy until the gate is opened.
fn held_executor() -> (SerialExecutor<u8>, ThreadHandle<()>, Gate) {
    let executor = SerialExecutor::new(0);
    let (job, has_started, gate) = gated(());
    let holder = executor.clone();
    let busy = thread::spawn(move || drop(holder.submit(move |_| job())));
    receive(&has_started);
    (executor, busy, gate)
}

/// Runs on a thread with little stack.
fn with_little_stack(f: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(256 * 1024);
    thread.spawn(f).unwrap().join().unwrap();
}
