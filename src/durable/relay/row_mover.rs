//! [`RowMover`]: the loop of a relay.

use std::collections::HashSet;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::durable::TaskId;
use crate::durable::engine::Engine;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::report;
use crate::durable::resend::BACKOFF;
use crate::durable::spawn_queue::split;
use crate::durable::store::{MAX_PAYLOAD_BYTES, NewTask, RelayedOutbox, TakenRow};

/// The time for which at least the ends of tasks are kept. If a relay dies after it has stored tasks and before it has removed their rows,
/// their ends tell the next relay that they have run.
const MIN_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The interval at which the relay checks whether awaited rows that another relay has taken are removed.
const AWAITED_INTERVAL: Duration = Duration::from_millis(20);

/// The number of transactions after which the relay checks the same, even if there are more rows to move.
const MAX_TRANSACTIONS: usize = 16;

/// Moves rows from an outbox into the store of a client.
pub(super) struct RowMover {
    /// The name of the outbox for messages.
    pub(super) name: StdArc<str>,
    pub(super) outbox: Box<dyn RelayedOutbox>,
    pub(super) engine: StdArc<Engine>,
    pub(super) requests: mpsc::UnboundedReceiver<AwaitedRow>,
    pub(super) stop: CancellationToken,
}

/// A row that a caller awaits until it has left the outbox.
pub(super) struct AwaitedRow {
    pub(super) id: TaskId,
    pub(super) moved: oneshot::Sender<()>,
}

/// The state of the loop.
struct MovingRows {
    mover: RowMover,
    awaited: Vec<AwaitedRow>,
    /// The stored tasks whose rows may still be in the outbox. They are not stored again: if their rows cannot be removed for long enough,
    /// the store forgets that they have run.
    stored: HashSet<TaskId>,
    /// The time until it looks next, or tries again.
    pause: Duration,
    failures: u32,
    /// It has reported that there are rows of a later version.
    has_reported_newer: bool,
}

impl RowMover {
    /// Opens the outbox, says whether this has succeeded, and then moves rows until it is stopped.
    pub(super) async fn run(mut self, opened: oneshot::Sender<Result<(), Failure>>) {
        let result = self.outbox.open().await;
        let is_open = result.is_ok();
        if opened.send(result).is_err() || !is_open {
            return;
        }
        let mut moving = MovingRows {
            mover: self,
            awaited: Vec::new(),
            stored: HashSet::new(),
            pause: Duration::ZERO,
            failures: 0,
            has_reported_newer: false,
        };
        while moving.wait().await {
            moving.step().await;
        }
    }
}

impl MovingRows {
    /// Waits until it is time to look, or until a row was committed. Returns `false` if the relay ends.
    async fn wait(&mut self) -> bool {
        let pause = sleep(self.pause);
        tokio::pin!(pause);
        loop {
            select! {
                biased;
                () = self.mover.stop.cancelled() => return false,
                request = self.mover.requests.recv() => self.awaited.extend(request),
                () = &mut pause => return true,
            }
            self.receive();
            // After a failure, it does not try more often than otherwise.
            if self.failures == 0 {
                return true;
            }
        }
    }

    async fn step(&mut self) {
        match self.move_rows().await {
            Ok(()) => self.failures = 0,
            Err(_) if self.mover.stop.is_cancelled() => {}
            Err(failure) => {
                self.failures += 1;
                self.pause = BACKOFF.delay(self.failures).unwrap_or_default();
                report::relay_failed(&self.mover.name, &failure, self.failures);
            }
        }
        // Others may have awaited rows for as long as the database could not be reached.
        self.forget_dropped();
    }

    /// Moves the rows that can be moved.
    async fn move_rows(&mut self) -> Result<(), Failure> {
        let look = self.mover.outbox.look().await?;
        self.pause = look.interval;
        let mut more = look.has_rows;
        for _ in 0..MAX_TRANSACTIONS {
            if !more || self.mover.stop.is_cancelled() {
                break;
            }
            more = self.move_some().await?;
        }
        if !more {
            self.stored.clear();
        }
        if !self.has_reported_newer {
            self.report_newer().await?;
        }
        self.answer_moved_by_others().await?;
        match self.awaited.is_empty() {
            _ if more => self.pause = Duration::ZERO,
            true => {}
            false => self.pause = AWAITED_INTERVAL,
        }
        Ok(())
    }

    /// Moves the next rows. Returns `true` if there may be more.
    async fn move_some(&mut self) -> Result<bool, Failure> {
        let taken = self.mover.outbox.take().await?;
        if taken.rows.is_empty() {
            self.mover.outbox.give_back().await?;
            return Ok(false);
        }
        let (tasks, unreadable) = self.mover.tasks_of(&taken.rows);
        let moved: HashSet<_> = tasks.iter().map(|task| task.id).collect();
        if let Err(failure) = self.store(tasks).await {
            self.mover.outbox.give_back().await.ok();
            return Err(failure);
        }
        failpoint("relay.stored");
        self.mover.outbox.remove(&taken.rows).await?;
        self.stored.retain(|id| !moved.contains(id));
        if unreadable > 0 {
            report::outbox_unreadable(&self.mover.name, unreadable);
        }
        self.receive();
        self.answer(|id| moved.contains(&id));
        Ok(taken.more)
    }

    /// Stores tasks under their ids, except those that it has stored before. Succeeds when the store has acknowledged all of them.
    async fn store(&mut self, mut tasks: Vec<NewTask>) -> Result<(), Failure> {
        tasks.retain(|task| !self.stored.contains(&task.id));
        for tasks in split(tasks) {
            let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
            let Ok(stored) = self.mover.engine.spawn_queue.push(tasks).await else {
                // The client was closed.
                self.mover.stop.cancel();
                return Err(Failure::new(Effect::None, Cause::Unavailable));
            };
            stored?;
            self.stored.extend(ids);
        }
        Ok(())
    }

    async fn report_newer(&mut self) -> Result<(), Failure> {
        let newer = self.mover.outbox.count_newer().await?;
        if newer > 0 {
            self.has_reported_newer = true;
            report::outbox_newer(&self.mover.name, newer);
        }
        Ok(())
    }

    /// Answers those whose rows are not in the outbox, for instance because another relay has moved them.
    async fn answer_moved_by_others(&mut self) -> Result<(), Failure> {
        self.forget_dropped();
        if self.awaited.is_empty() {
            return Ok(());
        }
        let ids = self.awaited.iter().map(|row| row.id).collect();
        let left = self.mover.outbox.find(ids).await?;
        let left: HashSet<_> = left.into_iter().collect();
        self.answer(|id| !left.contains(&id));
        Ok(())
    }

    /// Answers those whose rows have left the outbox.
    fn answer(&mut self, is_moved: impl Fn(TaskId) -> bool) {
        for row in self.awaited.extract_if(.., |row| is_moved(row.id)) {
            row.moved.send(()).ok();
        }
    }

    /// Receives the requests that have arrived.
    fn receive(&mut self) {
        while let Ok(request) = self.mover.requests.try_recv() {
            self.awaited.push(request);
        }
    }

    /// Forgets those who no longer await their rows.
    fn forget_dropped(&mut self) {
        self.awaited.retain(|row| !row.moved.is_closed());
    }
}

impl RowMover {
    /// Returns the tasks of rows, and the number of rows that cannot be read.
    fn tasks_of(&self, rows: &[TakenRow]) -> (Vec<NewTask>, u64) {
        let mut unreadable = 0;
        let tasks = rows.iter().map(|row| {
            let readable = row.entry.read().ok().filter(|task| self.can_store(task));
            let mut task = readable.unwrap_or_else(|| {
                unreadable += 1;
                unreadable_task(row)
            });
            task.retention = task.retention.max(MIN_RETENTION);
            task
        });
        (tasks.collect(), unreadable)
    }

    /// Returns `true` if the id of a task is in the partition of its queue.
    fn can_store(&self, task: &NewTask) -> bool {
        let key = task.key.as_ref().map(|key| key.hash);
        self.engine.store.can_have(task.id, &task.queue, key)
    }
}

/// Returns the task by which an operator finds a row that cannot be read. If the row is moved again, the task is the same one.
fn unreadable_task(row: &TakenRow) -> NewTask {
    let mut task = row.entry.clone().into_unreadable();
    task.id = TaskId::derive(&task.name, &[&row.key[..], &row.entry.body].concat());
    task.payload.truncate(MAX_PAYLOAD_BYTES);
    // It waits for a worker like any other task. None has its type.
    task.delay = Duration::ZERO;
    task
}
