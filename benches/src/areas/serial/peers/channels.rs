//! A task as an actor, on the usual channels.

use tokio::sync::{mpsc, oneshot};

use super::{MAILBOX_CAPACITY, Serial};
use crate::measure::Spin;

/// A task that owns the state, behind a bounded channel.
#[derive(Clone)]
pub(super) struct Actor<C>(C);

/// A message to the actor.
pub(in crate::areas::serial) struct Message {
    spin: Spin,
    reply: Option<oneshot::Sender<u64>>,
}

/// The sending end of a bounded channel.
pub(super) trait Channel: Clone + Send + Sync + 'static {
    type Mailbox: Send + 'static;

    fn bounded(capacity: usize) -> (Self, Self::Mailbox);

    /// Waits for room. Returns `false` if the actor has ended.
    fn send(&self, message: Message) -> impl Future<Output = bool> + Send;

    /// Returns `None` when all senders are dropped.
    fn receive(mailbox: &mut Self::Mailbox) -> impl Future<Output = Option<Message>> + Send;
}

impl<C: Channel> Serial for Actor<C> {
    fn start() -> Self {
        let (sender, mailbox) = C::bounded(MAILBOX_CAPACITY);
        tokio::spawn(serve::<C>(mailbox));
        Self(sender)
    }

    async fn operate(&self, spin: Spin) -> u64 {
        let (sender, reply) = oneshot::channel();
        let message = Message {
            spin,
            reply: Some(sender),
        };
        assert!(self.0.send(message).await, "the actor ended");
        reply.await.expect("the actor replies")
    }

    async fn post(&self, spin: Spin) {
        let message = Message { spin, reply: None };
        assert!(self.0.send(message).await, "the actor ended");
    }
}

async fn serve<C: Channel>(mut mailbox: C::Mailbox) {
    let mut state = 0;
    while let Some(Message { spin, reply }) = C::receive(&mut mailbox).await {
        let value = spin.apply(&mut state);
        // There is no reply to a posted message.
        let _ = reply.map(|reply| reply.send(value));
    }
}

impl Channel for mpsc::Sender<Message> {
    type Mailbox = mpsc::Receiver<Message>;

    fn bounded(capacity: usize) -> (Self, Self::Mailbox) {
        mpsc::channel(capacity)
    }

    async fn send(&self, message: Message) -> bool {
        Self::send(self, message).await.is_ok()
    }

    async fn receive(mailbox: &mut Self::Mailbox) -> Option<Message> {
        mailbox.recv().await
    }
}

impl Channel for flume::Sender<Message> {
    type Mailbox = flume::Receiver<Message>;

    fn bounded(capacity: usize) -> (Self, Self::Mailbox) {
        flume::bounded(capacity)
    }

    async fn send(&self, message: Message) -> bool {
        self.send_async(message).await.is_ok()
    }

    async fn receive(mailbox: &mut Self::Mailbox) -> Option<Message> {
        mailbox.recv_async().await.ok()
    }
}

impl Channel for async_channel::Sender<Message> {
    type Mailbox = async_channel::Receiver<Message>;

    fn bounded(capacity: usize) -> (Self, Self::Mailbox) {
        async_channel::bounded(capacity)
    }

    async fn send(&self, message: Message) -> bool {
        Self::send(self, message).await.is_ok()
    }

    async fn receive(mailbox: &mut Self::Mailbox) -> Option<Message> {
        mailbox.recv().await.ok()
    }
}
