//! One job, or a few: what runs, in which order, and what its submitter is told.

use std::cell::Cell;
use std::thread;

use futures::TryFutureExt;
use throng::serial::{Level, Metrics, OnPanic};
use throng::{JoinHandle, SerialExecutor};

use crate::occupied::occupy;
use crate::support::{Drops, block_on, join, message, ready};

/// There is nothing to refuse: what is no job, or none for this state, does not compile.
#[test]
fn whatever_can_be_called_once_with_the_state_is_a_job() {
    fn named(n: &mut u32) -> u32 {
        *n
    }
    let executor = SerialExecutor::new(1);
    let pointer: fn(&mut u32) -> u32 = named;
    let boxed: Box<dyn FnOnce(&mut u32) -> u32 + Send> = Box::new(|n| *n);
    // Neither can be shared by threads, nor called twice.
    let (cell, list) = (Cell::new(0), vec![1]);
    let owns = move |n: &mut u32| {
        cell.set(*n);
        drop(list);
        cell.get()
    };
    let handles: [JoinHandle<u32>; 4] = [
        executor.submit(named),
        executor.submit(pointer),
        executor.submit(boxed),
        executor.submit(owns),
    ];
    assert_eq!(handles.map(|handle| ready(handle).unwrap()), [1; 4]);
}

#[test]
fn jobs_for_a_busy_executor_do_not_hold_up_their_submitter() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let queued: Vec<_> = (0..10).map(|_| executor.submit(|n| *n += 1)).collect();
    let last = executor.submit(|n| (*n, thread::current().id()));
    assert_eq!(executor.metrics().queue_length, 11);
    assert!(queued.iter().all(|handle| !handle.is_finished()));

    let holder = busy.release();
    let (n, ran_on) = join(last).unwrap();
    assert_eq!(n, 10);
    assert_eq!(ran_on, holder);
    assert_ne!(ran_on, thread::current().id());
}

/// It never was in the queue, so the queue has no part in it.
#[test]
fn a_job_that_ran_at_once_is_counted_as_such() {
    let executor = SerialExecutor::new(());
    assert_eq!(executor.metrics(), Metrics::default());
    let handle = executor.submit(|()| ());
    assert!(handle.is_finished());
    let metrics = executor.metrics();
    assert_eq!((metrics.inline, metrics.queued), (1, 0));
    assert_eq!((metrics.queue_length, metrics.max_queue_length), (0, 0));
    assert_eq!((metrics.captured, metrics.handed_over), (0, 0));
}

#[test]
fn the_queue_is_empty_again_when_its_job_has_run() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let queued = executor.submit(|()| ());
    assert_eq!(executor.metrics().queue_length, 1);
    busy.release();
    join(queued).unwrap();
    let metrics = executor.metrics();
    assert_eq!((metrics.queue_length, metrics.max_queue_length), (0, 1));
}

#[test]
fn jobs_that_were_queued_run_once_each() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    for name in ["a", "b", "c"] {
        drop(executor.submit(move |ran| ran.push(name)));
    }
    busy.release();
    assert_eq!(block_on(executor.into_inner()).unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_failure_goes_to_its_submitter_and_the_next_job_runs() {
    let executor = SerialExecutor::builder()
        .on_panic(OnPanic::Continue)
        .build(());
    let busy = occupy(&executor);
    let fails = executor.submit(|()| Err::<(), _>("the cause"));
    let panics = executor.submit(|()| -> () { panic!("the cause") });
    let next = executor.submit(|()| "fine");
    busy.release();
    assert_eq!(join(fails).unwrap(), Err("the cause"));
    assert_eq!(message(join(panics).unwrap_err().into_panic()), "the cause");
    assert_eq!(join(next).unwrap(), "fine");
}

#[test]
fn a_handle_gives_what_the_job_returned_or_what_was_supplied() {
    let executor = SerialExecutor::new(7);
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 7);
    let supplied = executor.submit(|n| *n += 1).map_ok(|()| "supplied");
    assert_eq!(ready(supplied).unwrap(), "supplied");
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 8);
}

#[test]
fn a_queued_job_that_is_aborted_never_runs() {
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let value = captured.value();
    let busy = occupy(&executor);
    let queued = executor.submit(move |n| {
        *n += 1;
        drop(value);
    });
    queued.abort();
    assert_eq!(captured.count(), 1);
    busy.release();
    assert!(ready(queued).unwrap_err().is_cancelled());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
}

#[test]
fn those_behind_an_aborted_job_run() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    let [first, aborted, last] =
        [1, 2, 3].map(|number| executor.submit(move |ran| ran.push(number)));
    aborted.abort();
    busy.release();
    join(first).unwrap();
    join(last).unwrap();
    assert_eq!(ready(executor.submit(|ran| ran.clone())).unwrap(), [1, 3]);
}

#[test]
fn a_job_that_submits_another_ends_before_that_begins() {
    let executor = SerialExecutor::new(Vec::new());
    let again = executor.clone();
    let outer = executor.submit(move |ran| {
        let inner = again.submit(|ran: &mut Vec<_>| ran.push("inner"));
        assert!(!inner.is_finished());
        ran.push("outer");
        inner
    });
    let inner = ready(outer).unwrap();
    ready(inner).unwrap();
    assert_eq!(
        ready(executor.submit(|ran| ran.clone())).unwrap(),
        ["outer", "inner"]
    );
}

#[test]
fn a_job_that_nobody_waits_for_runs() {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| *n += 1));
    let busy = occupy(&executor);
    drop(executor.submit(|n| *n += 1));
    busy.release();
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 2);
}

/// There are three levels, and no other value of their type: so none is refused.
#[test]
fn the_highest_level_runs_first_whatever_came_first() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    for level in [Level::LOW, Level::NORMAL, Level::HIGH] {
        drop(executor.submit_at(level, move |ran| ran.push(level)));
    }
    busy.release();
    assert_eq!(
        ready(executor.submit(|ran| ran.clone())).unwrap(),
        [Level::HIGH, Level::NORMAL, Level::LOW]
    );
}

/// Handles carry no mark of the submitter's; but each carries the name of its job, to tell by.
#[test]
fn the_name_of_a_job_stays_with_its_handles_and_its_error() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let first = executor.submit(|()| ());
    let second = executor.submit(|()| ());
    assert_ne!(first.id(), second.id());
    let (id, abort) = (first.id(), first.abort_handle());
    assert_eq!(abort.id(), id);
    abort.abort();
    assert_eq!(ready(first).unwrap_err().id(), id);
    busy.release();
    join(second).unwrap();
}
