//! [`Wrapped`]: a future together with the slot that it completes.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::in_place::InPlace;
use super::queue::QueueEntry;
use super::slot::Slot;
use crate::join::Id;
use crate::task::{Abort, Fault, Outcome};
use crate::unwind::contain;

pin_project! {
    /// A job of a [`CompletionStream`](crate::CompletionStream) that the caller runs on any executor: see
    /// [`Submitter::wrap`](crate::completion::Submitter::wrap).
    ///
    /// It is `Send` and `Unpin` if its future is. It is ready when the job has ended, also if the job was aborted.
    /// Dropping it before that ends the job as cancelled. `K` is the type of the job's tag.
    #[must_use = "futures do nothing unless polled, and dropping this one cancels its job"]
    pub struct Wrapped<F, K = ()>
    where
        F: Future,
    {
        // Here and not in a cell: it is dropped and its memory is freed when it ends, while its outcome stays
        // until it is read.
        #[pin]
        future: Option<F>,
        // `None` once the job has ended.
        slot: Option<Slot<F::Output, K>>,
        id: Id,
    }

    impl<F, K> PinnedDrop for Wrapped<F, K>
    where
        F: Future,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(slot) = this.slot.take() {
                drop_in_place(this.future);
                slot.cancel();
            }
        }
    }
}

impl<F, K> Wrapped<F, K>
where
    F: Future,
    F::Output: Send + 'static,
    K: Send + 'static,
{
    /// A job, and the means to abort it.
    pub(super) fn new(entry: QueueEntry<F::Output, K>, future: F) -> (Self, Abort) {
        let (slot, abort) = Slot::new(entry);
        let this = Self {
            future: Some(future),
            id: slot.id(),
            slot: Some(slot),
        };
        (this, abort)
    }

    /// Polls the job for the first time, on this thread. Returns it if it is pending. See
    /// [`in_place::poll_in_place`](super::in_place::poll_in_place).
    pub(super) fn poll_in_place(mut self: Pin<Box<Self>>) -> Option<Pin<Box<Self>>> {
        let Some(_polling) = InPlace::enter() else {
            return Some(self);
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.as_mut().poll(&mut cx).is_pending().then_some(self)
    }

    /// Ends a job that no executor runs, for this reason.
    pub(super) fn reject(self: Pin<&mut Self>, why: &'static str) {
        self.end(Err(Fault::rejected(io::Error::other(why))));
    }

    /// Polls the future, and drops it when it is ready. Both may panic.
    fn poll_future(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut future = self.project().future;
        let polled = future.as_mut().as_pin_mut().map(|future| future.poll(cx));
        let output = ready!(polled.unwrap_or(Poll::Pending));
        future.set(None);
        Poll::Ready(output)
    }

    fn end(self: Pin<&mut Self>, outcome: Outcome<F::Output>) {
        let this = self.project();
        drop_in_place(this.future);
        if let Some(slot) = this.slot.take() {
            slot.end(outcome);
        }
    }
}

impl<F, K> Future for Wrapped<F, K>
where
    F: Future,
    F::Output: Send + 'static,
    K: Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // By projection: a shared reference to all of `self` would alias the future's references into itself.
        let Some(slot) = self.as_mut().project().slot else {
            return Poll::Ready(());
        };
        if slot.is_aborted() {
            self.end(Err(Fault::cancelled()));
            return Poll::Ready(());
        }
        let poll = || self.as_mut().poll_future(cx);
        let outcome = match panic::catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(Fault::panicked(payload)),
            Ok(Poll::Pending) => {
                let slot = self.as_mut().project().slot.as_mut();
                ready!(slot.map_or(Poll::Ready(()), |slot| slot.poll_aborted(cx)));
                Err(Fault::cancelled())
            }
        };
        self.end(outcome);
        Poll::Ready(())
    }
}

impl<F, K> fmt::Debug for Wrapped<F, K>
where
    F: Future,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("id", &self.id).finish()
    }
}

/// Drops a future in place, and contains its panic.
fn drop_in_place<F>(mut future: Pin<&mut Option<F>>) {
    contain(|| future.set(None));
}
