//! [`ContainedSpan`]: a span whose subscriber may panic.
//!
//! A subscriber is code of the program, and is called while tasks are spawned and run. If it panics, only what it would have recorded is
//! lost.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tracing::Span;
use tracing::span::Entered;

use crate::unwind::contain;

/// A span. A panic of its subscriber is contained.
pub(crate) struct ContainedSpan(Span);

/// While this exists, the span is that of the thread.
pub(crate) struct EnteredSpan<'a>(Option<Entered<'a>>);

/// A future that is polled and dropped in a span.
struct InSpan<F> {
    span: ContainedSpan,
    /// `None` while this is dropped.
    future: Option<Pin<Box<F>>>,
}

impl ContainedSpan {
    /// Returns the span that `new` creates, or one that records nothing if `new` panics.
    pub(crate) fn new(new: impl FnOnce() -> Span) -> Self {
        let mut span = Span::none();
        contain(|| span = new());
        Self(span)
    }

    pub(crate) fn enter(&self) -> EnteredSpan<'_> {
        let mut entered = None;
        contain(|| entered = Some(self.0.enter()));
        EnteredSpan(entered)
    }

    /// Calls `record` to record fields.
    pub(crate) fn record(&self, record: impl FnOnce(&Span)) {
        contain(|| record(&self.0));
    }

    /// Polls a future in the span.
    pub(crate) async fn hold<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let _entered = self.enter();
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Returns a future that is polled in the span, and also dropped in it, since this may run code of the program.
    pub(crate) fn hold_boxed<F>(
        self,
        future: Pin<Box<F>>,
    ) -> Pin<Box<dyn Future<Output = F::Output> + Send>>
    where
        F: Future + Send + 'static,
    {
        match self.0.is_none() {
            true => future,
            false => Box::pin(InSpan {
                span: self,
                future: Some(future),
            }),
        }
    }
}

impl Drop for ContainedSpan {
    fn drop(&mut self) {
        let span = mem::replace(&mut self.0, Span::none());
        contain(|| drop(span));
    }
}

impl Drop for EnteredSpan<'_> {
    fn drop(&mut self) {
        contain(|| drop(self.0.take()));
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { span, future } = &mut *self;
        let _entered = span.enter();
        match future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for InSpan<F> {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        self.future = None;
    }
}
