//! A worker ends runs that exceed their timeouts.
//!
//! A run that has a timeout sends [`Message::Started`] when it begins. When the timeout has passed, the run is asked to stop. If it has not
//! ended after a further lease, it is *fenced*: the worker reports that the attempt has failed, and aborts the run. A run that blocks its
//! thread continues, and keeps its permit until it ends. Its result is ignored, like that of a run that has lost its lease.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::state::Worker;
use crate::durable::clock::since_boot;
use crate::durable::context::Stop;
use crate::durable::executor::claims::Holder;
use crate::durable::executor::message::Message;
use crate::durable::executor::registry::{RunOutcome, StartedRun, TaskRunner};
use crate::durable::executor::timeouts::TimeoutStep;
use crate::durable::progress::RunProgress;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Claimed, Epoch, Verdict};
use crate::durable::{StopReason, TaskId, report};

/// Runs a task of a claim that was requested at `sent`. If the task has a timeout, the worker is notified when the run begins.
pub(super) async fn run_task(
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

impl Worker {
    /// Asks runs that exceed their timeouts to stop, and fences those that have not stopped.
    pub(super) fn enforce_timeouts(&mut self) {
        let (now, grace) = (Instant::now(), self.settings.lease);
        while let Some((epoch, id, step)) = self.timeouts.take_due(now, grace) {
            match step {
                TimeoutStep::Tell => self.tell_timed_out(epoch, id),
                TimeoutStep::Fence(took, verdict) => self.fence(epoch, id, took, verdict),
            }
        }
    }

    fn tell_timed_out(&mut self, epoch: Epoch, id: TaskId) {
        if self.claims.stop_run(epoch, id, StopReason::TimedOut) {
            self.tally.timed_out.add(1);
            report::timed_out(&self.engine.store_name, id);
        }
    }

    /// Reports the verdict on a run that has not ended, and aborts it.
    fn fence(&mut self, epoch: Epoch, id: TaskId, took: Duration, verdict: Verdict) {
        let last = self.progress.end(epoch, id);
        let Some(run) = self.claims.fence(epoch, id) else {
            return;
        };
        let verdict = match run.holder {
            // The worker itself may be the reason why the run took too long.
            Holder::Uncertain => Verdict::Release,
            _ => verdict.after(took),
        };
        self.report_end(&run, (epoch, id), (verdict, took), last);
    }
}
