//! [`BatchSender`]: sends spawned tasks to the store.

use std::mem;
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;

use crate::durable::failure::{Cause, Failure};
use crate::durable::resend::{may_succeed_in_another_session, resend};
use crate::durable::spawn_queue::{SpawnQueue, WriteBatch};
use crate::durable::store::{Backend, Enqueue, Enqueued, SessionId};
use crate::sync::{Mutex, lock};

/// Sends spawned tasks to the store.
///
/// Two requests are in flight at a time: one that the store writes, and behind it one whose [batch](WriteBatch) is still
/// open. A store that has written one request continues with the next at once, batches grow with the load, and no caller
/// waits for a timer.
///
/// If the store has parts that can fail separately, only the tasks of parts that have failed are sent again.
pub(crate) struct BatchSender {
    store: StdArc<dyn Backend>,
    queue: StdArc<SpawnQueue>,
    /// Sessions without a request in flight. The last one is used first, so a program that spawns one task at a time
    /// needs one session.
    sessions: Mutex<Vec<Session>>,
}

struct Session {
    id: SessionId,
    /// The number of the last request. It is not used again, even if the request failed.
    number: u64,
}

impl BatchSender {
    pub(crate) fn new(store: StdArc<dyn Backend>, queue: StdArc<SpawnQueue>) -> Self {
        Self {
            store,
            queue,
            sessions: Mutex::default(),
        }
    }

    /// Stores the tasks in the queue until the queue is closed and empty.
    pub(crate) async fn run(self) {
        tokio::join!(self.send_batches(), self.send_batches());
        let sessions = mem::take(&mut *lock(&self.sessions));
        for session in sessions {
            self.store.close_session(session.id).await.ok();
        }
    }

    /// Sends one request after the other.
    async fn send_batches(&self) {
        while let Some(batch) = self.queue.next_batch().await {
            let stored = self.store(&batch).await;
            batch.finish(&stored);
        }
    }

    async fn store(&self, batch: &StdArc<WriteBatch>) -> Result<Enqueued, Failure> {
        let idle = lock(&self.sessions).pop();
        let session = match idle {
            Some(session) => session,
            None => self.open().await?,
        };
        match self.send(session, batch).await {
            // The store, or a part of it, has ended the session, and no remaining task is stored: these tasks are sent in a new session.
            Err(failure) if may_succeed_in_another_session(&failure) => {
                let session = self.open().await?;
                self.send(session, batch).await
            }
            stored => stored,
        }
    }

    async fn send(
        &self,
        mut session: Session,
        batch: &StdArc<WriteBatch>,
    ) -> Result<Enqueued, Failure> {
        session.number += 1;
        let request = StdArc::new(Enqueue {
            session: session.id,
            number: session.number,
            batch: StdArc::clone(batch),
        });
        let timers = Handle::current();
        let stored = resend(&timers, || self.attempt(&request)).await;
        // `resend` remembers that the effect of an earlier attempt was unknown, but this may concern only tasks that are settled by now.
        let stored = batch.outcome_of_rest(stored);
        if !stored.as_ref().is_err_and(has_session_ended) {
            lock(&self.sessions).push(session);
        }
        stored
    }

    async fn attempt(&self, request: &StdArc<Enqueue>) -> Result<Enqueued, Failure> {
        let stored = self.store.enqueue(StdArc::clone(request)).await;
        request.batch.outcome_of_rest(stored)
    }

    async fn open(&self) -> Result<Session, Failure> {
        let opened = resend(&Handle::current(), || self.store.open_session(None)).await;
        // No task has been sent yet.
        let id = opened.map_err(Failure::without_effect)?;
        Ok(Session { id, number: 0 })
    }
}

/// Without a sender, no task in the queue can be stored.
impl Drop for BatchSender {
    fn drop(&mut self) {
        self.queue.abort();
    }
}

fn has_session_ended(failure: &Failure) -> bool {
    failure.cause == Cause::NoSession
}
