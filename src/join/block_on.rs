//! Waiting on threads that are not async.

use std::future::Future;
use std::pin::pin;
// Wakers are made of the standard library's `Arc`, also where `sync` has another.
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crate::sync::thread::{self, Thread};

/// Polls until `poll` is ready, and parks this thread between polls.
pub(super) fn block_on<R>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
    let waker = thread_waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        match poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Blocks this thread until a future is ready, or until the deadline. Returns `false` if the future was not
/// ready by then.
pub(crate) fn block_on_until(future: impl Future<Output = ()>, deadline: Option<Instant>) -> bool {
    let mut future = pin!(future);
    let Some(deadline) = deadline else {
        block_on(|cx| future.as_mut().poll(cx));
        return true;
    };
    let waker = thread_waker();
    let mut cx = Context::from_waker(&waker);
    while future.as_mut().poll(&mut cx).is_pending() {
        if thread::park_until(deadline) {
            return future.as_mut().poll(&mut cx).is_ready();
        }
    }
    true
}

/// A waker that unparks this thread.
fn thread_waker() -> Waker {
    Waker::from(StdArc::new(Unpark(thread::current())))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}
