//! Spinning for a busy executor: when it ends, and when it is paused.

use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};

use crate::inbox::Head;
use crate::join::{Spawn, Work, sealed};
use crate::serial::SerialExecutor;
use crate::serial::owner::Owner;

/// The word of a busy executor.
fn seen(executor: &SerialExecutor<()>) -> Head {
    Owner::acquire(&executor.core).err().unwrap()
}

#[test]
fn spinning_for_a_busy_executor_times_out_and_for_a_closed_one_ends_at_once() {
    let executor = SerialExecutor::new(());
    let core = &executor.core;
    let fails = || Owner::spin_acquire(core, seen(&executor)).is_err();
    let ran = executor.try_run(|()| {
        assert!(fails());
        assert!(core.cost.mean_ns() > 0, "it timed out");
        core.cost.set_mean_ns(0);
        core.poison();
        assert!(fails());
        assert!(core.clear_poison());
        core.close();
        assert!(fails());
    });
    assert!(ran.is_ok());
    assert_eq!(core.cost.mean_ns(), 0);
}

#[test]
fn spinning_for_an_idle_executor_acquires_it() {
    const MEAN_NS: usize = 600;
    let executor = SerialExecutor::new(());
    let busy = executor.try_run(|()| seen(&executor)).ok().unwrap();
    executor.core.cost.set_mean_ns(MEAN_NS);
    let Ok(owner) = Owner::spin_acquire(&executor.core, busy) else {
        panic!("it is idle");
    };
    assert!(executor.core.cost.mean_ns() < MEAN_NS);
    owner.finish();
    assert!(!executor.core.is_owned());
}

/// Polls each drain this many times on this thread, and then drops it.
struct Polls(usize);

impl sealed::Sealed for Polls {}
impl Spawn for Polls {
    fn spawn_work(&self, mut work: Work) -> Result<(), Work> {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..self.0 {
            let _ = Pin::new(&mut work).poll(&mut cx);
        }
        Ok(())
    }
}

fn polled(polls: usize) -> SerialExecutor<()> {
    let mut builder = SerialExecutor::builder();
    builder.drain_on(Polls(polls)).build(()).unwrap()
}

#[test]
fn a_drain_that_is_dropped_ends_the_pause() {
    let executor = polled(0);
    let posted = executor.post(|()| ());
    assert!(posted.blocking_join().unwrap_err().is_cancelled());
    assert!(!executor.core.cost.is_paused());
}

#[test]
fn a_guard_that_owns_the_executor_ends_the_pause() {
    let executor = polled(1);
    let (keep, kept) = channel();
    let job = executor.submit_async(|guard| async move { keep.send(guard).unwrap() });
    job.blocking_join().unwrap();
    assert!(executor.core.cost.is_paused());
    drop(kept.recv().unwrap());
    assert!(!executor.core.is_owned());
    assert!(!executor.core.cost.is_paused());
}
