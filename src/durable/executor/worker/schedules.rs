//! A worker fires schedules.
//!
//! The store's answers to turns and to requests for due schedules say when the next schedule is due. The worker asks for due
//! schedules at that time. The store may hand a schedule to any worker whose build computes its ticks, even if the worker does not
//! run the tasks. The worker computes what the schedule does, and requests that change. If the worker dies, or if the request is
//! lost, the store hands the schedule out again after [`HAND_OUT_INTERVAL`].
//!
//! If a change makes a schedule due earlier than all others, the store wakes an idle worker. While all workers are busy, none is
//! woken, so each worker also asks at [regular intervals](Worker::look_interval). An idle worker need not do so while the answers to its
//! turns [say when the next schedule is due](Worker::note_schedules).

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::state::{Fired, InFlight, Worker};
use crate::durable::engine::Engine;
use crate::durable::executor::metrics::Tally;
use crate::durable::failure::Failure;
use crate::durable::report;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::schedule::step;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::{DueSchedule, HAND_OUT_INTERVAL, Turn, TurnAnswer};

/// The maximum time between two requests for due schedules. A tick counts as missed after a minute, so this interval is shorter.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(30);

impl Worker {
    /// Returns the time at which the worker asks for due schedules, or `None` while it fires some, stops, or leaves that to other
    /// workers.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let next = self
            .next_tick
            .map_or(self.next_look, |next| next.min(self.next_look));
        let next = next.max(self.tick_pause);
        let asks = self.firing.is_none() && self.stopping.is_none() && self.checks();
        Some(next).filter(|_| asks)
    }

    /// Asks for due schedules if it is time, and fires them.
    pub(super) fn fire_due(&mut self) {
        let now = Instant::now();
        if self.next_tick().is_some_and(|next| next <= now) {
            // A turn may set these while the request is in flight.
            (self.next_tick, self.next_look) = (None, now + self.look_interval());
            let (engine, tally) = (StdArc::clone(&self.engine), StdArc::clone(&self.tally));
            self.firing = Some(InFlight::new(fire_all(engine, tally)));
        }
    }

    /// Records the time until the next schedule is due, as the store has answered. A time of [`MAX_LOOK_INTERVAL`] or more is ignored,
    /// because the worker asks again before then.
    fn note_tick(&mut self, next: Option<Duration>) {
        if let Some(next) = next.filter(|&next| next < MAX_LOOK_INTERVAL) {
            let next = Instant::now() + next;
            self.next_tick = Some(self.next_tick.map_or(next, |it| it.min(next)));
        }
    }

    /// Records what the answer to a turn says about the schedules.
    ///
    /// A session that has looked for tasks and found none is idle. A message then tells its worker if a schedule becomes due earlier, so
    /// the worker need not ask.
    pub(super) fn note_schedules(&mut self, request: &Turn, answer: &TurnAnswer) {
        self.note_tick(answer.next_tick);
        let is_idle = request.want > 0 && answer.claim.is_none();
        if is_idle && self.engine.store.tells_all_ticks() {
            self.next_look = Instant::now() + self.look_interval();
        }
    }

    /// Makes the worker ask for due schedules soon, since a message may have been lost, or the store's clock may have been set.
    pub(super) fn recheck_schedules(&mut self) {
        self.note_tick(Some(Duration::ZERO));
    }

    /// Returns the maximum time between two requests for due schedules.
    fn look_interval(&self) -> Duration {
        MAX_LOOK_INTERVAL.min(3 * self.settings.lease)
    }

    /// Records which schedules were fired, and when the worker asks for others.
    pub(super) fn fired(&mut self, fired: Result<Fired, Failure>) {
        self.firing = None;
        let now = Instant::now();
        match fired {
            Ok(fired) => {
                let is_any = !fired.outcomes.is_empty();
                self.report_unfired(fired.outcomes);
                // Meanwhile, other schedules may have become due.
                self.note_tick(if is_any {
                    Some(Duration::ZERO)
                } else {
                    fired.next
                });
            }
            Err(failure) => {
                report::schedules_unread(&self.engine.store_name, &failure);
                self.tick_pause = now + HAND_OUT_INTERVAL;
                self.next_tick = Some(self.tick_pause);
            }
        }
    }

    /// Warns about each schedule that this worker cannot fire. A warning is repeated only after the worker has fired the schedule.
    fn report_unfired(&mut self, outcomes: Vec<(ScheduleName, Option<String>)>) {
        for (name, reason) in outcomes {
            match reason {
                None => drop(self.unfired.remove(&name)),
                Some(reason) => {
                    let store_name = &self.engine.store_name;
                    if self.unfired.insert(name.clone()) {
                        report::schedule_failed(store_name, name.as_str(), &reason);
                    }
                }
            }
        }
    }
}

/// Asks for due schedules, and fires them concurrently, since a store may write several changes together.
async fn fire_all(engine: StdArc<Engine>, tally: StdArc<Tally>) -> Result<Fired, Failure> {
    let handed_out = engine.store.hand_out(COMPUTES).await?;
    let mut fires = JoinSet::new();
    for due in handed_out.due {
        let (engine, tally) = (StdArc::clone(&engine), StdArc::clone(&tally));
        fires.spawn(async move {
            let reason = fire(&engine, &tally, &due).await.err();
            (due.schedule.name, reason)
        });
    }
    let mut outcomes = Vec::new();
    while let Some(fired) = fires.join_next().await {
        // A panic while the ticks of a schedule are computed must not affect the others, so it is ignored.
        outcomes.extend(fired);
    }
    let next = handed_out.next;
    Ok(Fired { outcomes, next })
}

/// Fires a schedule that was handed out.
///
/// # Errors
///
/// The change could not be computed or stored. Returns the reason.
async fn fire(engine: &Engine, tally: &Tally, due: &DueSchedule) -> Result<(), String> {
    let can_have = |id, queue: &_, key| engine.store.can_have(id, queue, key);
    let change = step::fire(due, &can_have)?;
    let (tasks, change) = (change.tasks.len(), StdArc::new(change));
    let changed = engine.store.change_schedule(change).await;
    // If it was changed after it was handed out, another worker has fired it, or a client has changed it.
    if let Some(enqueued) = changed.map_err(|failure| failure.to_string())? {
        let skipped = enqueued.conflicts.len();
        tally.fired.add(tasks - skipped);
        let (store_name, name) = (&engine.store_name, due.schedule.name.as_str());
        report::schedule_fired(store_name, name, tasks - skipped, skipped);
    }
    Ok(())
}
