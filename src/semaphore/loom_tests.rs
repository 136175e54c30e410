//! Models: waiters are woken, and the limit holds.

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

/// A permit is exclusive, and its holder sees what the one before did.
#[test]
fn loom_the_limit_holds() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let number = Arc::new(Plain::new(0));
        let add_one = |semaphore: &Semaphore, number: &Plain| {
            if semaphore.try_acquire().is_ok() {
                number.add(1);
                semaphore.release();
            }
        };
        let other = {
            let (semaphore, number) = (semaphore.clone(), number.clone());
            thread::spawn(move || add_one(&semaphore, &number))
        };
        add_one(&semaphore, &number);
        other.join().unwrap();
        assert_eq!(semaphore.count(), 0);
    });
}

/// Of two waiters one is dropped, perhaps when it has just been woken: the other gets the permit.
#[test]
fn loom_a_dropped_waiter_passes_its_wake_up_on() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.try_acquire().unwrap();
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()))
        };
        let releaser = {
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
        releaser.join().unwrap();
    });
}

/// Two permits are released while two waiters are about to sleep: each is woken, or sees its permit.
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

// ===== Starving waiters =====

fn one_in_use() -> Arc<Semaphore> {
    let semaphore = Arc::new(Semaphore::new(1));
    semaphore.try_acquire().unwrap();
    semaphore
}

fn spawn_starving(semaphore: &Arc<Semaphore>) -> thread::JoinHandle<Result<(), TryAcquireError>> {
    let semaphore = semaphore.clone();
    thread::spawn(move || block_on(semaphore.starve()))
}

#[test]
fn loom_a_release_reaches_a_starving_waiter() {
    loom::model(|| {
        let semaphore = one_in_use();
        let waiter = spawn_starving(&semaphore);
        semaphore.release();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(semaphore.count(), 1);
        semaphore.release();
        assert_eq!(semaphore.count(), 0);
    });
}

/// A newcomer may be faster than a waiter that is about to starve; both get a permit.
#[test]
fn loom_a_starving_waiter_and_a_newcomer() {
    loom::model(|| {
        let semaphore = one_in_use();
        let waiter = spawn_starving(&semaphore);
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

/// A permit goes from one starving waiter to the next. It is exclusive, and each holder sees what was done before.
#[test]
fn loom_the_permit_of_starving_waiters_is_exclusive() {
    loom::model(|| {
        let semaphore = one_in_use();
        let number = Arc::new(Plain::new(0));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (semaphore, number) = (semaphore.clone(), number.clone());
                thread::spawn(move || {
                    block_on(semaphore.starve()).unwrap();
                    number.add(1);
                    semaphore.release();
                })
            })
            .collect();
        number.add(1);
        semaphore.release();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!((number.get(), semaphore.count()), (3, 0));
    });
}

/// Of two starving waiters one is dropped, perhaps when it has just been woken: the other gets the permit.
#[test]
fn loom_a_dropped_starving_waiter_passes_its_permit_on() {
    loom::model(|| {
        let semaphore = one_in_use();
        let waiter = spawn_starving(&semaphore);
        let releaser = {
            let semaphore = semaphore.clone();
            thread::spawn(move || semaphore.release())
        };
        let mut dropped = Box::pin(semaphore.starve());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if dropped.as_mut().poll(&mut cx).is_ready() {
            semaphore.release();
        }
        drop(dropped);
        assert_eq!(waiter.join().unwrap(), Ok(()));
        releaser.join().unwrap();
        assert_eq!(semaphore.count(), 1);
    });
}

/// The permit that was left to a starving waiter wakes a normal one when the former is dropped.
#[test]
fn loom_a_dropped_claim_wakes_a_normal_waiter() {
    loom::model(|| {
        let semaphore = one_in_use();
        let mut starving = Box::pin(semaphore.starve());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(starving.as_mut().poll(&mut cx).is_pending());
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()))
        };
        semaphore.release();
        drop(starving);
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(semaphore.count(), 1);
    });
}

#[test]
fn loom_close_wakes_a_starving_waiter() {
    loom::model(|| {
        let semaphore = one_in_use();
        let waiter = spawn_starving(&semaphore);
        semaphore.close();
        assert_eq!(waiter.join().unwrap(), Err(TryAcquireError::Closed));
        semaphore.release();
        assert_eq!(semaphore.count(), 0);
    });
}

#[test]
fn loom_a_raised_limit_wakes_a_starving_waiter() {
    loom::model(|| {
        let semaphore = one_in_use();
        let waiter = spawn_starving(&semaphore);
        semaphore.set_limit(2);
        semaphore.notify_all();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(semaphore.count(), 2);
    });
}

/// Both waiters return, and only after the permit was released.
#[test]
fn loom_all_waiters_see_that_a_closed_semaphore_is_drained() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.try_acquire().unwrap();
        let waiter = {
            let semaphore = semaphore.clone();
            thread::spawn(move || {
                block_on(semaphore.drained());
                assert_eq!(semaphore.count(), 0);
            })
        };
        let releaser = {
            let semaphore = semaphore.clone();
            thread::spawn(move || semaphore.release())
        };
        semaphore.close();
        block_on(semaphore.drained());
        assert_eq!(semaphore.count(), 0);
        waiter.join().unwrap();
        releaser.join().unwrap();
    });
}

/// The holder of the only permit closes the semaphore before it returns the permit. Somebody waits for it meanwhile.
#[test]
fn loom_a_waiter_for_a_permit_takes_no_wake_up_of_the_end() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        semaphore.try_acquire().unwrap();
        let acquirer = {
            let semaphore = semaphore.clone();
            thread::spawn(move || block_on(semaphore.acquire()))
        };
        let holder = {
            let semaphore = semaphore.clone();
            thread::spawn(move || {
                semaphore.close();
                semaphore.release();
            })
        };
        block_on(semaphore.drained());
        assert_eq!(semaphore.count(), 0);
        assert_eq!(acquirer.join().unwrap(), Err(TryAcquireError::Closed));
        holder.join().unwrap();
    });
}
