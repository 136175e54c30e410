//! [`Wrapped`]: a job that its submitter has run where it likes.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Id;
use super::slot::Entry;
use super::spawn::Work;
use crate::task::{Abort, Polled};

/// A job of a [`CompletionStream`](crate::CompletionStream) that its submitter has run where it likes:
/// see [`Submitter::wrap`](crate::completion::Submitter::wrap).
///
/// It can be sent to another thread if the future that it was made of can. It is ready when the job has
/// ended in whatever way, also when it was aborted. Dropping it cancels the job.
#[must_use = "futures do nothing unless polled, and dropping this one cancels its job"]
pub struct Wrapped<F> {
    work: Work,
    id: Id,
    /// What the cell of the work holds. It may be sent and shared if this may.
    future: PhantomData<F>,
}

impl<F> Wrapped<F> {
    /// A job whose completion arrives where the entry says, and a reference with which it can be aborted.
    pub(crate) fn new<T, K>(entry: Entry<T, K>, future: F) -> (Self, Abort)
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
        K: Send + 'static,
    {
        let id = entry.id();
        let (task, abort) = entry.job(Polled(Stays(future)));
        let work = Work::claim(task).expect("nobody else has seen the task");
        let this = Self {
            work,
            id,
            future: PhantomData,
        };
        (this, abort)
    }

    /// The name under which the completion will arrive.
    pub fn id(&self) -> Id {
        self.id
    }
}

impl<F> Future for Wrapped<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.work).poll(cx)
    }
}

// The future lies in a cell, and stays there.
impl<F> Unpin for Wrapped<F> {}

impl<F> fmt::Debug for Wrapped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("id", &self.id).finish()
    }
}

/// A future that stays with who wrapped it.
struct Stays<F>(F);

// SAFETY: `Wrapped::new` moves it into a cell, and claims that before anybody else can see it. From then on
// only who holds the claim polls or drops it, which is the `Wrapped`, and that is as `Send` as the future.
// Who aborts the job tells the claimant, and who frees the cell finds the future gone.
unsafe impl<F> Send for Stays<F> {}

impl<F: Future> Future for Stays<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the field is pinned when the whole is, and never moved out.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx)
    }
}
