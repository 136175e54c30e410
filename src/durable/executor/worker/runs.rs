//! How a worker has tasks run, and learns how they ended.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Message, Worker};
use crate::durable::clock::{millis, since_boot};
use crate::durable::context::Stop;
use crate::durable::executor::claims::Run;
use crate::durable::store::{Claim, Claimed, Epoch, Verdict};
use crate::durable::{StopReason, TaskId};

impl Worker {
    pub(super) async fn begin(&mut self, claim: Claim, sent: Duration) {
        self.tally.claimed.add(claim.tasks.len());
        if self.claims.running() == 0 {
            self.alive.set(millis(since_boot()) as usize);
        }
        let confirmed = claim.tasks.iter().all(|task| task.lost == 0)
            || self.engine.store.beat(vec![claim.epoch]).await.is_ok();
        let in_time = since_boot() < sent + self.settings.lease && self.stopping.is_none();
        for task in claim.tasks {
            match in_time && (confirmed || task.lost == 0) {
                true => self.begin_one(claim.epoch, sent, task),
                false => self.outbox.push(claim.epoch, task.id, Verdict::Release),
            }
        }
    }

    fn begin_one(&mut self, epoch: Epoch, sent: Duration, task: Claimed) {
        let (id, stop) = (task.id, Stop::default());
        let report = Report {
            worker: self.sender.clone(),
            epoch,
            id,
            verdict: None,
        };
        let (runs, run_stop) = (StdArc::clone(&self.runs), stop.clone());
        let run = self.runtime.spawn(async move {
            report.of(runs.begin(task, epoch, run_stop).await);
        });
        let abort = run.abort_handle();
        self.claims.insert(epoch, sent, id, Run { stop, abort });
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
            Message::Cancel(ids) => self.claims.stop(&ids, StopReason::Cancelled),
            Message::Ended { epoch, id, verdict } => self.ended(epoch, id, verdict),
            Message::Shutdown(grace) => self.shut_down(grace),
        }
    }

    pub(super) fn ended(&mut self, epoch: Epoch, id: TaskId, verdict: Option<Verdict>) {
        let Some(removed) = self.claims.remove(epoch, id) else {
            return;
        };
        self.tally.running.set(self.claims.running());
        if verdict.is_none() && self.stopping.is_none() {
            // Nobody aborts runs: the runtime is gone, and will run nothing else.
            self.shut_down(Duration::ZERO);
        }
        if !removed.lost {
            let verdict = verdict.unwrap_or(Verdict::Release);
            self.outbox.push(epoch, id, verdict);
        }
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
