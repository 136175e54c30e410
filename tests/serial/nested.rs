//! Jobs that submit jobs.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use throng::SerialExecutor;

use crate::occupied::occupy;
use crate::support::{current_thread, join, multi_thread, ready, receive};

#[test]
fn a_job_submitted_from_a_job_runs_after_those_that_wait() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    let again = executor.clone();
    let first = executor.submit(move |list| {
        let inner = again.submit(|list: &mut Vec<_>| list.push("inner"));
        assert!(!inner.is_finished());
        list.push("first");
        inner
    });
    let second = executor.submit(|list| list.push("second"));
    busy.release();
    join(second).unwrap();
    join(join(first).unwrap()).unwrap();
    assert_eq!(
        ready(executor.submit(|list| list.clone())).unwrap(),
        ["first", "second", "inner"]
    );
}

#[test]
fn a_job_submits_to_another_executor_inline() {
    // In a runtime, so that handing over would be possible.
    let runtime = current_thread();
    let _in = runtime.enter();
    let (outer, inner) = (SerialExecutor::new(()), SerialExecutor::new(()));
    let handle = outer.submit(move |()| inner.submit(|()| thread::current().id()));
    let nested = ready(handle).unwrap();
    assert_eq!(ready(nested).unwrap(), thread::current().id());
}

#[test]
fn two_executors_submit_to_each_other() {
    let (a, b) = (SerialExecutor::new("a"), SerialExecutor::new("b"));
    let (a_again, b_again) = (a.clone(), b.clone());
    let handle = a.submit(move |_| b_again.submit(move |_| a_again.submit(|name| *name)));
    let in_b = ready(handle).unwrap();
    let in_a = ready(in_b).unwrap();
    assert_eq!(ready(in_a).unwrap(), "a");
}

#[test]
fn the_nesting_of_jobs_is_bounded() {
    const EXECUTORS: usize = 100_000;
    let runtime = multi_thread(2, "drain");
    let chain: Arc<[_]> = (0..EXECUTORS)
        .map(|_| SerialExecutor::new(0_usize))
        .collect();
    let deepest = Arc::new(AtomicUsize::new(0));
    let (end, has_ended) = channel();
    {
        let _in = runtime.enter();
        descend(&chain, 0, &deepest, end);
    }
    receive(&has_ended);
    for executor in chain.iter() {
        assert_eq!(join(executor.submit(|runs| *runs)).unwrap(), 1);
    }
    let deepest = deepest.load(Ordering::SeqCst);
    assert!((4..=100).contains(&deepest), "{deepest} jobs deep");
}

#[test]
fn without_a_runtime_nested_jobs_have_run_when_the_outermost_submit_returns() {
    let chain: Arc<[_]> = (0..50).map(|_| SerialExecutor::new(0_usize)).collect();
    let (end, has_ended) = channel();
    descend(&chain, 0, &Arc::default(), end);
    has_ended.try_recv().unwrap();
    for executor in chain.iter() {
        assert_eq!(ready(executor.submit(|runs| *runs)).unwrap(), 1);
    }
}

/// Lets the job of each executor submit to the next one, and records the deepest nesting on one stack.
fn descend(
    chain: &Arc<[SerialExecutor<usize>]>,
    index: usize,
    deepest: &Arc<AtomicUsize>,
    end: Sender<()>,
) {
    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    let Some(executor) = chain.get(index) else {
        end.send(()).unwrap();
        return;
    };
    let (chain, deepest) = (Arc::clone(chain), Arc::clone(deepest));
    drop(executor.submit(move |runs| {
        *runs += 1;
        DEPTH.set(DEPTH.get() + 1);
        deepest.fetch_max(DEPTH.get(), Ordering::SeqCst);
        descend(&chain, index + 1, &deepest, end);
        DEPTH.set(DEPTH.get() - 1);
    }));
}
