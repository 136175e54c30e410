//! A pool that is made where the memory of another was, by a thread that was that one's worker: what the
//! thread was must not be mistaken for what it is.

#![cfg(target_os = "linux")]

use std::cell::Cell;
use std::sync::mpsc;

use crate::pools::{of, process, rest};
use crate::support::{receive, wait_until};

/// The number of pools. The memory of the first one is free after some milliseconds.
const POOLS: usize = 20;

/// Makes pools in a thread that was a worker, and uses them.
struct MakesPools(mpsc::Sender<usize>);

impl Drop for MakesPools {
    fn drop(&mut self) {
        for n in 0..POOLS {
            let (pool, ran) = (of(2), self.0.clone());
            // Its threads go to sleep first: one that is not woken sleeps on.
            rest(&pool);
            pool.execute(move || ran.send(n).unwrap());
            wait_until("the task has run", || pool.metrics().completed == 1);
        }
    }
}

thread_local! {
    static OF_WORKER: Cell<Option<MakesPools>> = const { Cell::new(None) };
}

#[test]
fn a_worker_that_was_is_a_stranger_to_the_next_pool() {
    let name = "same_address::a_worker_that_was_is_a_stranger_to_the_next_pool";
    // So that memory that was freed is used again at once, by any thread.
    let malloc = "export MALLOC_ARENA_MAX=1 GLIBC_TUNABLES=glibc.malloc.tcache_count=0";
    if !process::is_own(name, malloc) {
        return;
    }
    // It may be at the same address or not.
    for _ in 0..20 {
        let (ran, runs) = mpsc::channel();
        let pool = of(2);
        pool.execute(move || OF_WORKER.set(Some(MakesPools(ran))));
        drop(pool);
        // Each by a pool of its own, and so in any order.
        let mut ran: Vec<usize> = (0..POOLS).map(|_| receive(&runs)).collect();
        ran.sort_unstable();
        assert!(ran.into_iter().eq(0..POOLS));
    }
}
