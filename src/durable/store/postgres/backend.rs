//! The requests of [`PostgresStore`].

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::connection::quoted;
use super::idle::Idle;
use super::transaction::Run;
use super::{
    PostgresStore, cancel, changes, dead_letters, diagnosis, enqueue, errors, find, head, idle,
    list, maintain, next_check, outbox, overview, pauses, probe, progress, queries, queue_changes,
    renew, retention, schedules, session, stats, steps, turn, workers,
};
use crate::durable::failure::{Cause, Failure};
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    Answer, Backend, Change, ChangeAnswer, DeadPayload, Diagnoses, DrainedOutbox, Enqueue,
    Enqueued, Epoch, Event, FoundTask, HandOut, ListTasks, NewSession, NewStep, OutboxLook,
    ProgressReport, ProgressState, QueueChange, ReadStats, RenewAnswer, ScheduleAnswer,
    ScheduleChange, SessionId, SignalAnswer, StatReport, StatsPage, StepAnswer, StepName,
    StoredSchedule, StoredStep, TaskState, Turn, TurnAnswer,
};
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, Health, Outbox, Overview, QueueHead,
    Retention, StoreLayout, TaskId, TaskPage, WorkerInfo, WorkersPage,
};
use crate::sync::lock;

/// The number of dead letters that a transaction replays or deletes.
const LETTERS_PER_PART: usize = 64;

impl PostgresStore {
    async fn read_status(&self, ids: Vec<TaskId>) -> Result<Vec<TaskState>, Failure> {
        let watch = self.reader.work(ids.clone(), |db, shared, ids| {
            Box::pin(queries::watch(db, shared, ids))
        });
        watch.await?;
        self.read(ids, |view, ids| Box::pin(queries::status(view, ids)))
            .await
    }

    async fn take_turn(&self, request: Arc<Turn>) -> Result<TurnAnswer, Failure> {
        let set = lock(&self.shared.sets)
            .get(&request.session)
            .cloned()
            .flatten();
        // A queue with limits is served by one turn at a time.
        let is_exclusive = set.as_ref().is_some_and(|set| !set.queue().is_default());
        let turn = Arc::clone(&request);
        let session = Some(request.session);
        let turn = self.writer.run(turn, session, is_exclusive, |tx, turn| {
            Box::pin(turn::turn(tx, turn))
        });
        let mut turned = turn.await?;
        let is_due = turned.next == Some(Duration::ZERO);
        let has_nothing = turned.claim.is_none() && !turned.more && !is_due;
        // A process that receives no notifications is not to be chosen for any: its sessions look at intervals.
        let goes_idle = request.go_idle && has_nothing && self.shared.is_listening();
        if let Some(set) = set.filter(|_| goes_idle) {
            let idle = Idle {
                session: request.session,
                set,
                quarantined: request.quarantined,
            };
            let looked = self.go_idle(idle).await;
            // If this fails, the session looks again soon.
            turned.next = looked.map_or(Some(next_check::UNREACHABLE_CHECK_INTERVAL), |it| it.next);
        }
        Ok(turned)
    }

    /// Runs a request for the dead letters that match, in parts of which each ends in time, however many match. Returns the sum of the
    /// answers.
    async fn in_parts(
        &self,
        filter: DeadFilter,
        run: Run<DeadFilter, u64>,
    ) -> Result<u64, Failure> {
        let name = filter.name.clone();
        let matching = self.read(filter, |view, it| Box::pin(dead_letters::ids(view, it)));
        let mut changed = 0;
        for (number, ids) in matching.await?.chunks(LETTERS_PER_PART).enumerate() {
            let part = DeadFilter {
                name: name.clone(),
                ids: Some(ids.to_vec()),
            };
            let done = self.write_exclusive(part, run).await;
            changed += done.map_err(|failure| match number {
                0 => failure,
                _ => failure.with_unknown_effect(),
            })?;
        }
        Ok(changed)
    }

    /// Makes a session idle, to be woken when there is something to do.
    async fn go_idle(&self, idle: Idle) -> Result<TurnAnswer, Failure> {
        let park = self.reader.work(idle.clone(), |db, shared, idle| {
            Box::pin(idle::park(db, shared, idle))
        });
        park.await?;
        self.read(idle, |view, idle| {
            Box::pin(idle::look_once_more(view, idle))
        })
        .await
    }
}

impl Backend for PostgresStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session_with(&self, session: NewSession) -> Answer<'_, SessionId> {
        self.write_exclusive(session, |tx, new| Box::pin(session::open(tx, new)))
    }

    fn workers(&self, after: Option<Vec<u8>>, limit: usize) -> Answer<'_, Option<WorkersPage>> {
        self.read((after, limit), |view, (after, limit)| {
            Box::pin(workers::list(view, after.as_deref(), *limit))
        })
    }

    fn worker(&self, session: SessionId) -> Answer<'_, Option<WorkerInfo>> {
        self.read(session, |view, id| Box::pin(workers::find(view, *id)))
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.write_exclusive(session, |tx, session| {
            Box::pin(session::close(tx, *session))
        })
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, Enqueued> {
        let (batch, session) = (Arc::clone(&request.batch), Some(request.session));
        let stored = self.writer.run(request, session, false, |tx, it| {
            Box::pin(enqueue::enqueue(tx, it))
        });
        Box::pin(async move {
            stored
                .await
                .inspect(|enqueued| batch.notify_stored(enqueued))
        })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        Box::pin(self.take_turn(request))
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.write(claims, |tx, claims| Box::pin(renew::renew(tx, claims)))
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        Box::pin(self.read_status(ids))
    }

    fn report_progress(&self, reports: Vec<ProgressReport>) -> Answer<'_, Vec<TaskId>> {
        self.write(reports, |tx, it| Box::pin(progress::report(tx, it)))
    }

    fn progress(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<ProgressState>> {
        self.read(ids, |view, ids| Box::pin(progress::read(view, ids)))
    }

    fn store_steps(&self, steps: Vec<NewStep>) -> Answer<'_, Vec<StepAnswer>> {
        self.write(steps, |tx, steps| Box::pin(steps::store(tx, steps)))
    }

    fn steps(&self, id: TaskId) -> Answer<'_, Vec<StoredStep>> {
        self.read(id, |view, id| Box::pin(steps::read(view, *id)))
    }

    fn signal(&self, id: TaskId, name: StepName, value: Vec<u8>) -> Answer<'_, SignalAnswer> {
        self.write((id, name, value), |tx, (id, name, value)| {
            Box::pin(steps::signal(tx, *id, name, value))
        })
    }

    fn list(&self, request: ListTasks) -> Answer<'_, Option<TaskPage>> {
        self.read(request, |view, it| Box::pin(list::list(view, it)))
    }

    fn find(&self, id: TaskId) -> Answer<'_, Option<FoundTask>> {
        self.read(id, |view, id| Box::pin(find::find(view, *id)))
    }

    fn head(&self, queue: QueueName, limit: usize) -> Answer<'_, QueueHead> {
        self.read((queue, limit), |view, (queue, limit)| {
            Box::pin(head::head(view, queue, *limit))
        })
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.write_exclusive(ids, |tx, ids| Box::pin(cancel::cancel(tx, ids)))
    }

    fn change(&self, ids: Vec<TaskId>, change: Change) -> Answer<'_, Vec<ChangeAnswer>> {
        self.write_exclusive((ids, change), |tx, (ids, change)| {
            Box::pin(changes::change(tx, ids, change))
        })
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.read((filter, limit), |view, (filter, limit)| {
            Box::pin(dead_letters::list(view, filter, *limit))
        })
    }

    fn dead_letter_payload(&self, id: TaskId) -> Answer<'_, Option<DeadPayload>> {
        self.read(id, |view, id| Box::pin(dead_letters::payload(view, *id)))
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        Box::pin(self.in_parts(filter, |tx, it| Box::pin(dead_letters::replay(tx, it))))
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        Box::pin(self.in_parts(filter, |tx, it| Box::pin(dead_letters::delete(tx, it))))
    }

    fn set_paused(&self, name: String, is_paused: bool) -> Answer<'_, ()> {
        self.write_exclusive((name, is_paused), |tx, (name, is_paused)| {
            Box::pin(pauses::set_paused(tx, name, *is_paused))
        })
    }

    fn change_queue(&self, queue: QueueName, change: QueueChange) -> Answer<'_, bool> {
        self.write_exclusive((queue, change), |tx, (queue, change)| {
            Box::pin(queue_changes::change(tx, queue, *change))
        })
    }

    fn queue(&self, queue: QueueName) -> Answer<'_, QueueInfo> {
        self.read(queue, |view, queue| Box::pin(queries::queue(view, queue)))
    }

    fn hand_out(&self, computes: u8) -> Answer<'_, HandOut> {
        self.write_exclusive(computes, |tx, it| Box::pin(schedules::hand_out(tx, *it)))
    }

    fn schedule(&self, name: ScheduleName) -> Answer<'_, ScheduleAnswer> {
        self.read(name, |view, name| Box::pin(schedules::get(view, name)))
    }

    fn schedules(
        &self,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> Answer<'_, Vec<StoredSchedule>> {
        self.read((after, limit), |view, (after, limit)| {
            Box::pin(schedules::list(view, after.as_ref(), *limit))
        })
    }

    fn change_schedule(&self, change: Arc<ScheduleChange>) -> Answer<'_, Option<Enqueued>> {
        self.write_exclusive(change, |tx, it| Box::pin(schedules::change(tx, it)))
    }

    fn outbox_insert(&self) -> Result<Arc<str>, Cause> {
        let schema = format!("{}.", quoted(&self.shared.server.schema));
        Ok(match &*self.shared.server.schema {
            "throng" => Outbox::INSERT_POSTGRES.into(),
            _ => Outbox::INSERT_POSTGRES.replace("throng.", &schema).into(),
        })
    }

    fn look_into_outbox(&self) -> Answer<'_, OutboxLook> {
        self.reader
            .work((), |db, shared, it| Box::pin(outbox::look(db, shared, it)))
    }

    fn drain_outbox(&self) -> Answer<'_, DrainedOutbox> {
        self.write((), |tx, ()| Box::pin(outbox::drain(tx)))
    }

    fn paused_types(&self) -> Answer<'_, Vec<String>> {
        self.read((), |view, it| Box::pin(queries::paused_types(view, it)))
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.write_exclusive(budget, |tx, it| Box::pin(maintain::maintain(tx, *it)))
    }

    fn maintain_every(&self, interval: Duration, budget: usize) -> Answer<'_, bool> {
        self.write((interval, budget), |tx, (interval, budget)| {
            Box::pin(maintain::maintain_every(tx, *interval, *budget))
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        self.write_exclusive((), |tx, ()| Box::pin(session::close_all(tx)))
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.read(id, |view, id| Box::pin(errors::read(view, *id)))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read((), |view, it| Box::pin(queries::counts(view, it)))
    }

    fn record_stats(&self, report: Arc<StatReport>) -> Answer<'_, ()> {
        self.write_exclusive(report, |tx, it| Box::pin(stats::record(tx, it)))
    }

    fn stats(&self, request: ReadStats) -> Answer<'_, StatsPage> {
        self.read(request, |view, it| Box::pin(stats::read(view, it)))
    }

    fn overview(&self) -> Answer<'_, Overview> {
        self.read((), |view, ()| Box::pin(overview::overview(view)))
    }

    fn diagnose(&self) -> Answer<'_, Diagnoses> {
        self.read((), |view, ()| Box::pin(diagnosis::diagnose(view)))
    }

    fn health(&self) -> Health {
        match self.shared.is_observer || self.shared.is_listening() {
            true => Health::Well,
            false => Health::Mute,
        }
    }

    fn retention(&self) -> Answer<'_, Retention> {
        self.read((), |view, ()| Box::pin(retention::read(view)))
    }

    fn set_retention(&self, retention: Retention) -> Answer<'_, ()> {
        self.write_exclusive(retention, |tx, it| Box::pin(retention::change(tx, *it)))
    }

    fn layout(&self) -> Answer<'_, StoreLayout> {
        self.read((), |view, ()| Box::pin(session::layout(view)))
    }

    fn upgrade(&self) -> Answer<'_, ()> {
        self.write_exclusive((), |tx, ()| Box::pin(session::upgrade(tx)))
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.read((), |view, ()| Box::pin(probe::probe(view)))
    }
}
