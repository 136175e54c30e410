//! [`Lanes`]: the way of what is spawned into the store.

use std::mem;
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;

use super::line::Line;
use super::patience::settle;
use crate::durable::error::{Cause, Effect, Failure};
use crate::durable::store::{Backend, Batch, Enqueue, SessionId};
use crate::sync::{Mutex, lock};

/// The way of what is spawned into the store.
///
/// Two requests are under way at a time: one that the store writes, and behind it one that is still
/// empty. What is spawned meanwhile will be in that: it is [drawn](Line) when the store comes to it. So
/// a store that has written one goes on with the next at once, batches grow with the load, and nobody
/// waits for a timer.
pub(crate) struct Lanes {
    store: StdArc<dyn Backend>,
    line: StdArc<Line>,
    /// Those without a request under way. The last one is used first: whoever spawns one task at a
    /// time has one.
    sessions: Mutex<Vec<Session>>,
}

struct Session {
    id: SessionId,
    /// The number of the last request: whatever became of it, it is not used again.
    number: u64,
}

impl Lanes {
    pub(crate) fn new(store: StdArc<dyn Backend>, line: StdArc<Line>) -> Self {
        Self {
            store,
            line,
            sessions: Mutex::default(),
        }
    }

    /// Stores what is ordered, until nobody can order any more.
    pub(crate) async fn run(self) {
        tokio::join!(self.send_loads(), self.send_loads());
        let sessions = mem::take(&mut *lock(&self.sessions));
        for session in sessions {
            self.store.close_session(session.id).await.ok();
        }
    }

    /// Sends one request after the other.
    async fn send_loads(&self) {
        while let Some(load) = self.line.load().await {
            let stored = self.store(&load.tasks).await;
            load.end(&stored);
        }
    }

    async fn store(&self, tasks: &StdArc<Batch>) -> Result<(), Failure> {
        let idle = lock(&self.sessions).pop();
        let session = match idle {
            Some(session) => session,
            None => self.open().await?,
        };
        match self.send(session, tasks).await {
            // The store has ended the session, and stored nothing: again in a new one.
            Err(failure) if is_homeless(&failure) && failure.effect == Effect::None => {
                let session = self.open().await?;
                self.send(session, tasks).await
            }
            stored => stored,
        }
    }

    async fn send(&self, mut session: Session, tasks: &StdArc<Batch>) -> Result<(), Failure> {
        session.number += 1;
        let request = StdArc::new(Enqueue {
            session: session.id,
            number: session.number,
            tasks: StdArc::clone(tasks),
        });
        let timers = Handle::current();
        let stored = settle(&timers, || self.store.enqueue(StdArc::clone(&request))).await;
        if !stored.as_ref().is_err_and(is_homeless) {
            lock(&self.sessions).push(session);
        }
        stored
    }

    async fn open(&self) -> Result<Session, Failure> {
        let opened = settle(&Handle::current(), || self.store.open_session(None)).await;
        // Nothing of a task has been sent yet.
        let id = opened.map_err(Failure::without_effect)?;
        Ok(Session { id, number: 0 })
    }
}

/// Whoever is in line when nobody stores any more is not kept waiting.
impl Drop for Lanes {
    fn drop(&mut self) {
        self.line.abandon();
    }
}

/// Whether the session is of no more use.
fn is_homeless(failure: &Failure) -> bool {
    failure.cause == Cause::NoSession
}
