//! [`Permitted`]: a run that needs a permit.

use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, ready};

use tokio::sync::{mpsc, oneshot};

use super::Message;
use crate::durable::TaskId;
use crate::durable::executor::scope::RunScope;
use crate::durable::store::Epoch;

/// A run that is polled only while it has a permit, and gives that back while it awaits durable handles.
///
/// Its worker counts the permits. It learns by [`Message::Suspended`] that one was given back, by
/// [`Message::Resume`] that one is wanted, and by the report of the run's end that the run needs none.
pub(super) struct Permitted<F> {
    pub(super) run: Pin<Box<F>>,
    pub(super) scope: StdArc<RunScope>,
    pub(super) permit: Permit,
    pub(super) worker: mpsc::UnboundedSender<Message>,
    pub(super) epoch: Epoch,
    pub(super) id: TaskId,
}

pub(super) enum Permit {
    Held,
    /// Given back, until a waker of the run fires.
    GivenBack,
    /// Asked for.
    Wanted(oneshot::Receiver<()>),
}

impl<F: Future> Future for Permitted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        loop {
            match &mut this.permit {
                Permit::Held => break,
                Permit::GivenBack => this.permit = this.ask(),
                Permit::Wanted(granted) => {
                    // An error: the worker has ended, and counts no longer.
                    ready!(Pin::new(granted).poll(cx)).ok();
                    this.permit = Permit::Held;
                }
            }
        }
        let Self { run, scope, .. } = this;
        let polled = scope.enter(|| run.as_mut().poll(cx));
        if polled.is_pending() && this.scope.is_waiting() {
            this.permit = Permit::GivenBack;
            let (epoch, id) = (this.epoch, this.id);
            this.worker.send(Message::Suspended { epoch, id }).ok();
        }
        polled
    }
}

impl<F> Permitted<F> {
    fn ask(&self) -> Permit {
        let (grant, granted) = oneshot::channel();
        let request = Message::Resume {
            epoch: self.epoch,
            id: self.id,
            grant,
        };
        self.worker.send(request).ok();
        Permit::Wanted(granted)
    }
}
