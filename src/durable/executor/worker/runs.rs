//! How a worker has tasks run, and learns how they ended.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Message, Worker};
use crate::durable::clock::since_boot;
use crate::durable::context::Stop;
use crate::durable::executor::claims::{Holder, Run, Start};
use crate::durable::store::{Backend, Claim, Claimed, Epoch, Verdict};
use crate::durable::{StopReason, TaskId};

impl Worker {
    pub(super) async fn begin(&mut self, claim: Claim, sent: Duration) {
        self.tally.claimed.add(claim.tasks.len());
        let confirmed = claim.tasks.iter().all(|task| task.lost == 0)
            || confirm(&*self.engine.store, claim.epoch).await;
        let in_time = since_boot() < sent + self.settings.lease && self.stopping.is_none();
        for task in claim.tasks {
            match in_time && (confirmed || task.lost == 0) {
                true => self.begin_one(claim.epoch, sent, task),
                false => self.outbox.push(claim.epoch, task.id, Verdict::Release),
            }
        }
    }

    fn begin_one(&mut self, epoch: Epoch, sent: Duration, task: Claimed) {
        let (id, risky, stop) = (task.id, task.risky, Stop::default());
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
        let (runs, run_stop, run_start) = (StdArc::clone(&self.runs), stop.clone(), start.clone());
        let run = self.runtime.spawn(async move {
            if run_start.take() {
                report.of(runs.begin(task, epoch, run_stop).await);
            }
        });
        let abort = run.abort_handle();
        let run = Run {
            stop,
            start,
            risky,
            abort,
        };
        self.claims.insert(epoch, sent, id, run);
        self.tally.running.set(self.claims.running());
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
            Message::Pulse => self.asked = None,
            Message::Ended { epoch, id, verdict } => self.ended(epoch, id, verdict),
            Message::Shutdown(grace) => self.shut_down(grace),
        }
    }

    /// Tells runs to stop; also those whose tasks the store has given us, in an answer that is on its
    /// way.
    fn cancel(&mut self, ids: Vec<TaskId>) {
        self.claims.stop(&ids, StopReason::Cancelled);
        if self.turn.is_some() {
            self.early_cancels.extend(ids);
        }
    }

    pub(super) fn ended(&mut self, epoch: Epoch, id: TaskId, verdict: Option<Verdict>) {
        let Some(holder) = self.claims.end(epoch, id) else {
            return;
        };
        self.tally.running.set(self.claims.running());
        if verdict.is_none() && self.stopping.is_none() {
            // Nobody aborts runs: the runtime is gone, and will run nothing else.
            self.shut_down(Duration::ZERO);
        }
        let verdict = verdict.unwrap_or(Verdict::Release);
        match holder {
            Holder::Us => self.outbox.push(epoch, id, verdict),
            Holder::UsPerhaps => self.outbox.push(epoch, id, late(verdict)),
            Holder::Another => drop(self.tally.refused.add(1)),
        }
    }
}

/// Whether the store knows that a claim has arrived, and that it is still ours.
async fn confirm(store: &dyn Backend, epoch: Epoch) -> bool {
    let beaten = store.beat(vec![epoch]).await;
    beaten.is_ok_and(|beaten| beaten.lost.is_empty())
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
    fn of(mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
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
