//! Models of the cell: one task that registers, and those who wake it.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::WakerCell;

/// The conditions that a task waits for: flags that publish nothing themselves.
struct Flags {
    waker: WakerCell,
    raised: AtomicUsize,
}

impl Flags {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            waker: WakerCell::new(),
            raised: AtomicUsize::new(0),
        })
    }

    fn raise(&self) {
        self.raised.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
    }

    fn are_raised(&self, many: usize) -> bool {
        self.raised.load(Ordering::Relaxed) == many
    }
}

fn wait(flags: &Flags, many: usize) {
    block_on(poll_fn(|cx| {
        flags.waker.register(cx.waker());
        match flags.are_raised(many) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
}

#[test]
fn loom_register_against_wake() {
    loom::model(|| {
        let flags = Flags::new();
        let waking = flags.clone();
        let wakes = thread::spawn(move || waking.raise());
        wait(&flags, 1);
        wakes.join().unwrap();
    });
}

/// A wake that finds the slot in use, by another wake or by the task, is not lost.
#[test]
fn loom_register_against_two_wakes() {
    loom::model(|| {
        let flags = Flags::new();
        let wakers = [flags.clone(), flags.clone()];
        let wakes = wakers.map(|flags| thread::spawn(move || flags.raise()));
        wait(&flags, 2);
        wakes.into_iter().for_each(|wake| wake.join().unwrap());
    });
}

/// The task moves: what was registered before is taken, replaced, or found in use.
#[test]
fn loom_a_change_of_wakers_against_wake() {
    loom::model(|| {
        let flags = Flags::new();
        let waking = flags.clone();
        flags.waker.register(Waker::noop());
        let wakes = thread::spawn(move || waking.raise());
        wait(&flags, 1);
        wakes.join().unwrap();
    });
}

/// The task finds the slot in use by one who wakes another, and must not wait for a wake-up that has been.
#[test]
fn loom_a_change_of_wakers_against_two_wakes() {
    loom::model(|| {
        let flags = Flags::new();
        let wakers = [flags.clone(), flags.clone()];
        flags.waker.register(Waker::noop());
        let wakes = wakers.map(|flags| thread::spawn(move || flags.raise()));
        wait(&flags, 2);
        wakes.into_iter().for_each(|wake| wake.join().unwrap());
    });
}

/// The task polls again with the same waker, which is compared while it may be taken.
#[test]
fn loom_the_same_waker_twice_against_wake() {
    loom::model(|| {
        let flags = Flags::new();
        let waking = flags.clone();
        let wakes = thread::spawn(move || waking.raise());
        block_on(poll_fn(|cx| {
            flags.waker.register(cx.waker());
            flags.waker.register(cx.waker());
            match flags.are_raised(1) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        wakes.join().unwrap();
    });
}

/// A task that waits no more, and takes its waker back. Loom reports a waker that is never dropped.
#[test]
fn loom_clear_against_wake() {
    loom::model(|| {
        let flags = Flags::new();
        let waking = flags.clone();
        block_on(async {
            poll_fn(|cx| {
                flags.waker.register(cx.waker());
                Poll::Ready(())
            })
            .await;
        });
        let wakes = thread::spawn(move || waking.raise());
        flags.waker.clear();
        wakes.join().unwrap();
    });
}

/// Two that register at the same time, which should not be: the slot is still used by one at a time.
#[test]
fn loom_register_against_register() {
    loom::model(|| {
        let flags = Flags::new();
        let other = flags.clone();
        let registers = thread::spawn(move || other.waker.register(Waker::noop()));
        flags.waker.register(Waker::noop());
        registers.join().unwrap();
        flags.waker.wake();
    });
}
