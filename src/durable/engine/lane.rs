//! [`Lane`]: the way of what is spawned into the store.

use std::sync::Arc as StdArc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::patience::{PATIENCE, settle};
use crate::durable::error::{Cause, Effect, Failure};
use crate::durable::store::{Backend, Enqueue, MAX_BATCH, MAX_BATCH_BYTES, NewTask, SessionId};

/// The way of what is spawned into the store.
///
/// One request is in flight at a time; what is spawned meanwhile goes with the next. So batches grow
/// with the load, and nobody waits for a timer.
pub(crate) struct Lane {
    store: StdArc<dyn Backend>,
    session: Option<SessionId>,
    /// The number of the last request: whatever became of it, it is not used again.
    number: u64,
    /// Why nothing could be stored the last time.
    failure: Option<Failure>,
}

/// Tasks that are stored together: at most [`MAX_BATCH`].
pub(crate) struct Order {
    pub(crate) tasks: Vec<NewTask>,
    /// When it was given.
    pub(crate) since: Instant,
    pub(crate) reply: oneshot::Sender<Result<(), Failure>>,
}

impl Lane {
    pub(crate) fn new(store: StdArc<dyn Backend>) -> Self {
        Self {
            store,
            session: None,
            number: 0,
            failure: None,
        }
    }

    /// Stores what is ordered, until nobody can order any more.
    pub(crate) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(order) => Some(order),
                None => orders.recv().await,
            };
            let Some(first) = first else { break };
            let Some(first) = self.refuse_if_old(first) else {
                continue;
            };
            let (tasks, replies, over) = gather(first, &mut orders);
            next = over;
            let stored = self.store(tasks).await;
            self.failure = stored.as_ref().err().cloned();
            for reply in replies {
                // Whoever has dropped the future does not want to know.
                reply.send(stored.clone()).ok();
            }
        }
        if let Some(session) = self.session {
            self.store.close_session(session).await.ok();
        }
    }

    /// While the store fails, each request to it takes as long as there is patience; whoever has waited
    /// so long already is not kept waiting for another.
    fn refuse_if_old(&self, order: Order) -> Option<Order> {
        match &self.failure {
            Some(failure) if order.since.elapsed() > PATIENCE => {
                let failure = failure.clone().without_effect();
                order.reply.send(Err(failure)).ok();
                None
            }
            _ => Some(order),
        }
    }

    async fn store(&mut self, tasks: Vec<NewTask>) -> Result<(), Failure> {
        let request = self.request(tasks).await?;
        match self.send(&request).await {
            // The store has ended the session, and stored nothing: again in a new one.
            Err(failure) if failure.cause == Cause::NoSession => {
                self.session = None;
                if failure.effect == Effect::Unknown {
                    return Err(failure);
                }
                let tasks = StdArc::unwrap_or_clone(request).tasks;
                let request = self.request(tasks).await?;
                self.send(&request).await
            }
            stored => stored,
        }
    }

    async fn send(&self, request: &StdArc<Enqueue>) -> Result<(), Failure> {
        let timers = Handle::current();
        settle(&timers, || self.store.enqueue(StdArc::clone(request))).await
    }

    async fn request(&mut self, tasks: Vec<NewTask>) -> Result<StdArc<Enqueue>, Failure> {
        let session = match self.session {
            Some(session) => session,
            None => self.open().await?,
        };
        self.number += 1;
        Ok(StdArc::new(Enqueue {
            session,
            number: self.number,
            tasks,
        }))
    }

    async fn open(&mut self) -> Result<SessionId, Failure> {
        let opened = settle(&Handle::current(), || self.store.open_session()).await;
        // Nothing of a task has been sent yet.
        let session = opened.map_err(Failure::without_effect)?;
        self.session = Some(session);
        self.number = 0;
        Ok(session)
    }
}

type Reply = oneshot::Sender<Result<(), Failure>>;

/// What is ordered already, as far as it fits into one request, and the order that did not.
fn gather(
    first: Order,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> (Vec<NewTask>, Vec<Reply>, Option<Order>) {
    let mut bytes = bytes_of(&first.tasks);
    let (mut tasks, mut replies) = (first.tasks, vec![first.reply]);
    while let Ok(order) = orders.try_recv() {
        bytes += bytes_of(&order.tasks);
        if tasks.len() + order.tasks.len() > MAX_BATCH || bytes > MAX_BATCH_BYTES {
            return (tasks, replies, Some(order));
        }
        tasks.extend(order.tasks);
        replies.push(order.reply);
    }
    (tasks, replies, None)
}

/// What tasks take up in a request.
pub(crate) fn bytes_of(tasks: &[NewTask]) -> usize {
    tasks.iter().map(|task| task.payload.len()).sum()
}
