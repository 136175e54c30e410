//! The peers: what guards the state.

mod channels;
mod frameworks;

use std::sync::Arc;

use throng::{JoinHandle, SerialExecutor};
use tokio::sync::mpsc;

use self::channels::{Actor, Message};
use super::Work;
use crate::areas::Peer;
use crate::measure::Spin;
use crate::watched::watch;

/// All peers, with this crate first.
pub(super) fn all<W: Work>(work: W) -> Vec<Peer> {
    vec![
        peer::<SerialExecutor<u64>, W>("throng", work),
        peer::<Arc<tokio::sync::Mutex<u64>>, W>("tokio-mutex", work),
        peer::<Arc<std::sync::Mutex<u64>>, W>("std-mutex", work).note(BLOCKS),
        peer::<Arc<parking_lot::Mutex<u64>>, W>("parking-lot", work).note(BLOCKS),
        peer::<Arc<async_lock::Mutex<u64>>, W>("async-lock", work),
        peer::<Actor<mpsc::Sender<Message>>, W>("tokio-actor", work),
        peer::<Actor<flume::Sender<Message>>, W>("flume-actor", work),
        peer::<Actor<async_channel::Sender<Message>>, W>("async-channel-actor", work),
        peer::<frameworks::Kameo, W>("kameo", work),
        peer::<frameworks::Ractor, W>("ractor", work).note(UNBOUNDED),
        peer::<frameworks::Actix, W>("actix", work).note(OWN_THREAD),
    ]
}

/// All peers, and ours with a queue that is bounded like the mailboxes.
pub(super) fn with_bounded<W: Work>(work: W) -> Vec<Peer> {
    let mut peers = all(work);
    peers.insert(1, peer::<Bounded, W>("throng-bounded", work));
    peers
}

const BLOCKS: Option<&str> = Some("blocks the worker while it waits");

const OWN_THREAD: Option<&str> = Some(
    "runs on its own thread besides the two workers; posted messages bypass the bound of its mailbox",
);

const UNBOUNDED: Option<&str> = Some("its mailbox is unbounded");

/// The messages that wait in a mailbox before senders wait, where that can be configured.
const MAILBOX_CAPACITY: usize = 1_024;

fn peer<S: Serial, W: Work>(name: &'static str, work: W) -> Peer {
    Peer::new(name, move |rules| work.run::<S>(rules))
}

/// A number that one task at a time changes.
pub(super) trait Serial: Clone + Send + Sync + 'static {
    /// Called inside the runtime.
    fn start() -> Self;

    /// Changes the number, and returns the new value.
    fn operate(&self, spin: Spin) -> impl Future<Output = u64> + Send;

    /// Changes the number without waiting for it, where that is possible. With a lock, it has happened anyway.
    fn post(&self, spin: Spin) -> impl Future<Output = ()> + Send {
        async move {
            self.operate(spin).await;
        }
    }

    /// As `post`, but the caller may do the work.
    fn forget(&self, spin: Spin) -> impl Future<Output = ()> + Send {
        self.post(spin)
    }
}

impl Serial for SerialExecutor<u64> {
    fn start() -> Self {
        let executor = Self::new(0);
        watch(&executor);
        executor
    }

    async fn operate(&self, spin: Spin) -> u64 {
        self.submit(move |state| spin.apply(state))
            .await
            .expect("an operation does not panic")
    }

    async fn post(&self, spin: Spin) {
        drop(Self::post(self, move |state| spin.apply(state)));
    }

    async fn forget(&self, spin: Spin) {
        drop(self.submit(move |state| spin.apply(state)));
    }
}

/// Callers wait for room in the queue before they submit.
#[derive(Clone)]
struct Bounded(SerialExecutor<u64>);

impl Bounded {
    async fn submit(&self, spin: Spin) -> JoinHandle<u64> {
        let permit = self.0.reserve().await.expect("the executor is open");
        permit.submit(move |state| spin.apply(state))
    }
}

impl Serial for Bounded {
    fn start() -> Self {
        let mut builder = SerialExecutor::builder();
        let bounded = builder.queue_capacity(MAILBOX_CAPACITY).build(0);
        Self(bounded.expect("the options are valid"))
    }

    async fn operate(&self, spin: Spin) -> u64 {
        let submitted = self.submit(spin).await;
        submitted.await.expect("an operation does not panic")
    }

    async fn post(&self, spin: Spin) {
        drop(self.submit(spin).await);
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
