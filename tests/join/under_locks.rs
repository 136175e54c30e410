//! Wakers that call the part that they wait for: it must not hold a lock while it uses them.

use std::pin::pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;

use throng::completion::Submitter;
use throng::{BlockingPool, Permit};

use crate::faulty_waker::{Act, FaultyWaker};
use crate::parts::stream;
use crate::support::{Wakes, poll_with, ready, receive};

/// A waker whose last drop calls a method of the stream that takes its lock.
struct TakesLock(Submitter<(), ()>);

impl Wake for TakesLock {
    fn wake(self: Arc<Self>) {}
}

impl Drop for TakesLock {
    fn drop(&mut self) {
        assert!(self.0.in_flight() <= 1);
    }
}

#[test]
fn the_waker_of_a_slot_is_dropped_under_no_lock() {
    let (ended, has_ended) = channel();
    // On a thread of its own, which would hang if it took the lock twice.
    thread::spawn(move || {
        let (jobs, mut done) = stream::<(), ()>();
        let mut open = ready(pin!(jobs.slot(()))).unwrap();
        let (faulty, panics) = FaultyWaker::panicking_in(Act::Drop);
        assert!(poll_with(&panics, &mut pin!(open.aborted())).is_pending());
        faulty.arm();
        // It replaces a waker whose drop panics, and stays registered.
        let takes_lock = Waker::from(Arc::new(TakesLock(jobs)));
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll_with(&takes_lock, &mut pin!(open.aborted())).is_pending()
        }));
        assert!(waited.unwrap_or(true));
        drop(takes_lock);
        open.complete(());
        assert!(ready(pin!(done.next())).unwrap().outcome.is_ok());
        // Removes the job that was read, under the lock.
        drop(done);
        ended.send(()).unwrap();
    });
    receive(&has_ended);
}

/// Cloning the waker releases this permit.
static PERMIT: Mutex<Option<Permit<'static, BlockingPool>>> = Mutex::new(None);

#[test]
fn a_waker_is_cloned_under_no_lock() {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            let permit = PERMIT.lock().unwrap().take();
            drop(permit);
            RawWaker::new(std::ptr::null(), &TABLE)
        },
        |_| {},
        |_| {},
        |_| {},
    );
    let (ended, has_ended) = channel();
    thread::spawn(move || {
        let mut builder = BlockingPool::builder();
        let pool = builder.max_threads(1).queue_capacity(0).build().unwrap();
        let permit = ready(Box::pin(pool.reserve())).unwrap();
        *PERMIT.lock().unwrap() = Some(permit.into_owned());
        let (wakes, counts) = Wakes::new();
        let mut before = Box::pin(pool.reserve());
        assert!(poll_with(&counts, &mut before).is_pending());
        let mut behind = Box::pin(pool.reserve());
        // SAFETY: the functions of the table use no pointer.
        let gives_back = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
        assert!(poll_with(&gives_back, &mut behind).is_pending());
        assert_eq!(wakes.count(), 1);
        drop(behind);
        drop(ready(before).unwrap());
        ended.send(()).unwrap();
    });
    receive(&has_ended);
}
