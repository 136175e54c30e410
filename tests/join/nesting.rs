//! Jobs of serial executors that are nested in one another.

use std::sync::Arc;

use throng::{JoinHandle, SerialExecutor};

use crate::with_little_stack;

/// Each executor's job submits to the next one.
fn chain(executors: Arc<Vec<SerialExecutor<usize>>>, at: usize) -> Option<JoinHandle<()>> {
    let next = Arc::clone(&executors);
    Some(executors.get(at)?.submit(move |runs| {
        *runs += 1;
        drop(chain(next, at + 1));
    }))
}

#[test]
fn a_chain_of_executors_runs_in_little_stack() {
    const LENGTH: usize = 100_000;
    let executors: Arc<Vec<_>> = Arc::new((0..LENGTH).map(|_| SerialExecutor::new(0)).collect());
    let walked = Arc::clone(&executors);
    let walk = move || drop(chain(walked, 0));
    // Without a runtime, this thread must run all of them.
    with_little_stack(walk);
    for executor in executors.iter() {
        assert_eq!(executor.try_run(|runs| *runs).unwrap(), 1);
    }
}
