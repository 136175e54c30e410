//! [`Job`]: a request that waits for the writer.

use tokio::sync::oneshot;

use crate::durable::failure::Failure;
use crate::durable::store::SessionId;
use crate::durable::store::postgres::error::closed;
use crate::durable::store::postgres::transaction::{Run, Transaction};
use crate::durable::store::postgres::view::Running;

/// A request that waits for the writer, whatever its answer is.
pub(super) trait Job: Send {
    /// Returns `true` if the transaction of the request has the store for itself from the start.
    fn is_exclusive(&self) -> bool;

    /// Returns the session that makes the request, if it is one of those that are made often.
    fn session(&self) -> Option<i64>;

    /// Runs the request, and keeps its answer until the transaction is committed. It may run again after a rollback.
    fn run<'t>(&'t mut self, tx: &'t mut Transaction) -> Running<'t, ()>;

    /// Replaces the answer by a failure.
    fn fail(&mut self, failure: Failure);

    /// Sends the answer.
    fn finish(self: Box<Self>);
}

pub(super) struct NewJob<R, T> {
    request: R,
    session: Option<SessionId>,
    is_exclusive: bool,
    run: Run<R, T>,
    answer: Result<T, Failure>,
    reply: oneshot::Sender<Result<T, Failure>>,
}

impl<R, T> NewJob<R, T> {
    /// Returns the job of a request, and a future of the answer.
    pub(super) fn new(
        request: R,
        session: Option<SessionId>,
        is_exclusive: bool,
        run: Run<R, T>,
    ) -> (Self, impl Future<Output = Result<T, Failure>>) {
        let (reply, receiver) = oneshot::channel();
        let job = Self {
            request,
            session,
            is_exclusive,
            run,
            answer: Err(closed()),
            reply,
        };
        // The task that runs the request may end after it has sent the COMMIT.
        let lost = || Err(closed().with_unknown_effect());
        let answer = async move { receiver.await.unwrap_or_else(|_| lost()) };
        (job, answer)
    }
}

impl<R: Send + Sync, T: Send> Job for NewJob<R, T> {
    fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    fn session(&self) -> Option<i64> {
        self.session.map(|session| session as i64)
    }

    fn run<'t>(&'t mut self, tx: &'t mut Transaction) -> Running<'t, ()> {
        Box::pin(async move {
            self.answer = Ok((self.run)(tx, &self.request).await?);
            Ok(())
        })
    }

    fn fail(&mut self, failure: Failure) {
        self.answer = Err(failure);
    }

    fn finish(self: Box<Self>) {
        // The caller may be gone.
        self.reply.send(self.answer).ok();
    }
}
