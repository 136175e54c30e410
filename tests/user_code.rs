//! User code at its worst: wakers, captures and outputs that panic, or that hold each other.

#[path = "user_code/chains.rs"]
mod chains;
#[path = "user_code/handles.rs"]
mod handles;
#[path = "user_code/refused.rs"]
mod refused;
#[path = "user_code/stranger.rs"]
mod stranger;
mod support;
#[path = "user_code/under_locks.rs"]
mod under_locks;
#[path = "user_code/wakers.rs"]
mod wakers;

use std::sync::mpsc::channel;

use throng::{BlockingPool, JoinHandle};

use self::support::{Gate, receive};

/// A pool whose only thread is busy until the gate is opened, with the task that keeps it so.
fn busy_pool() -> (BlockingPool, JoinHandle<()>, Gate) {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (busy, gate) = keep_busy(&pool);
    (pool, busy, gate)
}

/// Keeps a thread of the pool busy until the gate is opened.
fn keep_busy(pool: &BlockingPool) -> (JoinHandle<()>, Gate) {
    let gate = Gate::new();
    let passed = gate.clone();
    let (entered, has_entered) = channel();
    let busy = pool.spawn_blocking(move || {
        entered.send(()).unwrap();
        passed.pass();
    });
    receive(&has_entered);
    (busy, gate)
}
