//! The cell with wakers that panic, or use the cell themselves; Miri runs them too.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;

use super::WakerCell;
use crate::sync::{AtomicUsize, Ordering};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self::default());
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type Hook = Box<dyn FnOnce(&WakerCell) + Send>;

/// A waker that does something to the cell once, in its clone, wake or drop.
struct Odd {
    cell: Weak<WakerCell>,
    hooks: Mutex<[Option<Hook>; 3]>,
}

const CLONE: usize = 0;
const WAKE: usize = 1;
const DROP: usize = 2;

impl Odd {
    fn new(cell: &Arc<WakerCell>) -> (Arc<Self>, Waker) {
        let odd = Arc::new(Self {
            cell: Arc::downgrade(cell),
            hooks: Mutex::default(),
        });
        // SAFETY: the pointer is that of an `Arc`, as the functions of the table expect.
        let waker = unsafe { Waker::from_raw(raw(Arc::clone(&odd))) };
        (odd, waker)
    }

    fn hook(&self, act: usize, hook: impl FnOnce(&WakerCell) + Send + 'static) {
        self.hooks.lock().unwrap()[act] = Some(Box::new(hook));
    }

    fn does(&self, act: usize) {
        let hook = self.hooks.lock().unwrap()[act].take();
        if let (Some(hook), Some(cell)) = (hook, self.cell.upgrade()) {
            hook(&cell);
        }
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the waker's own pointer, which is not dropped.
        let odd = unsafe { ManuallyDrop::new(Arc::<Odd>::from_raw(data.cast())) };
        odd.does(CLONE);
        raw(Arc::clone(&odd))
    },
    // SAFETY: the waker's own pointer, which is used up.
    |data| unsafe { Arc::<Odd>::from_raw(data.cast()) }.does(WAKE),
    // SAFETY: the waker's own pointer, which is not dropped.
    |data| unsafe { ManuallyDrop::new(Arc::<Odd>::from_raw(data.cast())) }.does(WAKE),
    // SAFETY: the waker's own pointer, which is used up.
    |data| unsafe { Arc::<Odd>::from_raw(data.cast()) }.does(DROP),
);

fn raw(odd: Arc<Odd>) -> RawWaker {
    RawWaker::new(Arc::into_raw(odd).cast(), &TABLE)
}

#[test]
fn a_waker_is_woken_once() {
    let cell = WakerCell::new();
    cell.wake();
    let (wakes, waker) = Wakes::new();
    cell.register(&waker);
    cell.wake();
    cell.wake();
    assert_eq!(wakes.count(), 1);
    assert_eq!(Arc::strong_count(&wakes), 2);
}

#[test]
fn the_same_waker_is_not_cloned_again() {
    let cell = Arc::new(WakerCell::new());
    let (odd, waker) = Odd::new(&cell);
    cell.register(&waker);
    odd.hook(CLONE, |_| panic!("cloned again"));
    cell.register(&waker);
    assert_eq!(Arc::strong_count(&odd), 3);
}

#[test]
fn the_last_waker_is_woken_and_the_others_are_dropped() {
    let cell = WakerCell::new();
    let (first, waker) = Wakes::new();
    cell.register(&waker);
    drop(waker);
    let (last, waker) = Wakes::new();
    cell.register(&waker);
    assert_eq!(Arc::strong_count(&first), 1);
    cell.wake();
    assert_eq!((first.count(), last.count()), (0, 1));
}

#[test]
fn what_is_left_is_dropped() {
    let (wakes, waker) = Wakes::new();
    let cell = WakerCell::new();
    cell.register(&waker);
    cell.clear();
    assert_eq!(Arc::strong_count(&wakes), 2);
    cell.clear();
    cell.register(&waker);
    drop(cell);
    assert_eq!(Arc::strong_count(&wakes), 2);
    assert_eq!(wakes.count(), 0);
}

#[test]
fn a_clone_that_panics_leaves_the_cell_as_it_was() {
    let cell = Arc::new(WakerCell::new());
    let (before, waker) = Wakes::new();
    cell.register(&waker);
    let (odd, panics) = Odd::new(&cell);
    odd.hook(CLONE, |_| panic!("cloned"));
    catch_unwind(AssertUnwindSafe(|| cell.register(&panics))).unwrap_err();
    cell.wake();
    assert_eq!(before.count(), 1);
    let (after, waker) = Wakes::new();
    cell.register(&waker);
    cell.wake();
    assert_eq!(after.count(), 1);
}

#[test]
fn panics_of_what_is_woken_or_dropped_are_contained() {
    let cell = Arc::new(WakerCell::new());
    let (odd, waker) = Odd::new(&cell);
    let (wakes, counts) = Wakes::new();
    cell.register(&waker);
    odd.hook(DROP, |_| panic!("dropped"));
    cell.register(&counts);
    cell.wake();
    assert_eq!(wakes.count(), 1);

    cell.register(&waker);
    odd.hook(WAKE, |_| panic!("woken"));
    cell.wake();
    cell.register(&waker);
    odd.hook(DROP, |_| panic!("dropped"));
    cell.clear();
    cell.register(&counts);
    cell.wake();
    assert_eq!(wakes.count(), 2);
    // The test's own is dropped now, in peace.
    assert!(odd.hooks.lock().unwrap().iter().all(Option::is_none));
}

#[test]
fn wakers_that_use_their_cell_find_it_free() {
    let cell = Arc::new(WakerCell::new());
    for act in [CLONE, WAKE, DROP] {
        let (odd, waker) = Odd::new(&cell);
        let (wakes, counts) = Wakes::new();
        odd.hook(act, move |cell| {
            cell.register(&counts);
            cell.wake();
            cell.register(Waker::noop());
            cell.clear();
        });
        cell.register(&waker);
        if act == WAKE {
            cell.wake();
        } else {
            cell.register(Waker::noop());
        }
        assert_eq!(wakes.count(), 1, "in act {act}");
        cell.clear();
    }
}

#[test]
fn nothing_is_missed_whatever_meets() {
    const ROUNDS: usize = if cfg!(miri) { 30 } else { 20_000 };
    const WAKERS: usize = 2;
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let cell = WakerCell::new();
    let raised = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WAKERS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    raised.fetch_add(1, Ordering::Relaxed);
                    cell.wake();
                }
            });
        }
        // Another waker each time, of the same thread.
        while {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            cell.register(&waker);
            raised.load(Ordering::Relaxed) < WAKERS * ROUNDS
        } {
            thread::park();
        }
    });
}
