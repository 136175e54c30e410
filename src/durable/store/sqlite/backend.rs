//! The requests of [`SqliteStore`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::error::Fault;
use super::next_check::UNREACHABLE_CHECK_INTERVAL;
use super::reader::ReadConnection;
use super::transaction::Transaction;
use super::{
    SqliteStore, admin, changes, diagnosis, enqueue, find, head, idle, list, outbox, overview,
    progress, queries, renew, retention, schedules, session, stats, steps, turn, workers,
};
use crate::durable::failure::{Cause, Failure};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, DrainedOutbox, Enqueue,
    Enqueued, Epoch, Event, FoundTask, HandOut, ListTasks, MAX_BATCH_BYTES, NewSession, NewStep,
    OutboxLook, ProgressReport, ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer,
    ScheduleChange, SessionId, SignalAnswer, StatReport, StatsPage, StepAnswer, StepName,
    StoredSchedule, StoredStep, TaskState, Turn, TurnAnswer,
};
use crate::durable::task::bytes_of;
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Outbox, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::lock;

impl SqliteStore {
    /// Runs a query. If the data cannot be read, repairs the store and runs the query again.
    fn read<'a, T: Send + 'static>(
        &'a self,
        query: impl Fn(&ReadConnection) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Answer<'a, T> {
        let query = Arc::new(query);
        let run = move || {
            let query = Arc::clone(&query);
            self.reader.run(move |reader| query(reader))
        };
        Box::pin(async move {
            let repairs = self.shared.damage.repairs();
            match run().await {
                Err(failure) if failure.cause == Cause::Corrupt && self.writer.is_open() => {
                    self.writer.repair(repairs).await?;
                    run().await
                }
                answer => answer,
            }
        })
    }

    async fn hand_out_due(&self, computes: u8) -> Result<HandOut, Failure> {
        let next = self.read(move |reader| schedules::next_hand_out(reader, computes));
        match next.await? {
            Some(Duration::ZERO) => {
                let hand_out = move |tx: &mut Transaction<'_>| schedules::hand_out(tx, computes);
                self.writer.run(0, hand_out).await
            }
            // Nothing is due, so nothing is written.
            next => Ok(HandOut {
                due: Vec::new(),
                next,
            }),
        }
    }

    async fn take_turn(&self, request: Arc<Turn>) -> Result<TurnAnswer, Failure> {
        // A session that was woken is likely to find a task, so it does not check first.
        if request.verdicts.is_empty() && !self.shared.endpoint.was_woken(request.session) {
            let turn = Arc::clone(&request);
            let idle = self
                .reader
                .run(move |reader| idle::idle_turn(reader, &turn));
            // If the reader has failed, the writer reports the same failure, or repairs the store.
            if let Ok(Some(turned)) = idle.await {
                return Ok(turned);
            }
        }
        let turn = Arc::clone(&request);
        let bytes = turn::output_bytes(&request);
        let turned = self.writer.run(bytes, move |tx| turn::turn(tx, &turn));
        let mut turned = turned.await?;
        if request.go_idle && turned.claim.is_none() && !turned.more {
            let turned_idle = self
                .reader
                .run(move |reader| idle::go_idle(reader, &request));
            match turned_idle.await {
                Ok(Some(idle)) => turned.next = idle.next,
                // Meanwhile, there is something to do.
                Ok(None) => turned.next = Some(Duration::ZERO),
                Err(_) => turned.next = Some(UNREACHABLE_CHECK_INTERVAL),
            }
        }
        Ok(turned)
    }
}

impl Backend for SqliteStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.writer.run(0, move |tx| session::open(tx, &session))
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.read(move |reader| workers::list(reader, after.as_deref(), limit))
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.read(move |reader| workers::find(reader, session))
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.writer.run(0, move |tx| session::close(tx, session))
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued> {
        let batch = Arc::clone(&request.batch);
        let run = move |tx: &mut Transaction<'_>| enqueue::enqueue(tx, &request);
        // The size is the maximum, since the tasks are only determined when they are written.
        self.writer.run_then(MAX_BATCH_BYTES, run, move |answer| {
            if let Ok(enqueued) = answer {
                batch.notify_stored(enqueued);
            }
        })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        Box::pin(self.take_turn(request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.writer.run(0, move |tx| renew::renew(tx, &claims))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.read(move |reader| queries::status(reader, &ids))
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        let bytes = reports.iter().map(|it| it.progress.bytes.len()).sum();
        self.writer
            .run(bytes, move |tx| progress::report(tx, &reports))
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.read(move |reader| progress::read(reader, &ids))
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        let bytes = steps.iter().map(NewStep::size).sum();
        self.writer.run(bytes, move |tx| steps::store(tx, &steps))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.read(move |reader| steps::read(reader, id))
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        let bytes = value.len();
        self.writer
            .run(bytes, move |tx| steps::signal(tx, id, &name, &value))
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.read(move |reader| list::list(reader, &request))
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.read(move |reader| find::find(reader, id))
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.read(move |reader| head::head(reader, &queue, limit))
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.writer.run(0, move |tx| admin::cancel(tx, &ids))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.writer
            .run(0, move |tx| changes::change(tx, &ids, &change))
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.read(move |reader| queries::dead_letters(reader, &filter, limit))
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.read(move |reader| queries::dead_letter_payload(reader, id))
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.writer
            .run(0, move |tx| admin::replay_dead_letters(tx, &filter))
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.writer
            .run(0, move |tx| admin::delete_dead_letters(tx, &filter))
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        let set = move |tx: &mut Transaction<'_>| tx.set_paused(&name, is_paused);
        self.writer.run(0, set)
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        let change = move |tx: &mut Transaction<'_>| admin::change_queue(tx, &queue, change);
        self.writer.run(0, change)
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.read(move |reader| queries::queue(reader, &queue))
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        Box::pin(self.hand_out_due(computes))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.read(move |reader| schedules::get(reader, &name))
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.read(move |reader| schedules::list(reader, after.as_ref(), limit))
    }

    fn change_schedule(&self, change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        let bytes = bytes_of(&change.tasks);
        let run = move |tx: &mut Transaction<'_>| schedules::change(tx, &change);
        self.writer.run(bytes, run)
    }

    fn outbox_insert(&self) -> Result<Arc<str>, Cause> {
        Ok(Outbox::INSERT_SQLITE.into())
    }

    fn look_into_outbox(&self) -> Answer<'_, OutboxLook> {
        self.read(outbox::look)
    }

    fn drain_outbox(&self) -> Answer<'_, DrainedOutbox> {
        self.writer.run(MAX_BATCH_BYTES, outbox::drain)
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.read(queries::paused_types)
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.writer.run(0, move |tx| admin::maintain(tx, budget))
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            for _ in 0..2 {
                // If this fails, the next process removes the sessions.
                self.writer.run(0, session::close_all).await.ok();
            }
            self.reader.close().await;
            let closed = self.writer.close().await;
            self.shared.endpoint.close();
            closed
        })
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.read(move |reader| queries::errors(reader, id))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read(queries::counts)
    }

    fn record_stats(&self, report: Arc<StatReport>) -> Answer<'_, ()> {
        self.writer.run(0, move |tx| stats::record(tx, &report))
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.read(move |reader| stats::read(reader, &request))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.read(overview::overview)
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.read(diagnosis::diagnose)
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.read(retention::read)
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.writer.run(0, move |tx| {
            retention::change(tx, retention);
            Ok(())
        })
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.shared.damage.recent().map(|it| (it.rows, it.last))
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.read(session::layout)
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        self.writer.run(0, session::upgrade)
    }

    fn probe(&self) -> Answer<'_, Durability> {
        if !self.writer.is_open() {
            // Each connection that writes to a store waits for the disk.
            return Box::pin(async { Ok(Durability::Synced) });
        }
        self.writer.run(0, |tx| {
            // With `FULL` (2) and above, a commit of this connection waits for the disk.
            let synchronous = tx.number("PRAGMA synchronous", [])?;
            Ok(match synchronous {
                Some(2..) => Durability::Synced,
                _ => Durability::Process,
            })
        })
    }
}
