//! [`PermittedRun`]: a run that needs a permit.

use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, ready};

use tokio::sync::{mpsc, oneshot};

use crate::durable::TaskId;
use crate::durable::executor::message::Message;
use crate::durable::executor::scope::RunScope;
use crate::durable::store::Epoch;

/// A run that is polled only while it has a permit, and gives the permit back while it awaits durable handles.
///
/// The worker counts the permits. [`Message::Suspended`] says that the run has given its permit back, [`Message::Resume`]
/// that it needs one, and the report of its end that it needs none any more.
pub(super) struct PermittedRun<F> {
    pub(super) run: Pin<Box<F>>,
    pub(super) scope: StdArc<RunScope>,
    pub(super) permit: RunPermit,
    pub(super) worker: mpsc::UnboundedSender<Message>,
    pub(super) epoch: Epoch,
    pub(super) id: TaskId,
}

/// The permit of a run.
pub(super) enum RunPermit {
    Held,
    /// Given back until the run is woken.
    GivenBack,
    /// Requested.
    Requested(oneshot::Receiver<()>),
}

impl<F: Future> Future for PermittedRun<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        loop {
            match &mut this.permit {
                RunPermit::Held => break,
                RunPermit::GivenBack => this.permit = this.request(),
                RunPermit::Requested(granted) => {
                    // An error means that the worker has ended, and counts no more permits.
                    ready!(Pin::new(granted).poll(cx)).ok();
                    this.permit = RunPermit::Held;
                }
            }
        }
        let Self { run, scope, .. } = this;
        let polled = scope.enter(|| run.as_mut().poll(cx));
        if polled.is_pending() && this.scope.is_waiting() {
            this.permit = RunPermit::GivenBack;
            let (epoch, id) = (this.epoch, this.id);
            this.worker.send(Message::Suspended { epoch, id }).ok();
        }
        polled
    }
}

impl<F> PermittedRun<F> {
    fn request(&self) -> RunPermit {
        let (grant, granted) = oneshot::channel();
        let request = Message::Resume {
            epoch: self.epoch,
            id: self.id,
            grant,
        };
        self.worker.send(request).ok();
        RunPermit::Requested(granted)
    }
}
