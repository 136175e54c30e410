//! Waiters that lose, starve and are dropped, polled by hand.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{MAX_LOSSES, MAX_STARVING, Semaphore, TryAcquireError, starving};
use crate::sync::Ordering;

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<(), TryAcquireError>> + 'a>>;

fn poll(waiting: &mut Waiting<'_>) -> Poll<Result<(), TryAcquireError>> {
    waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

fn full(limit: usize) -> Semaphore {
    let semaphore = Semaphore::new(limit);
    (0..limit).for_each(|_| semaphore.try_acquire().unwrap());
    semaphore
}

/// Wakes the waiters in vain, as often as they may lose.
fn lose(semaphore: &Semaphore, waiters: &mut [Waiting<'_>]) {
    for _ in 0..MAX_LOSSES {
        semaphore.notify_all();
        waiters
            .iter_mut()
            .for_each(|waiter| assert!(poll(waiter).is_pending()));
    }
}

impl Semaphore {
    fn starving_now(&self) -> usize {
        starving(self.state.load(Ordering::Relaxed))
    }

    fn waiter(&self) -> Waiting<'_> {
        let mut waiter: Waiting<'_> = Box::pin(self.acquire());
        assert!(poll(&mut waiter).is_pending());
        waiter
    }

    /// A waiter that has lost as often as it may.
    fn starving_waiter(&self) -> Waiting<'_> {
        let before = self.starving_now();
        let mut waiter = self.waiter();
        lose(self, std::slice::from_mut(&mut waiter));
        assert_eq!(self.starving_now(), before + 1);
        waiter
    }
}

#[test]
fn a_waiter_that_is_never_polled_again_holds_no_permit() {
    let semaphore = full(1);
    let _waiter = semaphore.waiter();
    for _ in 0..10 {
        semaphore.release();
        assert_eq!(semaphore.try_acquire(), Ok(()));
    }
}

#[test]
fn a_waiter_that_has_lost_twice_gets_the_next_permit() {
    let semaphore = full(1);
    let mut waiter = semaphore.waiter();
    for _ in 0..MAX_LOSSES {
        semaphore.release();
        assert_eq!(semaphore.try_acquire(), Ok(()));
        assert!(poll(&mut waiter).is_pending());
    }
    semaphore.release();
    assert_eq!(semaphore.try_acquire(), Err(TryAcquireError::Full));
    assert_eq!(poll(&mut waiter), Poll::Ready(Ok(())));
}

#[test]
fn newcomers_leave_a_permit_to_each_starving_waiter() {
    let semaphore = full(3);
    let mut waiters = [semaphore.starving_waiter(), semaphore.starving_waiter()];
    for _ in 0..2 {
        semaphore.release();
        assert_eq!(semaphore.try_acquire(), Err(TryAcquireError::Full));
    }
    semaphore.release();
    assert_eq!(semaphore.try_acquire(), Ok(()));
    for waiter in &mut waiters {
        assert_eq!(poll(waiter), Poll::Ready(Ok(())));
    }
    assert_eq!((semaphore.count(), semaphore.starving_now()), (3, 0));
}

#[test]
fn the_permit_of_a_dropped_starving_waiter_wakes_another_waiter() {
    let semaphore = full(1);
    let starving = semaphore.starving_waiter();
    let mut waiter = semaphore.waiter();
    semaphore.release();
    assert!(poll(&mut waiter).is_pending());
    drop(starving);
    assert_eq!(poll(&mut waiter), Poll::Ready(Ok(())));
}

#[test]
fn a_closed_semaphore_ends_starving_waiters() {
    let semaphore = full(1);
    let mut waiter = semaphore.starving_waiter();
    semaphore.close();
    assert_eq!(poll(&mut waiter), Poll::Ready(Err(TryAcquireError::Closed)));
    drop(waiter);
    assert_eq!((semaphore.count(), semaphore.starving_now()), (1, 0));
}

#[test]
fn a_lowered_limit_keeps_starving_waiters_waiting() {
    let semaphore = full(2);
    let mut waiter = semaphore.starving_waiter();
    semaphore.set_limit(1);
    semaphore.notify_all();
    semaphore.release();
    assert!(poll(&mut waiter).is_pending());
    semaphore.release();
    assert_eq!(poll(&mut waiter), Poll::Ready(Ok(())));
}

#[test]
#[cfg_attr(miri, ignore = "it has too many waiters for Miri")]
fn waiters_beyond_the_maximum_of_starving_ones_wait_in_the_normal_way() {
    let semaphore = full(1);
    let mut waiters: Vec<_> = (0..MAX_STARVING).map(|_| semaphore.waiter()).collect();
    lose(&semaphore, &mut waiters);
    assert_eq!(semaphore.starving_now(), MAX_STARVING);
    let mut last = semaphore.waiter();
    lose(&semaphore, std::slice::from_mut(&mut last));
    assert_eq!(semaphore.starving_now(), MAX_STARVING);
    waiters.clear();
    semaphore.release();
    assert_eq!(poll(&mut last), Poll::Ready(Ok(())));
}
