//! [`Writer`]: the handle of the thread that writes.

use std::path::PathBuf;
use std::sync::mpsc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

use self::group::{Call, Request};
pub(super) use self::writer_thread::Opened;
use super::error::{Fault, corrupt, io_failure, no_answer};
use super::transaction::Transaction;
use crate::durable::clock::Clock;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::layouts::Layouts;
use crate::durable::store::{Answer, Event};
use crate::sync::{Mutex, lock, thread};

mod group;
mod group_error;
mod writer_thread;

/// The handle of the writing thread, which finishes its requests and exits when this is closed or dropped.
pub(super) struct Writer {
    requests: Mutex<Option<mpsc::Sender<Box<dyn Request>>>>,
    /// The result of the thread.
    ended: watch::Receiver<Option<Result<(), Failure>>>,
}

impl Writer {
    /// Returns a handle without a thread, which refuses all requests.
    pub(super) fn none() -> Self {
        Self {
            requests: Mutex::new(None),
            ended: watch::channel(Some(Ok(()))).1,
        }
    }

    /// Returns `true` if there is a thread that has not been closed.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.requests).is_some()
    }

    /// Starts the thread, which opens the database.
    pub(super) async fn start(
        path: PathBuf,
        layouts: Layouts,
        clock: Clock,
        events: UnboundedSender<Event>,
    ) -> Result<(Self, Opened), Failure> {
        let (requests, received) = mpsc::channel();
        let (reply, opened) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        let builder = thread::Builder::new().name(String::from("throng-sqlite"));
        let open = move || writer_thread::open(&path, layouts, clock, events);
        let started = builder.spawn(move || match open() {
            Ok((writer, opened)) => {
                reply.send(Ok(opened)).ok();
                let closed = writer.run(&received);
                end.send(Some(closed)).ok();
            }
            Err(failure) => drop(reply.send(Err(failure))),
        });
        started.map_err(io_failure)?;
        let opened = opened.await.unwrap_or_else(|_| Err(no_answer()))?;
        let requests = Mutex::new(Some(requests));
        Ok((Self { requests, ended }, opened))
    }

    /// Has the thread exit when it has finished its requests, and waits until it has closed the database.
    pub(super) async fn close(&self) -> Result<(), Failure> {
        drop(lock(&self.requests).take());
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(closed) => closed.clone().unwrap_or(Ok(())),
            Err(_) => Err(no_answer()),
        }
    }

    /// Has the thread repair the store, unless it has made more than `repairs` repairs.
    pub(super) fn repair(&self, repairs: usize) -> Answer<'static, ()> {
        self.run(0, move |tx| match tx.shared.damage.repairs() {
            // This error makes the thread repair the store and repeat the request.
            found if found == repairs => Err(corrupt()),
            _ => Ok(()),
        })
    }

    /// Runs a request in a transaction. The request takes effect as a whole or not at all. It may be run
    /// several times, and only the last run takes effect.
    pub(super) fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        request: impl FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        self.run_then(bytes, request, |_| ())
    }

    /// The same. When the request is written, or has failed, the thread calls `before_reply` before it answers.
    pub(super) fn run_then<T: Send + 'static>(
        &self,
        bytes: usize,
        request: impl FnMut(&mut Transaction<'_>) -> Result<T, Fault> + Send + 'static,
        before_reply: impl FnOnce(&Result<T, Failure>) + Send + 'static,
    ) -> Answer<'static, T> {
        let (reply, answer) = oneshot::channel();
        let request = Box::new(Call {
            bytes,
            run: request,
            answer: Err(no_answer()),
            before_reply,
            reply,
        });
        let requests = lock(&self.requests);
        let is_sent = requests.as_ref().is_some_and(|it| it.send(request).is_ok());
        drop(requests);
        Box::pin(async move {
            match is_sent {
                true => answer.await.unwrap_or_else(|_| Err(no_answer())),
                false => Err(Failure::new(Effect::None, Cause::Unavailable)),
            }
        })
    }
}
