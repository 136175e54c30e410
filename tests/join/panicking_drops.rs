//! Captures, outputs and payloads whose drop panics. Whichever part drops them, the panic is contained: the caller
//! gets the outcome of the task, and the thread continues to run tasks.

use std::panic::panic_any;
use std::thread::ThreadId;

use throng::{ComputePool, JoinError};

use crate::parts::{Part, bounded_compute_pool};
use crate::support::{Drops, PanicsOnDrop, join, ready, wait_until};
use crate::{ended, inline};

/// Checks that the thread of the part still runs tasks, and how many tasks have panicked.
#[track_caller]
fn works(part: &Part, thread: ThreadId, panicked: u64) {
    assert_eq!(part.thread(), thread, "{part:?}");
    part.has_panicked(panicked);
}

#[test]
fn a_capture_of_an_aborted_task_may_panic() {
    for part in Part::all() {
        let thread = part.thread();
        let (busy, gate) = part.keep_busy();
        let captured = Drops::new();
        let value = PanicsOnDrop(captured.value());
        let aborted = part.spawn(move || drop(value));
        let value = PanicsOnDrop(captured.value());
        let dropped = part.spawn(move || drop(value)).abort_on_drop();
        aborted.abort();
        assert_eq!(captured.count(), 1);
        assert!(ready(aborted).unwrap_err().is_cancelled());
        drop(dropped);
        assert_eq!(captured.count(), 2);
        gate.open();
        join(busy).unwrap();
        works(&part, thread, 0);
    }
}

#[test]
fn a_capture_of_a_refused_task_may_panic() {
    for part in Part::all() {
        part.close();
        let captured = Drops::new();
        let value = PanicsOnDrop(captured.value());
        let refused = part.spawn(move || drop(value));
        assert!(ready(refused).unwrap_err().is_closed(), "{part:?}");
        assert_eq!(captured.count(), 1);
    }
}

#[test]
fn a_capture_that_panics_in_its_task_is_a_panic_of_the_task() {
    for part in Part::all() {
        let thread = part.thread();
        let captured = Drops::new();
        let value = PanicsOnDrop(captured.value());
        let task = part.spawn(move || drop(value));
        assert!(join(task).unwrap_err().is_panic());
        part.clear_poison();
        works(&part, thread, 1);

        // The same for a value that is dropped with the closure, after its body.
        let value = PanicsOnDrop(captured.value());
        let task = part.spawn(move || {
            let _value = &value;
        });
        assert!(join(task).unwrap_err().is_panic());
        assert_eq!(captured.count(), 2);
        part.clear_poison();
        works(&part, thread, 2);
    }
}

#[test]
fn an_output_without_a_reader_may_panic() {
    for part in Part::all() {
        let thread = part.thread();
        let outputs = Drops::new();
        // Dropped by the part.
        let (busy, gate) = part.keep_busy();
        let value = PanicsOnDrop(outputs.value());
        drop(part.spawn(move || value));
        gate.open();
        join(busy).unwrap();
        wait_until("the output is dropped", || outputs.count() == 1);
        works(&part, thread, 0);

        // Dropped with its handle.
        let value = PanicsOnDrop(outputs.value());
        let handle = part.spawn(move || value);
        wait_until("the task has ended", || handle.is_finished());
        drop(handle);
        assert_eq!(outputs.count(), 2);
        works(&part, thread, 0);
    }
}

/// Its drop panics with a payload whose drop panics as well.
struct PanicsTwice(Drops);

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        panic_any(PanicsOnDrop(self.0.value()));
    }
}

#[test]
fn a_panic_of_a_drop_may_panic_when_it_is_dropped() {
    for part in Part::all() {
        let thread = part.thread();
        let (busy, gate) = part.keep_busy();
        let payloads = Drops::new();
        let value = PanicsTwice(payloads.clone());
        drop(part.spawn(move || value));
        gate.open();
        join(busy).unwrap();
        wait_until("the payload is dropped", || payloads.count() == 1);
        assert_eq!(payloads.made(), 1);
        works(&part, thread, 0);
    }
}

/// A payload whose drop panics with a payload of the same kind, without end.
struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

#[test]
fn a_payload_without_a_reader_may_panic() {
    for part in Part::all() {
        let thread = part.thread();
        let payloads = Drops::new();
        let (busy, gate) = part.keep_busy();
        let value = PanicsOnDrop(payloads.value());
        drop(part.spawn(move || panic_any(value)));
        gate.open();
        join(busy).unwrap();
        wait_until("the payload is dropped", || payloads.count() == 1);
        part.clear_poison();
        works(&part, thread, 1);

        let (busy, gate) = part.keep_busy();
        drop(part.spawn(|| panic_any(Endless)));
        gate.open();
        join(busy).unwrap();
        part.has_panicked(2);
        part.clear_poison();
        works(&part, thread, 2);
    }
}

#[test]
fn an_output_is_dropped_with_its_handle() {
    let outputs = Drops::new();
    drop(inline(outputs.value()));
    assert_eq!(outputs.count(), 1);
    drop(inline([(); 3].map(|()| outputs.value())));
    assert_eq!(outputs.count(), 4);
    drop(ended(outputs.value()));
    assert_eq!(outputs.count(), 5);
    let mut handle = ended(outputs.value());
    let output = ready(&mut handle).unwrap();
    drop(handle);
    assert_eq!(outputs.count(), 5);
    drop(output);
    assert_eq!(outputs.count(), 6);

    // A panic in it is contained, wherever the output is stored.
    drop(ended(PanicsOnDrop(outputs.value())));
    drop(inline(PanicsOnDrop(outputs.value())));
    let large = (PanicsOnDrop(outputs.value()), [7_u8; 100]);
    drop(inline(large));
    assert_eq!(outputs.count(), 9);
}

/// A closure that must not run, and whose capture panics.
fn panics_on_drop(drops: &Drops) -> impl FnOnce() + Send + 'static {
    let capture = PanicsOnDrop(drops.value());
    move || {
        let _capture = &capture;
        unreachable!("it was refused");
    }
}

/// Lets the pool refuse closures through every method that accepts them.
fn refusals(pool: &ComputePool, is_as_expected: impl Fn(&JoinError) -> bool) {
    let drops = Drops::new();
    let one = pool.spawn(panics_on_drop(&drops));
    let keyed = pool.spawn_keyed("key", panics_on_drop(&drops));
    let many = pool.spawn_batch([panics_on_drop(&drops), panics_on_drop(&drops)]);
    for handle in many.into_iter().chain([one, keyed]) {
        let error = ready(handle).unwrap_err();
        assert!(is_as_expected(&error), "{error}");
    }
    assert_eq!(drops.count(), 4);
    assert_eq!(pool.metrics().rejected, 4);
}

#[test]
fn a_full_compute_pool_contains_panics_of_captures() {
    let pool = bounded_compute_pool();
    let permit = ready(Box::pin(pool.reserve())).unwrap();
    refusals(&pool, JoinError::is_rejected);
    drop(permit);
}

#[test]
fn a_closed_compute_pool_contains_panics_of_captures() {
    let pool = ComputePool::builder().threads(1).build().unwrap();
    pool.close();
    refusals(&pool, JoinError::is_closed);
    let pool = bounded_compute_pool();
    pool.close();
    refusals(&pool, JoinError::is_closed);
}
