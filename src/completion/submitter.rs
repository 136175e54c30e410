//! The end of a stream where jobs go in.

use std::fmt;
use std::future::Future;

use tokio::runtime::Handle;

use super::ledger::{Ledger, Place};
use crate::join::{Id, Slot, Spawn, TrySpawnError, Work};
use crate::sync::Arc;
use crate::task::{Polled, Thunk};

/// Submits jobs to a [`CompletionStream`](super::CompletionStream), also while it is read.
///
/// It is cheap to clone. When the last clone is dropped, or [`close`](Self::close) was called, the
/// stream ends as soon as everything has been read.
///
/// Every job that is accepted yields exactly one item, whatever happens to it.
pub struct Submitter<T, K = ()> {
    handle: Arc<Open<T, K>>,
}

/// What the clones of a submitter share: the last of them closes the stream.
struct Open<T, K>(Arc<Ledger<T, K>>);

impl<T: Send + 'static, K: Send + 'static> Submitter<T, K> {
    pub(super) fn new(ledger: Arc<Ledger<T, K>>) -> Self {
        Self {
            handle: Arc::new(Open(ledger)),
        }
    }

    /// Waits for room, and runs a future as a task of the current Tokio runtime.
    ///
    /// If there is no runtime, or it has been shut down, the item says so:
    /// [`is_rejected`](crate::JoinError::is_rejected),
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// Do not await this in the task that reads the stream: when there is no room, that task would
    /// wait for itself.
    ///
    /// # Errors
    ///
    /// [`Closed`](TrySpawnError::Closed) with tag and future, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted, and is dropped. One that
    /// is kept without being polled may hold up others that wait for room.
    pub async fn submit<F>(&self, tag: K, future: F) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let Some(place) = self.place().await else {
            return Err(TrySpawnError::Closed((tag, future)));
        };
        let (id, task) = place
            .job(tag, Polled(future))
            .map_err(|(tag, Polled(future))| TrySpawnError::Closed((tag, future)))?;
        match Handle::try_current() {
            Ok(runtime) => run_on(&runtime, Work::new(task)),
            Err(_) => Work::new(task).reject("there is no Tokio runtime to run the future on"),
        }
        Ok(id)
    }

    /// Waits for room, and runs a closure that may block on a pool, or on a runtime's blocking
    /// threads.
    ///
    /// The room is this stream's. A pool that is itself bounded and full, or closed, does not accept
    /// the closure; the item then says [`is_rejected`](crate::JoinError::is_rejected).
    ///
    /// # Errors
    ///
    /// [`Closed`](TrySpawnError::Closed) with tag and closure, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted, and is dropped. One that
    /// is kept without being polled may hold up others that wait for room.
    pub async fn submit_blocking<F>(
        &self,
        pool: &impl Spawn,
        tag: K,
        f: F,
    ) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let Some(place) = self.place().await else {
            return Err(TrySpawnError::Closed((tag, f)));
        };
        let (id, task) = place
            .job(tag, Thunk(f))
            .map_err(|(tag, Thunk(f))| TrySpawnError::Closed((tag, f)))?;
        run_on(pool, Work::new(task));
        Ok(id)
    }

    /// Waits for room, and promises a completion that comes from anywhere else: see [`Slot`].
    ///
    /// # Errors
    ///
    /// [`Closed`](TrySpawnError::Closed) with the tag, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was promised. One that is kept without
    /// being polled may hold up others that wait for room.
    pub async fn slot(&self, tag: K) -> Result<Slot<T, K>, TrySpawnError<K>> {
        match self.place().await {
            Some(place) => place.slot(tag).map_err(TrySpawnError::Closed),
            None => Err(TrySpawnError::Closed(tag)),
        }
    }

    /// Accepts no job from now on, from any clone. The stream ends when everything has been read.
    pub fn close(&self) {
        self.ledger().close();
    }

    /// How many jobs were accepted and not read.
    pub fn in_flight(&self) -> usize {
        self.ledger().len().0
    }

    async fn place(&self) -> Option<Place<'_, T, K>> {
        self.ledger().place().await.ok()
    }

    fn ledger(&self) -> &Ledger<T, K> {
        &self.handle.0
    }
}

impl<T, K> Clone for Submitter<T, K> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
        }
    }
}

impl<T, K> fmt::Debug for Submitter<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.0.fmt_fields(&mut f.debug_struct("Submitter"))
    }
}

impl<T, K> Drop for Open<T, K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn run_on(spawn: &impl Spawn, work: Work) {
    if let Err(work) = spawn.spawn(work) {
        work.reject("the pool did not accept the job: it is full, closed, or has no thread");
    }
}
