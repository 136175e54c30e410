//! A worker runs tasks, and handles its messages.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::FOREVER;
use super::permit::{PermittedRun, RunPermit};
use super::queue_session::QueueSession;
use super::state::{Confirmed, InFlight, Worker};
use crate::durable::clock::since_boot;
use crate::durable::context::Stop;
use crate::durable::executor::app_runner::{RunOutcome, StartedRun, TaskRunner};
use crate::durable::executor::claims::{EndedRun, Holder, StartToken, TaskRun};
use crate::durable::executor::message::Message;
use crate::durable::executor::metrics::Tally;
use crate::durable::executor::permits::Phase;
use crate::durable::executor::scope::{Rule, RunScope};
use crate::durable::failure::Failure;
use crate::durable::progress::RunProgress;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Claim, Claimed, Epoch, ProgressReport, SessionId, Verdict};
use crate::durable::{StopReason, TaskId};

impl Worker {
    /// Starts the tasks of a claim. If one of them was lost before, the worker first confirms that the claim has arrived.
    pub(super) fn start_claim(&mut self, claim: Claim, sent: Duration) {
        self.tally.claimed.add(claim.tasks.len());
        if claim.tasks.iter().all(|task| task.lost == 0) {
            return self.start_tasks(self.current, claim, sent, |worker, _| worker.has_permit());
        }
        let store = StdArc::clone(&self.engine.store);
        self.confirming = Some(InFlight::new(async move {
            let renewed = store.renew(vec![claim.epoch]).await;
            Ok(Confirmed {
                confirmed: renewed.is_ok_and(|answer| answer.lost.is_empty()),
                claim,
                sent,
            })
        }));
    }

    pub(super) fn arrival_confirmed(&mut self, answer: Result<Confirmed, Failure>) {
        self.confirming = None;
        if let Ok(it) = answer {
            self.start_tasks(self.current, it.claim, it.sent, |worker, task| {
                (it.confirmed || task.lost == 0) && worker.has_permit()
            });
        }
        self.forget_early_cancels();
    }

    /// Returns `true` if a task of the last turn's claim may start. A task whose permit was taken by a resumed run waits for another
    /// permit. But if the claim may exceed the permits that the turn counted on, tasks without a permit are given back.
    fn has_permit(&self) -> bool {
        let queue = self.current;
        !self.sessions[queue].may_exceed_permits() || self.can_claim(queue)
    }

    /// Starts the tasks of a pushed claim. Since the session went idle, suspended runs may have resumed, or the runtime may be stuck. Tasks
    /// that cannot run now are given back, since other workers are possibly idle.
    pub(super) fn start_pushed(&mut self, queue: usize, claim: Claim, claimed_at: Duration) {
        self.tally.claimed.add(claim.tasks.len());
        self.start_tasks(queue, claim, claimed_at, |worker, _| {
            worker.can_claim(queue)
        });
    }

    /// Starts those tasks of a claim that may start, and gives the others back.
    fn start_tasks(
        &mut self,
        queue: usize,
        claim: Claim,
        sent: Duration,
        may_start: impl Fn(&Self, &Claimed) -> bool,
    ) {
        let in_time = since_boot() < sent + self.settings.lease && self.stopping.is_none();
        let mut released = 0;
        for task in claim.tasks {
            if in_time && may_start(self, &task) {
                self.start_task(queue, (claim.epoch, sent), task);
            } else {
                let verdict = Verdict::Release;
                self.pending_verdicts.push(claim.epoch, task.id, verdict);
                released += 1;
            }
        }
        self.claims.owe(claim.epoch, released);
    }

    fn start_task(&mut self, queue: usize, (epoch, sent): (Epoch, Duration), task: Claimed) {
        let (id, quarantined, stop) = (task.id, task.quarantined, Stop::default());
        let name = StdArc::clone(&task.name);
        self.count_start(&task);
        let progress = self.progress.of_run(id, epoch);
        let report = EndReporter {
            worker: self.sender.clone(),
            epoch,
            id,
            progress: StdArc::clone(&progress),
            tally: StdArc::clone(&self.tally),
            verdict: None,
            took: Duration::ZERO,
        };
        if self.early_cancels.contains(&id) {
            stop.set(StopReason::Cancelled);
        }
        let start = StartToken::default();
        let (run_stop, run_start) = (stop.clone(), start.clone());
        let (runner, worker) = (StdArc::clone(self.app.runner()), self.sender.clone());
        let task = (self.settings.queues[queue].queue.clone(), task);
        let run = async move {
            match run_start.take() {
                true => Some(run_task(runner, worker, sent, task, run_stop, progress).await),
                false => None,
            }
        };
        let (phase, permit) = match self.claims.permits().is_free(queue) {
            true => (Phase::Running, RunPermit::Held),
            // Suspended runs have resumed since the request was sent.
            false => {
                let granted = self.claims.request_start(queue, epoch, id);
                (Phase::Ready, RunPermit::Requested(granted))
            }
        };
        let run = PermittedRun {
            run: Box::pin(run),
            scope: RunScope::new(
                id,
                self.rule(queue, quarantined),
                StdArc::clone(&self.waiting),
            ),
            permit,
            worker: self.sender.clone(),
            epoch,
            id,
        };
        let run = self.runtime.spawn(async move { report.send(run.await) });
        let abort = run.abort_handle();
        let run = TaskRun {
            name,
            stop,
            start,
            quarantined,
            abort,
            phase,
        };
        self.claims.insert(queue, (epoch, sent), id, run);
    }

    /// Returns the rule for the permit of a run that awaits durable handles. A quarantined run keeps it. If
    /// that is the only permit of its queue, an awaited task of this queue could not run here, so the run must not wait.
    fn rule(&self, queue: usize, quarantined: bool) -> Rule {
        match quarantined {
            false => Rule::GiveBack,
            true if self.claims.permits().limit(queue) > 1 => Rule::Keep,
            true => Rule::Refuse,
        }
    }

    /// Handles the messages that have arrived.
    pub(super) fn receive_all(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.on(message);
        }
    }

    pub(super) fn on(&mut self, message: Message) {
        match message {
            Message::Wake(session) => {
                if session.is_none() {
                    self.sessions
                        .iter_mut()
                        .for_each(QueueSession::miss_messages);
                }
                self.wake(session);
            }
            Message::Pushed(pushed) => self.pushed(&pushed),
            Message::Cancel(ids) => self.cancel(ids),
            Message::Suspended { epoch, id } => {
                self.claims.suspend(epoch, id);
                self.full_since = None;
            }
            Message::Resume { epoch, id, grant } => self.claims.request_resume(epoch, id, grant),
            Message::Started { epoch, id, limit } => self.timeouts.started(epoch, id, limit),
            Message::RuntimeAlive => self.probed = None,
            Message::Ended {
                epoch,
                id,
                verdict,
                took,
            } => self.ended(epoch, id, verdict, took),
            Message::Close => self.stop_within(FOREVER),
            Message::Shutdown(grace) => self.shut_down(grace),
        }
    }

    /// Records that there may be tasks for a session or, without one, for every session. Ignores a session of another worker.
    pub(super) fn wake(&mut self, session: Option<SessionId>) {
        let is_meant = |it: &&mut QueueSession| session.is_none() || it.id == session;
        let sessions = self.sessions.iter_mut().filter(is_meant);
        sessions.for_each(QueueSession::wake);
        if session.is_none() {
            self.recheck_schedules();
        }
    }

    /// Asks runs to stop, including those whose tasks are in an answer of the store that has not arrived yet.
    fn cancel(&mut self, ids: Vec<TaskId>) {
        self.claims.stop(&ids, StopReason::Cancelled);
        if self.awaits_claims() {
            self.early_cancels.extend(ids);
        }
    }

    pub(super) fn forget_early_cancels(&mut self) {
        if !self.awaits_claims() {
            self.early_cancels.clear();
        }
    }

    /// Returns `true` if the store may hold claims for this worker that have not arrived yet, except for those in messages.
    fn awaits_claims(&self) -> bool {
        let mut sessions = self.sessions.iter();
        let may_be_returned = sessions.any(QueueSession::may_miss_pushes);
        self.unanswered.is_some() || self.confirming.is_some() || may_be_returned
    }

    fn ended(&mut self, epoch: Epoch, id: TaskId, verdict: Option<Verdict>, took: Duration) {
        self.timeouts.ended(epoch, id);
        self.full_since = None;
        if self.claims.is_quarantined(epoch, id) {
            // All sessions have passed over the other quarantined tasks.
            self.wake(None);
        }
        let last = self.progress.end(epoch, id);
        let Some(run) = self.claims.end(epoch, id) else {
            return;
        };
        if verdict.is_none() && self.stopping.is_none() {
            // Only the runtime drops runs, when it is shut down.
            self.shut_down(Duration::ZERO);
        }
        let verdict = verdict.unwrap_or(Verdict::Release);
        self.report_end(&run, (epoch, id), (verdict, took), last);
    }

    /// Reports the end of a run, unless another worker has claimed its task. `last` is its last progress report, if that is not stored.
    pub(super) fn report_end(
        &mut self,
        run: &EndedRun,
        (epoch, id): (Epoch, TaskId),
        (verdict, took): (Verdict, Duration),
        last: Option<ProgressReport>,
    ) {
        let verdict = match run.holder {
            Holder::This => verdict,
            Holder::Uncertain => late(verdict),
            // Its last report would be refused, and would stay here, since no verdict follows it.
            Holder::Another => {
                self.tally.rejected.add(1);
                return;
            }
        };
        self.count_end(run, &verdict, took);
        self.progress.add_last(last, &verdict);
        self.pending_verdicts.push(epoch, id, verdict);
    }
}

/// Returns the verdict of a run that was told that it may have lost its task: an error is not counted as a failure.
fn late(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Done(_) | Verdict::Dead { .. } => verdict,
        Verdict::HoldGroup { wait, then } => Verdict::HoldGroup {
            wait,
            then: Box::new(late(*then)),
        },
        _ => Verdict::Release,
    }
}

/// Runs a task of a claim that was requested at `sent`. If the task has a timeout, the worker is notified when the run begins.
async fn run_task(
    runner: StdArc<dyn TaskRunner>,
    worker: mpsc::UnboundedSender<Message>,
    sent: Duration,
    (queue, mut task): (QueueName, Claimed),
    stop: Stop,
    progress: StdArc<RunProgress>,
) -> RunOutcome {
    let (epoch, id) = (progress.epoch(), task.id);
    if let Some(failing_for) = &mut task.failing_for {
        // The run may have waited for its permit.
        *failing_for += since_boot().saturating_sub(sent);
    }
    let StartedRun { run, limit } = runner.run(&queue, task, epoch, stop, progress);
    if let Some(limit) = limit {
        worker.send(Message::Started { epoch, id, limit }).ok();
    }
    run.await
}

/// Reports the end of a run to the worker, even if the runtime drops the run.
struct EndReporter {
    worker: mpsc::UnboundedSender<Message>,
    epoch: Epoch,
    id: TaskId,
    progress: StdArc<RunProgress>,
    tally: StdArc<Tally>,
    verdict: Option<Verdict>,
    took: Duration,
}

impl EndReporter {
    /// Sends the verdict, or `None` if the run was released before it started.
    fn send(mut self, outcome: Option<RunOutcome>) {
        if outcome.as_ref().is_some_and(|outcome| outcome.panicked) {
            self.tally.panicked.add(1);
        }
        if outcome.as_ref().is_some_and(|outcome| outcome.woken_late) {
            self.tally.late_wakes.add(1);
        }
        if let Some(outcome) = outcome {
            (self.verdict, self.took) = (Some(outcome.verdict), outcome.took);
        }
    }
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        self.progress.close();
        let message = Message::Ended {
            epoch: self.epoch,
            id: self.id,
            verdict: self.verdict.take(),
            took: self.took,
        };
        self.worker.send(message).ok();
    }
}
