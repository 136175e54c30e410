//! Models of the semaphore: who waits is woken, and the bound holds.

use std::future::Future;

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::{Semaphore, TryAcquireError};
use crate::sync::Plain;

#[test]
fn loom_a_release_wakes_a_waiter() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.try_acquire().unwrap();
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()))
        };
        semaphore.release();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(semaphore.count(), 1);
    });
}

#[test]
fn loom_close_wakes_a_waiter() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.try_acquire().unwrap();
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()))
        };
        semaphore.close();
        assert_eq!(waiter.join().unwrap(), Err(TryAcquireError::Closed));
    });
}

/// A place is exclusive, and who has it sees what the one before did there.
#[test]
fn loom_the_limit_holds() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let place = Arc::new(Plain::new(0));
        let use_it = |semaphore: &Semaphore, place: &Plain| {
            if semaphore.try_acquire().is_ok() {
                place.add(1);
                semaphore.release();
            }
        };
        let other = {
            let (semaphore, place) = (semaphore.clone(), place.clone());
            thread::spawn(move || use_it(&semaphore, &place))
        };
        use_it(&semaphore, &place);
        other.join().unwrap();
        assert_eq!(semaphore.count(), 0);
    });
}

/// Two wait, and one of them gives up, perhaps just when it has been woken: the other gets the place.
#[test]
fn loom_a_dropped_waiter_passes_its_wake_up_on() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.try_acquire().unwrap();
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()))
        };
        let leaver = {
            let semaphore = semaphore.clone();
            thread::spawn(move || semaphore.release())
        };
        let mut dropped = Box::pin(semaphore.acquire());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if dropped.as_mut().poll(&mut cx).is_ready() {
            semaphore.release();
        }
        drop(dropped);
        assert_eq!(waiter.join().unwrap(), Ok(()));
        leaver.join().unwrap();
    });
}

/// Two places become free while two are about to wait: each is woken, or sees its place.
#[test]
fn loom_two_releases_wake_two_waiters() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        semaphore.try_acquire().unwrap();
        semaphore.try_acquire().unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let semaphore = semaphore.clone();
                thread::spawn(move || block_on(semaphore.acquire()))
            })
            .collect();
        semaphore.release();
        semaphore.release();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

// ===== Those who have lost too often =====

fn one_inside() -> Arc<Semaphore> {
    let semaphore = Arc::new(Semaphore::new(1));
    semaphore.try_acquire().unwrap();
    semaphore
}

fn waits_for_handoff(
    semaphore: &Arc<Semaphore>,
) -> thread::JoinHandle<Result<(), TryAcquireError>> {
    let semaphore = semaphore.clone();
    thread::spawn(move || block_on(semaphore.acquire_by_handoff()))
}

#[test]
fn loom_a_release_reaches_a_starving_waiter() {
    loom::model(|| {
        let semaphore = one_inside();
        let waiter = waits_for_handoff(&semaphore);
        semaphore.release();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(semaphore.count(), 1);
        semaphore.release();
        assert_eq!(semaphore.count(), 0);
    });
}

/// A newcomer may be faster than a waiter who has only just come; both get through.
#[test]
fn loom_a_starving_waiter_and_a_newcomer() {
    loom::model(|| {
        let semaphore = one_inside();
        let waiter = waits_for_handoff(&semaphore);
        let newcomer = {
            let semaphore = semaphore.clone();
            thread::spawn(move || {
                if semaphore.try_acquire().is_ok() {
                    semaphore.release();
                }
            })
        };
        semaphore.release();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        newcomer.join().unwrap();
        assert_eq!(semaphore.count(), 1);
    });
}

/// A place goes from hand to hand: one has it at a time, who sees what was done there before.
#[test]
fn loom_a_permit_that_is_handed_over_is_exclusive() {
    loom::model(|| {
        let semaphore = one_inside();
        let place = Arc::new(Plain::new(0));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (semaphore, place) = (semaphore.clone(), place.clone());
                thread::spawn(move || {
                    block_on(semaphore.acquire_by_handoff()).unwrap();
                    place.add(1);
                    semaphore.release();
                })
            })
            .collect();
        place.add(1);
        semaphore.release();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!((place.get(), semaphore.count()), (3, 0));
    });
}

/// What was handed to a waiter who gives up is for the other.
#[test]
fn loom_a_dropped_starving_waiter_passes_its_permit_on() {
    loom::model(|| {
        let semaphore = one_inside();
        let waiter = waits_for_handoff(&semaphore);
        let leaver = {
            let semaphore = semaphore.clone();
            thread::spawn(move || semaphore.release())
        };
        let mut dropped = Box::pin(semaphore.acquire_by_handoff());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if dropped.as_mut().poll(&mut cx).is_ready() {
            semaphore.release();
        }
        drop(dropped);
        assert_eq!(waiter.join().unwrap(), Ok(()));
        leaver.join().unwrap();
        assert_eq!(semaphore.count(), 1);
    });
}

#[test]
fn loom_close_wakes_a_starving_waiter() {
    loom::model(|| {
        let semaphore = one_inside();
        let waiter = waits_for_handoff(&semaphore);
        semaphore.close();
        assert_eq!(waiter.join().unwrap(), Err(TryAcquireError::Closed));
        semaphore.release();
        assert_eq!(semaphore.count(), 0);
    });
}

#[test]
fn loom_a_raised_limit_wakes_a_starving_waiter() {
    loom::model(|| {
        let semaphore = one_inside();
        let waiter = waits_for_handoff(&semaphore);
        semaphore.set_limit(2);
        semaphore.notify_all();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(semaphore.count(), 2);
    });
}
