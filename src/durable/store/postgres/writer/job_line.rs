//! [`JobLine`]: the requests that no transaction contains yet, and the turn to run the next ones.

use std::sync::Arc;

use tokio::select;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, mpsc};

use super::job::Job;

/// The turn to run the next requests. While a task holds it, no other one takes requests from the line.
pub(super) type RunTurn = OwnedMutexGuard<mpsc::UnboundedReceiver<Box<dyn Job>>>;

/// The requests that no transaction contains yet.
pub(super) struct JobLine {
    jobs: Arc<Mutex<mpsc::UnboundedReceiver<Box<dyn Job>>>>,
    /// Notified when the main task can run requests again.
    main_is_free: Notify,
}

impl JobLine {
    pub(super) fn new(jobs: mpsc::UnboundedReceiver<Box<dyn Job>>) -> Self {
        Self {
            jobs: Arc::new(Mutex::new(jobs)),
            main_is_free: Notify::new(),
        }
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
}
