//! A worker ends runs that exceed their timeouts.
//!
//! A run that has a timeout sends [`Message::Started`](crate::durable::executor::message::Message::Started) when it begins. When the
//! timeout has passed, the run is asked to stop. If it has not ended after a further lease, it is *fenced*: the worker reports that the
//! attempt has failed, and aborts the run. A run that blocks its thread continues, and keeps its permit until it ends. Its result is
//! ignored, like that of a run that has lost its lease.

use std::time::Duration;

use tokio::time::Instant;

use super::state::Worker;
use crate::durable::executor::claims::Holder;
use crate::durable::executor::timeouts::TimeoutStep;
use crate::durable::store::{Epoch, Verdict};
use crate::durable::{StopReason, TaskId, report};

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
