//! What guards the state.

use std::sync::Arc;

use throng::SerialExecutor;
use tokio::sync::{mpsc, oneshot};

use super::Work;
use crate::areas::Peer;
use crate::measure::Spin;

/// Everyone, ours first.
pub(super) fn all<W: Work>(work: W) -> Vec<Peer> {
    vec![
        peer::<SerialExecutor<u64>, W>("throng", work),
        peer::<Arc<tokio::sync::Mutex<u64>>, W>("tokio-mutex", work),
        peer::<Arc<std::sync::Mutex<u64>>, W>("std-mutex", work).note(BLOCKS),
        peer::<Arc<parking_lot::Mutex<u64>>, W>("parking-lot", work).note(BLOCKS),
        peer::<mpsc::Sender<Message>, W>("tokio-actor", work),
        peer::<Arc<async_lock::Mutex<u64>>, W>("async-lock", work),
    ]
}

const BLOCKS: Option<&str> = Some("blocks the worker while it waits");

fn peer<S: Serial, W: Work>(name: &'static str, work: W) -> Peer {
    Peer::new(name, move |rules| work.run::<S>(rules))
}

/// A number that is changed by one task at a time.
pub(super) trait Serial: Clone + Send + Sync + 'static {
    /// Called within the runtime.
    fn start() -> Self;

    /// Changes the number and waits for what it has become.
    fn operate(&self, spin: Spin) -> impl Future<Output = u64> + Send;

    /// Changes the number without waiting for it, where that is possible: who holds a lock has done it anyway.
    fn post(&self, spin: Spin) -> impl Future<Output = ()> + Send {
        async move {
            self.operate(spin).await;
        }
    }
}

impl Serial for SerialExecutor<u64> {
    fn start() -> Self {
        Self::new(0)
    }

    async fn operate(&self, spin: Spin) -> u64 {
        self.submit(move |state| spin.apply(state))
            .await
            .expect("an operation does not panic")
    }

    async fn post(&self, spin: Spin) {
        drop(Self::post(self, move |state| spin.apply(state)));
    }
}

impl Serial for Arc<tokio::sync::Mutex<u64>> {
    fn start() -> Self {
        Self::default()
    }

    async fn operate(&self, spin: Spin) -> u64 {
        spin.apply(&mut *self.lock().await)
    }
}

impl Serial for Arc<std::sync::Mutex<u64>> {
    fn start() -> Self {
        Self::default()
    }

    async fn operate(&self, spin: Spin) -> u64 {
        spin.apply(&mut self.lock().expect("an operation does not panic"))
    }
}

impl Serial for Arc<parking_lot::Mutex<u64>> {
    fn start() -> Self {
        Self::default()
    }

    async fn operate(&self, spin: Spin) -> u64 {
        spin.apply(&mut self.lock())
    }
}

impl Serial for Arc<async_lock::Mutex<u64>> {
    fn start() -> Self {
        Self::default()
    }

    async fn operate(&self, spin: Spin) -> u64 {
        spin.apply(&mut *self.lock().await)
    }
}

/// What the actor's mailbox holds.
struct Message {
    spin: Spin,
    reply: Option<oneshot::Sender<u64>>,
}

/// The usual actor: a task that owns the state, behind a bounded channel.
impl Serial for mpsc::Sender<Message> {
    fn start() -> Self {
        let (sender, mut mailbox) = mpsc::channel::<Message>(1_024);
        tokio::spawn(async move {
            let mut state = 0;
            while let Some(Message { spin, reply }) = mailbox.recv().await {
                let value = spin.apply(&mut state);
                // Nobody waits for what was posted.
                let _ = reply.map(|reply| reply.send(value));
            }
        });
        sender
    }

    async fn operate(&self, spin: Spin) -> u64 {
        let (sender, reply) = oneshot::channel();
        let message = Message {
            spin,
            reply: Some(sender),
        };
        if self.send(message).await.is_err() {
            panic!("the actor ended");
        }
        reply.await.expect("the actor replies")
    }

    async fn post(&self, spin: Spin) {
        if self.send(Message { spin, reply: None }).await.is_err() {
            panic!("the actor ended");
        }
    }
}
