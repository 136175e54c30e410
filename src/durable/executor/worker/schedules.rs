//! How a worker fires the schedules that the store has handed out to it.
//!
//! The store may hand a schedule to any worker whose build computes its ticks, even if the worker does not run the tasks. The
//! worker computes what the schedule does, and requests that change. If the worker dies, or if the request is lost, the store
//! hands the schedule out again after [`HAND_OUT_INTERVAL`](crate::durable::store::HAND_OUT_INTERVAL).

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::state::{InFlight, Worker};
use crate::durable::engine::Engine;
use crate::durable::executor::metrics::Tally;
use crate::durable::failure::Failure;
use crate::durable::report;
use crate::durable::schedule::step;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::{DueSchedule, Turn};

impl Worker {
    /// Returns the bits of the schedules that the next turn may be handed: none while others are being fired, so that the number of
    /// schedules in this process is bounded.
    pub(super) fn computes(&self) -> u8 {
        match self.firing.is_some() || self.stopping.is_some() {
            true => 0,
            false => COMPUTES,
        }
    }

    /// Returns the time of the next turn that is sent because of schedules. It is sent even if no permit is free: otherwise, no
    /// schedule would fire while all workers are busy.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.next_tick
            .filter(|_| self.firing.is_none() && self.checks())
    }

    /// Makes the next turn find out whether a schedule is due, since the store's clock may have been set.
    pub(super) fn recheck_schedules(&mut self) {
        let now = Instant::now();
        self.next_tick = self.next_tick.map(|next| next.min(now));
    }

    /// Fires the schedules that a turn has handed out, and records when the next one is due.
    pub(super) fn note_schedules(
        &mut self,
        request: &Turn,
        due: Vec<DueSchedule>,
        next: Option<Duration>,
    ) {
        if request.computes == 0 {
            return;
        }
        self.next_tick = next.map(|next| Instant::now() + next);
        if !due.is_empty() {
            let fired = fire_all(StdArc::clone(&self.engine), StdArc::clone(&self.tally), due);
            self.firing = Some(InFlight::new(fired));
        }
    }

    /// Records that all schedules have been fired. The next turn finds out when others are due.
    pub(super) fn fired(&mut self) {
        self.firing = None;
        self.next_tick = Some(Instant::now());
    }
}

/// Fires schedules concurrently, since a store may write several changes together.
async fn fire_all(
    engine: StdArc<Engine>,
    tally: StdArc<Tally>,
    due: Vec<DueSchedule>,
) -> Result<(), Failure> {
    let mut fires = JoinSet::new();
    for due in due {
        let (engine, tally) = (StdArc::clone(&engine), StdArc::clone(&tally));
        fires.spawn(async move { fire(&engine, &tally, &due).await });
    }
    // A panic while the ticks of a schedule are computed must not affect the others, so it is ignored.
    while fires.join_next().await.is_some() {}
    Ok(())
}

async fn fire(engine: &Engine, tally: &Tally, due: &DueSchedule) {
    let (store_name, name) = (&engine.store_name, due.schedule.name.as_str());
    let can_have = |id, queue: &_, key| engine.store.can_have(id, queue, key);
    let change = match step::fire(due, &can_have) {
        Ok(change) => change,
        Err(reason) => return report::schedule_failed(store_name, name, &reason),
    };
    let tasks = change.tasks.len();
    match engine.store.change_schedule(StdArc::new(change)).await {
        Ok(Some(enqueued)) => {
            let skipped = enqueued.conflicts.len();
            tally.fired.add(tasks - skipped);
            report::schedule_fired(store_name, name, tasks - skipped, skipped);
        }
        // The schedule was changed after it was handed out: another worker has fired it, or a client has changed it.
        Ok(None) => {}
        Err(failure) => report::schedule_failed(store_name, name, &failure.to_string()),
    }
}
