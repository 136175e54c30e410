//! Models of the room: who waits is woken, and the bound holds.

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::{NoRoom, Room};
use crate::sync::Plain;

#[test]
fn loom_who_leaves_wakes_who_waits() {
    loom::model(|| {
        let room = Arc::new(Room::new(1));
        room.try_enter().unwrap();
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
        let room = Arc::new(Room::new(1));
        room.try_enter().unwrap();
        let waiter = {
            let room = room.clone();
            thread::spawn(move || block_on(room.enter()))
        };
        room.close();
        assert_eq!(waiter.join().unwrap(), Err(NoRoom::Closed));
        assert!(room.leave());
    });
}

/// A place is exclusive, and who has it sees what the one before did there.
#[test]
fn loom_the_bound_holds() {
    loom::model(|| {
        let room = Arc::new(Room::new(1));
        let place = Arc::new(Plain::new(0));
        let use_it = |room: &Room, place: &Plain| {
            if room.try_enter().is_ok() {
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

/// After closing, the last to leave knows that it is the last.
#[test]
fn loom_the_last_to_leave_a_closed_room_knows() {
    loom::model(|| {
        let room = Arc::new(Room::new(2));
        room.try_enter().unwrap();
        room.try_enter().unwrap();
        let other = {
            let room = room.clone();
            thread::spawn(move || room.leave())
        };
        room.close();
        let here = room.leave();
        let there = other.join().unwrap();
        assert!(here || there);
        assert!(!(here && there));
        assert!(room.is_over());
    });
}
