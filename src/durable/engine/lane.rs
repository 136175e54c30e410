//! [`Lane`]: the way of what is spawned into the store.

use std::future::poll_fn;
use std::pin::pin;
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
    pub(crate) async fn run(mut self, received: mpsc::UnboundedReceiver<Order>) {
        let mut orders = Orders::new(received);
        let mut answered = Answered::default();
        loop {
            let first = match orders.try_next() {
                Some(first) => first,
                None => {
                    answered.tell();
                    match orders.next().await {
                        Some(first) => first,
                        None => break,
                    }
                }
            };
            let Some(first) = self.refuse_if_old(first) else {
                continue;
            };
            let (tasks, replies) = orders.gather(first);
            // The store has something to do again before the callers have: waking them takes time.
            let stored = with_first_poll(self.store(tasks), || answered.tell()).await;
            self.failure = stored.as_ref().err().cloned();
            answered = Answered { replies, stored };
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

/// A request that was answered, and those who wait for that.
struct Answered {
    replies: Vec<Reply>,
    stored: Result<(), Failure>,
}

impl Answered {
    fn tell(&mut self) {
        for reply in self.replies.drain(..) {
            // Whoever has dropped the future does not want to know.
            reply.send(self.stored.clone()).ok();
        }
    }
}

impl Default for Answered {
    fn default() -> Self {
        Self {
            replies: Vec::new(),
            stored: Ok(()),
        }
    }
}

/// What is ordered.
struct Orders {
    received: mpsc::UnboundedReceiver<Order>,
    /// The one that did not fit into the last request.
    over: Option<Order>,
}

impl Orders {
    fn new(received: mpsc::UnboundedReceiver<Order>) -> Self {
        let over = None;
        Self { received, over }
    }

    fn try_next(&mut self) -> Option<Order> {
        self.over.take().or_else(|| self.received.try_recv().ok())
    }

    async fn next(&mut self) -> Option<Order> {
        self.received.recv().await
    }

    /// What is ordered already, as far as it fits into one request.
    fn gather(&mut self, first: Order) -> (Vec<NewTask>, Vec<Reply>) {
        let mut bytes = bytes_of(&first.tasks);
        let (mut tasks, mut replies) = (first.tasks, vec![first.reply]);
        while let Ok(order) = self.received.try_recv() {
            bytes += bytes_of(&order.tasks);
            if tasks.len() + order.tasks.len() > MAX_BATCH || bytes > MAX_BATCH_BYTES {
                self.over = Some(order);
                break;
            }
            tasks.extend(order.tasks);
            replies.push(order.reply);
        }
        (tasks, replies)
    }
}

/// Does something as soon as a future has been polled for the first time.
async fn with_first_poll<T>(future: impl Future<Output = T>, then: impl FnOnce()) -> T {
    let mut future = pin!(future);
    let mut then = Some(then);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if let Some(then) = then.take() {
            then();
        }
        polled
    })
    .await
}

/// What tasks take up in a request.
pub(crate) fn bytes_of(tasks: &[NewTask]) -> usize {
    tasks.iter().map(|task| task.payload.len()).sum()
}
