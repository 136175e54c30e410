//! Models of the room: who waits is woken, and the bound holds.

use std::future::Future;

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::{Semaphore, TryAcquireError};
use crate::sync::Plain;

#[test]
fn loom_who_leaves_wakes_who_waits() {
    loom::model(|| {
        let room = Arc::new(Semaphore::new(1));
        room.try_acquire().unwrap();
        let waiter = {
            let room = room.clone();
            thread::spawn(move || block_on(room.enter()))
        };
        room.leave();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(room.count(), 1);
    });
}

#[test]
fn loom_closing_wakes_who_waits() {
    loom::model(|| {
        let room = Arc::new(Semaphore::new(1));
        room.try_acquire().unwrap();
        let waiter = {
            let room = room.clone();
            thread::spawn(move || block_on(room.enter()))
        };
        room.close();
        assert_eq!(waiter.join().unwrap(), Err(TryAcquireError::Closed));
    });
}

/// A place is exclusive, and who has it sees what the one before did there.
#[test]
fn loom_the_bound_holds() {
    loom::model(|| {
        let room = Arc::new(Semaphore::new(1));
        let place = Arc::new(Plain::new(0));
        let use_it = |room: &Semaphore, place: &Plain| {
            if room.try_acquire().is_ok() {
                place.add(1);
                room.leave();
            }
        };
        let other = {
            let (room, place) = (room.clone(), place.clone());
            thread::spawn(move || use_it(&room, &place))
        };
        use_it(&room, &place);
        other.join().unwrap();
        assert_eq!(room.count(), 0);
    });
}

/// Two wait, and one of them gives up, perhaps just when it has been woken: the other gets the place.
#[test]
fn loom_a_waiter_that_gives_up_passes_its_wake_up_on() {
    loom::model(|| {
        let room = Arc::new(Semaphore::new(1));
        room.try_acquire().unwrap();
        let waiter = {
            let room = room.clone();
            thread::spawn(move || block_on(room.enter()))
        };
        let leaver = {
            let room = room.clone();
            thread::spawn(move || room.leave())
        };
        let mut gives_up = Box::pin(room.enter());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if gives_up.as_mut().poll(&mut cx).is_ready() {
            room.leave();
        }
        drop(gives_up);
        assert_eq!(waiter.join().unwrap(), Ok(()));
        leaver.join().unwrap();
    });
}

/// Two places become free while two are about to wait: each is woken, or sees its place.
#[test]
fn loom_two_leave_while_two_are_about_to_wait() {
    loom::model(|| {
        let room = Arc::new(Semaphore::new(2));
        room.try_acquire().unwrap();
        room.try_acquire().unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let room = room.clone();
                thread::spawn(move || block_on(room.enter()))
            })
            .collect();
        room.leave();
        room.leave();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

// ===== Those who have lost too often =====

fn one_inside() -> Arc<Semaphore> {
    let room = Arc::new(Semaphore::new(1));
    room.try_acquire().unwrap();
    room
}

fn served(room: &Arc<Semaphore>) -> thread::JoinHandle<Result<(), TryAcquireError>> {
    let room = room.clone();
    thread::spawn(move || block_on(room.be_served()))
}

#[test]
fn loom_who_leaves_serves() {
    loom::model(|| {
        let room = one_inside();
        let guest = served(&room);
        room.leave();
        assert_eq!(guest.join().unwrap(), Ok(()));
        assert_eq!(room.count(), 1);
        room.leave();
        assert_eq!(room.count(), 0);
    });
}

/// A newcomer may be faster than a guest who has only just come; both get through.
#[test]
fn loom_a_guest_and_a_newcomer() {
    loom::model(|| {
        let room = one_inside();
        let guest = served(&room);
        let newcomer = {
            let room = room.clone();
            thread::spawn(move || {
                if room.try_acquire().is_ok() {
                    room.leave();
                }
            })
        };
        room.leave();
        assert_eq!(guest.join().unwrap(), Ok(()));
        newcomer.join().unwrap();
        assert_eq!(room.count(), 1);
    });
}

/// A place goes from hand to hand: one has it at a time, who sees what was done there before.
#[test]
fn loom_a_place_that_is_handed_over_is_exclusive() {
    loom::model(|| {
        let room = one_inside();
        let place = Arc::new(Plain::new(0));
        let guests: Vec<_> = (0..2)
            .map(|_| {
                let (room, place) = (room.clone(), place.clone());
                thread::spawn(move || {
                    block_on(room.be_served()).unwrap();
                    place.add(1);
                    room.leave();
                })
            })
            .collect();
        place.add(1);
        room.leave();
        for guest in guests {
            guest.join().unwrap();
        }
        assert_eq!((place.get(), room.count()), (3, 0));
    });
}

/// What was handed to a guest who gives up is for the other.
#[test]
fn loom_a_guest_that_gives_up() {
    loom::model(|| {
        let room = one_inside();
        let guest = served(&room);
        let leaver = {
            let room = room.clone();
            thread::spawn(move || room.leave())
        };
        let mut gives_up = Box::pin(room.be_served());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if gives_up.as_mut().poll(&mut cx).is_ready() {
            room.leave();
        }
        drop(gives_up);
        assert_eq!(guest.join().unwrap(), Ok(()));
        leaver.join().unwrap();
        assert_eq!(room.count(), 1);
    });
}

#[test]
fn loom_closing_tells_guests() {
    loom::model(|| {
        let room = one_inside();
        let guest = served(&room);
        room.close();
        assert_eq!(guest.join().unwrap(), Err(TryAcquireError::Closed));
        room.leave();
        assert_eq!(room.count(), 0);
    });
}

#[test]
fn loom_more_room_serves() {
    loom::model(|| {
        let room = one_inside();
        let guest = served(&room);
        room.set_limit(2);
        room.tell_all();
        assert_eq!(guest.join().unwrap(), Ok(()));
        assert_eq!(room.count(), 2);
    });
}
