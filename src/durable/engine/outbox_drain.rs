//! [`OutboxDrain`]: moves tasks from the outbox in the database of the store into the store.

use std::mem;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::durable::failure::Failure;
use crate::durable::report;
use crate::durable::resend::BACKOFF;
use crate::durable::store::Backend;
use crate::sync::{Mutex, lock};

/// Moves tasks from the outbox in the database of the store into the store.
///
/// When its client reports a commit, it moves the tasks at once. It finds other commits only by looking for them, and does so once its
/// client has a worker or has made a row. A client with neither has no interest in these tasks.
#[derive(Default)]
pub(crate) struct OutboxDrain {
    state: Mutex<State>,
    /// Notified when the state has changed.
    wake: Notify,
}

#[derive(Default)]
struct State {
    /// Rows may have been committed since the outbox was last drained.
    has_committed: bool,
    is_looking: bool,
}

/// The state of the task that runs a drain.
struct DrainTask {
    drain: StdArc<OutboxDrain>,
    store: StdArc<dyn Backend>,
    /// The time until it looks again, or retries after a failure.
    pause: Duration,
    failures: u32,
    /// It has reported that there are rows of a later version.
    has_reported_newer: bool,
}

impl OutboxDrain {
    /// Has all rows moved that have been committed so far.
    pub(crate) fn committed(&self) {
        lock(&self.state).has_committed = true;
        self.wake.notify_one();
    }

    /// Looks for rows from now on.
    pub(crate) fn start_looking(&self) {
        let was_looking = mem::replace(&mut lock(&self.state).is_looking, true);
        if !was_looking {
            self.wake.notify_one();
        }
    }

    /// Moves rows for as long as the engine runs.
    pub(crate) async fn run(self: StdArc<Self>, store: StdArc<dyn Backend>) {
        if store.outbox_insert().is_err() {
            return;
        }
        let mut task = DrainTask {
            drain: self,
            store,
            pause: Duration::ZERO,
            failures: 0,
            has_reported_newer: false,
        };
        loop {
            task.wait().await;
            task.step().await;
        }
    }
}

impl DrainTask {
    /// Waits until it is time to look, or until a commit is reported.
    async fn wait(&self) {
        let wake = self.drain.wake.notified();
        let State {
            has_committed,
            is_looking,
        } = *lock(&self.drain.state);
        match is_looking || has_committed {
            true => drop(timeout(self.pause, wake).await),
            false => wake.await,
        }
    }

    async fn step(&mut self) {
        let has_committed = mem::take(&mut lock(&self.drain.state).has_committed);
        match self.move_rows(has_committed).await {
            Ok(()) => self.failures = 0,
            // If this process exits before the rows are moved, another one moves them.
            Err(_) => {
                self.failures += 1;
                self.pause = BACKOFF.delay(self.failures).unwrap_or_default();
                lock(&self.drain.state).has_committed |= has_committed;
            }
        }
    }

    async fn move_rows(&mut self, has_committed: bool) -> Result<(), Failure> {
        let look = self.store.look_into_outbox().await?;
        self.pause = look.interval;
        let mut more = has_committed || look.has_rows;
        while more {
            let drained = self.store.drain_outbox().await?;
            more = drained.more;
            if drained.unreadable > 0 {
                report::outbox_unreadable(self.store.name(), drained.unreadable);
            }
            if drained.newer > 0 && !mem::replace(&mut self.has_reported_newer, true) {
                report::outbox_newer(self.store.name(), drained.newer);
            }
        }
        Ok(())
    }
}
