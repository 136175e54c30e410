//! Middleware: [`RunService`], the `tower::Service` that runs tasks, and the layers around it.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::run_error::{BoxError, RunError};
use super::run_fn::{EncodedRun, RunFn, decode};
use crate::durable::TaskContext;
use crate::durable::envelope::{open_output, open_payload};

/// Runs tasks: the service that a [layer](crate::durable::Builder::layer) wraps. This needs the feature `tower`.
///
/// It decodes the task of a [request](RunRequest) and runs it, in the layers that were added before that layer.
pub struct RunService<App> {
    /// The service of the outermost layer. If there is none, this service decodes and runs tasks itself.
    layers: Option<Box<dyn Layered<App>>>,
}

/// One attempt to run a task: see [`Builder::layer`](crate::durable::Builder::layer) for an example. This needs the feature `tower`.
///
/// A request can be cloned, for example by a layer that runs a task again before it reports a failure. Each clone has its own copy of the
/// encoded task, and shares the names of the task's steps with the others.
pub struct RunRequest<App> {
    run_fn: RunFn<App>,
    name: &'static str,
    /// The encoded task, in its envelope.
    payload: Vec<u8>,
    cx: TaskContext<App>,
}

/// The output of a run that has succeeded, as it will be stored. This needs the feature `tower`.
pub struct RunOutput {
    sealed: Vec<u8>,
}

/// The future of a [`RunService`]. This needs the feature `tower`.
///
/// Dropping it drops the run at its current await point.
#[must_use = "futures do nothing unless they are polled"]
pub struct RunFuture {
    progress: RunFutureState,
}

enum RunFutureState {
    /// The task runs, without layers.
    Run(EncodedRun),
    Layers(Pin<Box<dyn Future<Output = Result<RunOutput, RunError>> + Send>>),
    /// The task cannot be decoded, for this reason.
    Unreadable(String),
}

impl<App> RunService<App> {
    /// Returns a service without layers.
    pub(crate) fn without_layers() -> Self {
        Self { layers: None }
    }

    /// Wraps the service that a layer has made from another `RunService`.
    pub(crate) fn layered<S>(service: S) -> Self
    where
        S: Service<RunRequest<App>, Response = RunOutput> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self {
            layers: Some(Box::new(service)),
        }
    }

    /// Runs a task with a clone of the service. This calls user code.
    pub(crate) async fn run(&self, request: RunRequest<App>) -> Result<RunOutput, RunError> {
        let mut service = self.clone();
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    }
}

impl<App> Service<RunRequest<App>> for RunService<App> {
    type Response = RunOutput;
    type Error = RunError;
    type Future = RunFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        match &mut self.layers {
            Some(layers) => layers.poll_ready_dyn(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: RunRequest<App>) -> RunFuture {
        match &mut self.layers {
            Some(layers) => layers.call_dyn(request),
            None => request.run(),
        }
    }
}

impl<App> Clone for RunService<App> {
    fn clone(&self) -> Self {
        let layers = self.layers.as_ref();
        Self {
            layers: layers.map(|layers| layers.clone_dyn()),
        }
    }
}

impl<App> fmt::Debug for RunService<App> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunService").finish_non_exhaustive()
    }
}

/// A service that a layer has made, with its type erased.
trait Layered<App>: Send + Sync {
    fn poll_ready_dyn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RunError>>;

    fn call_dyn(&mut self, request: RunRequest<App>) -> RunFuture;

    fn clone_dyn(&self) -> Box<dyn Layered<App>>;
}

impl<App, S> Layered<App> for S
where
    S: Service<RunRequest<App>, Response = RunOutput> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    fn poll_ready_dyn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        let ready = self.poll_ready(cx);
        ready.map_err(|error| RunError::of_layer(error.into()))
    }

    fn call_dyn(&mut self, request: RunRequest<App>) -> RunFuture {
        let run = self.call(request);
        let run = async { run.await.map_err(|error| RunError::of_layer(error.into())) };
        RunFuture {
            progress: RunFutureState::Layers(Box::pin(run)),
        }
    }

    fn clone_dyn(&self) -> Box<dyn Layered<App>> {
        Box::new(self.clone())
    }
}

impl<App> RunRequest<App> {
    pub(crate) fn new(
        run_fn: RunFn<App>,
        name: &'static str,
        payload: Vec<u8>,
        cx: TaskContext<App>,
    ) -> Self {
        Self {
            run_fn,
            name,
            payload,
            cx,
        }
    }

    /// Returns the context that the run gets.
    ///
    /// # Examples
    ///
    /// See [`Builder::layer`](crate::durable::Builder::layer).
    pub fn context(&self) -> &TaskContext<App> {
        &self.cx
    }

    /// Returns the name under which the task is stored: the [name](crate::durable::DurableTask::NAME) of its type, or a [former
    /// name](crate::durable::DurableTask::FORMER_NAMES).
    ///
    /// # Examples
    ///
    /// See [`Builder::layer`](crate::durable::Builder::layer).
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the size of the encoded task in bytes.
    pub fn payload_len(&self) -> usize {
        open_payload(&self.payload).map_or(0, |payload| payload.bytes.len())
    }

    fn run(self) -> RunFuture {
        // A layer may have run a clone of this request before.
        self.cx.steps.begin_try();
        let progress = match decode(self.run_fn, self.name, self.payload, self.cx) {
            Ok(run) => RunFutureState::Run(run),
            Err(reason) => RunFutureState::Unreadable(reason),
        };
        RunFuture { progress }
    }
}

impl<App> Clone for RunRequest<App> {
    fn clone(&self) -> Self {
        Self {
            payload: self.payload.clone(),
            cx: self.cx.clone(),
            ..*self
        }
    }
}

impl<App> fmt::Debug for RunRequest<App> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRequest")
            .field("name", &self.name)
            .field("payload_len", &self.payload_len())
            .field("context", &self.cx)
            .finish_non_exhaustive()
    }
}

impl RunOutput {
    /// Returns the size of the encoded output in bytes.
    pub fn encoded_len(&self) -> usize {
        open_output(&self.sealed).map_or(0, |opened| opened.bytes.len())
    }

    /// Returns the encoded output in its envelope.
    pub(crate) fn into_sealed(self) -> Vec<u8> {
        self.sealed
    }
}

impl fmt::Debug for RunOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOutput")
            .field("encoded_len", &self.encoded_len())
            .finish_non_exhaustive()
    }
}

impl Future for RunFuture {
    type Output = Result<RunOutput, RunError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.progress {
            RunFutureState::Run(run) => {
                let sealed = ready!(run.as_mut().poll(cx))?;
                Poll::Ready(Ok(RunOutput { sealed }))
            }
            RunFutureState::Layers(run) => run.as_mut().poll(cx),
            RunFutureState::Unreadable(reason) => {
                Poll::Ready(Err(RunError::unreadable(mem::take(reason))))
            }
        }
    }
}

impl fmt::Debug for RunFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFuture").finish_non_exhaustive()
    }
}
