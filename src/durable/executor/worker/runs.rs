//! How a worker has tasks run, and learns how they ended.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::permit::{Permit, Permitted};
use super::{InFlight, Message, Worker};
use crate::durable::clock::since_boot;
use crate::durable::context::Stop;
use crate::durable::executor::claims::{Holder, Phase, Run, Start};
use crate::durable::executor::scope::{Rule, RunScope};
use crate::durable::failure::Failure;
use crate::durable::store::{Claim, Claimed, Epoch, Verdict};
use crate::durable::{StopReason, TaskId};

/// A claim, the time at which its request was sent, and whether its delivery is confirmed.
pub(super) struct Confirmed {
    claim: Claim,
    sent: Duration,
    confirmed: bool,
}

impl Worker {
    /// Takes what was claimed. If some of it was lost before, the store is to know first that this claim
    /// has arrived.
    pub(super) fn take(&mut self, claim: Claim, sent: Duration) {
        self.tally.claimed.add(claim.tasks.len());
        if claim.tasks.iter().all(|task| task.lost == 0) {
            return self.begin(claim, sent, true);
        }
        let store = StdArc::clone(&self.engine.store);
        self.confirming = Some(InFlight::new(async move {
            let beaten = store.renew(vec![claim.epoch]).await;
            Ok(Confirmed {
                confirmed: beaten.is_ok_and(|beaten| beaten.lost.is_empty()),
                claim,
                sent,
            })
        }));
    }

    pub(super) fn confirmed(&mut self, answer: Result<Confirmed, Failure>) {
        self.confirming = None;
        if let Ok(it) = answer {
            self.begin(it.claim, it.sent, it.confirmed);
        }
    }

    fn begin(&mut self, claim: Claim, sent: Duration, confirmed: bool) {
        let in_time = since_boot() < sent + self.settings.lease && self.stopping.is_none();
        for task in claim.tasks {
            match in_time && (confirmed || task.lost == 0) {
                true => self.begin_one(claim.epoch, sent, task),
                false => self
                    .pending_verdicts
                    .push(claim.epoch, task.id, Verdict::Release),
            }
        }
        self.early_cancels.clear();
    }

    fn begin_one(&mut self, epoch: Epoch, sent: Duration, task: Claimed) {
        let (id, quarantined, stop) = (task.id, task.quarantined, Stop::default());
        let report = Report {
            worker: self.sender.clone(),
            epoch,
            id,
            verdict: None,
        };
        if self.early_cancels.contains(&id) {
            stop.set(StopReason::Cancelled);
        }
        let start = Start::default();
        let (runs, run_stop, run_start) =
            (StdArc::clone(self.app.runs()), stop.clone(), start.clone());
        let run = async move {
            match run_start.take() {
                true => Some(runs.begin(task, epoch, run_stop).await),
                false => None,
            }
        };
        let (phase, permit) = match self.claims.running() < self.settings.concurrency {
            true => (Phase::Running, Permit::Held),
            // Since the request was sent, runs that were suspended have gone on.
            false => {
                let granted = self.claims.ask_to_start(epoch, id);
                (Phase::Ready, Permit::Wanted(granted))
            }
        };
        let run = Permitted {
            run: Box::pin(run),
            scope: RunScope::new(self.rule(quarantined), StdArc::clone(&self.waiting)),
            permit,
            worker: self.sender.clone(),
            epoch,
            id,
        };
        let run = self.runtime.spawn(async move { report.of(run.await) });
        let abort = run.abort_handle();
        let run = Run {
            stop,
            start,
            quarantined,
            abort,
            phase,
        };
        self.claims.insert(epoch, sent, id, run);
    }

    /// Returns the rule for the permit of a run that awaits durable handles. A quarantined run keeps it. If
    /// that is the only permit, the awaited task could not run here, so the run must not wait.
    fn rule(&self, quarantined: bool) -> Rule {
        match quarantined {
            false => Rule::GiveBack,
            true if self.settings.concurrency > 1 => Rule::Keep,
            true => Rule::Refuse,
        }
    }

    pub(super) fn on_all(&mut self, first: Message) {
        self.on(first);
        while let Ok(message) = self.messages.try_recv() {
            self.on(message);
        }
    }

    fn on(&mut self, message: Message) {
        match message {
            Message::Wake => self.look = true,
            Message::Cancel(ids) => self.cancel(ids),
            Message::Suspended { epoch, id } => {
                self.claims.suspend(epoch, id);
                self.full = None;
            }
            Message::Resume { epoch, id, grant } => self.claims.ask_to_resume(epoch, id, grant),
            Message::Pulse => self.asked = None,
            Message::Ended { epoch, id, verdict } => self.ended(epoch, id, verdict),
            Message::Shutdown(grace) => self.shut_down(grace),
        }
    }

    /// Tells runs to stop; also those whose tasks the store has given us, in an answer that is on its
    /// way.
    fn cancel(&mut self, ids: Vec<TaskId>) {
        self.claims.stop(&ids, StopReason::Cancelled);
        if self.turn.is_some() || self.confirming.is_some() {
            self.early_cancels.extend(ids);
        }
    }

    pub(super) fn ended(&mut self, epoch: Epoch, id: TaskId, verdict: Option<Verdict>) {
        let Some(holder) = self.claims.end(epoch, id) else {
            return;
        };
        self.full = None;
        if verdict.is_none() && self.stopping.is_none() {
            // Nobody aborts runs: the runtime is gone, and will run nothing else.
            self.shut_down(Duration::ZERO);
        }
        let verdict = verdict.unwrap_or(Verdict::Release);
        match holder {
            Holder::Us => self.pending_verdicts.push(epoch, id, verdict),
            Holder::UsPerhaps => self.pending_verdicts.push(epoch, id, late(verdict)),
            Holder::Another => drop(self.tally.refused.add(1)),
        }
    }
}

/// What a run says that was told that it may have lost its task: that it was disturbed is no failure.
fn late(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Done(_) | Verdict::Dead { .. } => verdict,
        _ => Verdict::Release,
    }
}

/// Tells the worker of the end of a run, also when its runtime drops it.
struct Report {
    worker: mpsc::UnboundedSender<Message>,
    epoch: Epoch,
    id: TaskId,
    verdict: Option<Verdict>,
}

impl Report {
    /// The verdict is missing if the run was given up before it began.
    fn of(mut self, verdict: Option<Verdict>) {
        self.verdict = verdict;
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let message = Message::Ended {
            epoch: self.epoch,
            id: self.id,
            verdict: self.verdict.take(),
        };
        self.worker.send(message).ok();
    }
}
