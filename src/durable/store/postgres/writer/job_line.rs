//! [`JobLine`]: the requests that no transaction contains yet, and the turn to run the next ones.

use std::sync::Arc;

use tokio::select;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, Semaphore, SemaphorePermit, mpsc};

use super::job::Job;

/// The turn to run the next requests. While a task holds it, no other one takes requests from the line.
pub(super) type RunTurn = OwnedMutexGuard<mpsc::UnboundedReceiver<Box<dyn Job>>>;

/// The number of tasks that write.
const TASKS: usize = 2;

/// The requests that no transaction contains yet.
pub(super) struct JobLine {
    jobs: Arc<Mutex<mpsc::UnboundedReceiver<Box<dyn Job>>>>,
    /// The end of the line, until the store is dropped.
    end: mpsc::WeakUnboundedSender<Box<dyn Job>>,
    /// Notified when the main task can run requests again.
    main_is_free: Notify,
    /// A permit for each transaction, until it has ended, and all of them for one that has the store for itself.
    store: Semaphore,
}

impl JobLine {
    /// Returns a line without requests, and the end of it.
    pub(super) fn new() -> (Self, mpsc::UnboundedSender<Box<dyn Job>>) {
        let (end, jobs) = mpsc::unbounded_channel();
        let line = Self {
            jobs: Arc::new(Mutex::new(jobs)),
            end: end.downgrade(),
            main_is_free: Notify::new(),
            store: Semaphore::new(TASKS),
        };
        (line, end)
    }

    /// Waits until no other task has the turn.
    pub(super) async fn turn(&self) -> RunTurn {
        Arc::clone(&self.jobs).lock_owned().await
    }

    /// Has the other task give the turn back unless it has received requests. To be called by the main task.
    pub(super) fn reclaim(&self) {
        self.main_is_free.notify_one();
    }

    /// Waits until the main task wants the turn back. Returns `true` if requests have waited for it.
    pub(super) async fn until_reclaimed(&self, turn: &RunTurn) -> bool {
        self.main_is_free.notified().await;
        !turn.is_empty()
    }

    /// Waits for up to `most` requests. Returns their number, which is 0 if there are no more, or `None` if the main task wants the turn.
    pub(super) async fn receive(
        &self,
        turn: &mut RunTurn,
        is_main: bool,
        jobs: &mut Vec<Box<dyn Job>>,
        most: usize,
    ) -> Option<usize> {
        select! {
            biased;
            () = self.main_is_free.notified(), if !is_main => None,
            received = turn.recv_many(jobs, most) => Some(received),
        }
    }

    /// Leaves a request that has had no effect to the other task.
    pub(super) fn give_back(&self, job: Box<dyn Job>) {
        if let Some(end) = self.end.upgrade() {
            end.send(job).ok();
        }
    }

    /// Waits until the transactions of this process let another one begin, which has the store for itself or shares it with them. Returns a
    /// permit to be held until that has ended.
    ///
    /// At the server, it would wait for the lock of the store, and it would fail if one of them took long to commit.
    pub(super) async fn enter(&self, is_exclusive: bool) -> Option<SemaphorePermit<'_>> {
        let permits = if is_exclusive { TASKS } else { 1 };
        // The semaphore is never closed.
        self.store.acquire_many(permits as u32).await.ok()
    }
}
