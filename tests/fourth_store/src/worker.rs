//! [`Worker`]: the thread that owns the data.

use std::sync::mpsc::channel;
use std::thread;

use throng::durable::store::{Answer, Cause};
use throng::durable::store::{Clock, Effect, Failure};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use crate::model::Model;

/// A request to the thread.
type Request = Box<dyn FnOnce(&mut Model) + Send>;

/// The thread that owns the data. It ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Worker {
    requests: mpsc::UnboundedSender<Request>,
    runtime: Handle,
}

impl Worker {
    /// Starts the thread, for a store with this clock.
    pub(crate) fn start(clock: &Clock) -> Self {
        let (requests, received) = mpsc::unbounded_channel();
        let (started, handle) = channel();
        let model = Model::new(clock.clone());
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be built");
            started.send(runtime.handle().clone()).ok();
            runtime.block_on(serve(model, received));
        });
        let worker = Self {
            requests,
            runtime: handle.recv().expect("the thread has started"),
        };
        worker.follow(clock);
        worker
    }

    /// Wakes all processes when the clock is changed. The machine's clock never calls this.
    fn follow(&self, clock: &Clock) {
        let requests = self.requests.downgrade();
        clock.watch(move || {
            let wake: Request = Box::new(|model| model.wake_all());
            requests.upgrade().is_some_and(|it| it.send(wake).is_ok())
        });
    }

    /// Returns the runtime of the thread.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs a function on the thread, after all earlier ones.
    pub(crate) fn tell(&self, request: impl FnOnce(&mut Model) + Send + 'static) {
        self.requests.send(Box::new(request)).ok();
    }

    /// The same, and returns the answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Model) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<'static, T> {
        let (answer, answered) = oneshot::channel();
        self.tell(move |model| drop(answer.send(request(model))));
        Box::pin(async move {
            // The thread has panicked, perhaps after the request has taken effect.
            let lost = |_| Err(Failure::new(Effect::Unknown, Cause::Unavailable));
            answered.await.unwrap_or_else(lost)
        })
    }
}

async fn serve(mut model: Model, mut requests: mpsc::UnboundedReceiver<Request>) {
    while let Some(request) = requests.recv().await {
        request(&mut model);
    }
}
