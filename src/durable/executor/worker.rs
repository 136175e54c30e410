//! The loop of a [`Worker`]: it claims tasks, has them run, and reports to the store how they ended.
//!
//! The loop runs on the engine's thread; the tasks run on the user's runtime. One turn is in flight at a time, and the
//! verdicts that arrive meanwhile go with the next one, so batches grow with the load. A turn whose answer is lost is sent
//! again until it is answered. Leases are renewed by separate requests.
//!
//! A worker has a session for each queue that it serves, and a turn belongs to one of them. The next turn reports the
//! verdicts of all claims, whichever session it belongs to.

use std::future::pending;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::state::InFlight;
use super::message::Message;
use crate::durable::clock::since_boot;
use crate::durable::failure::Failure;
use crate::durable::store::Verdict;
use crate::durable::{StopReason, report};

pub(crate) use self::state::{Settings, Worker};

mod leases;
mod permit;
mod progress;
mod queue_session;
mod runs;
mod schedules;
mod shares;
mod state;
mod stats;
mod timeouts;
mod turns;

/// Effectively forever, yet small enough to add to any instant (30 years).
pub(crate) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The maximum time after the grace period, or after the last run, in which a worker stores the outcomes of its runs and closes its
/// sessions.
const MAX_CLOSING: Duration = Duration::from_secs(2);

/// The time without a free permit after which a worker [warns](Worker::watch_waits).
const STALL_WARNING: Duration = Duration::from_secs(30);

impl Worker {
    /// Works until the worker is shut down, or is closed and has no run.
    pub(crate) async fn run(mut self) {
        let guard = self.runtime.spawn(RuntimeGuard(self.sender.clone()).hold());
        while !self.is_over() {
            self.claims.grant();
            self.tally_runs();
            self.send_turn();
            self.send_renewal();
            self.fire_due();
            self.send_progress();
            let timer = self.timer();
            tokio::select! {
                answer = answer(&mut self.turn) => self.turned(answer),
                answer = answer(&mut self.opening) => self.opened(answer),
                answer = answer(&mut self.confirming) => self.arrival_confirmed(answer),
                answer = answer(&mut self.renewal) => self.renewed(answer),
                fired = answer(&mut self.firing) => self.fired(fired),
                answer = answer(&mut self.reporting) => self.reported(answer),
                () = self.progress.receive() => {}
                Some(message) = self.messages.recv() => self.on(message),
                () = sleep_until_some(timer) => {}
            }
            self.run_timers();
        }
        guard.abort();
        self.end().await;
    }

    // ===== Time =====

    /// Returns the time at which there is something to do if nothing happens before.
    fn timer(&self) -> Option<Instant> {
        let must_send = self.turn.is_none() && (self.may_claim() || self.unanswered.is_some());
        let next_poll = self.next_poll();
        let times = [
            // A pause that is over has been cleared.
            next_poll.max(self.pause).filter(|_| next_poll.is_some()),
            self.next_tick(),
            self.pending_verdicts.resume_at(),
            self.pause
                .filter(|_| must_send || !self.pending_verdicts.is_empty()),
            self.next_renewal.filter(|_| self.renewal.is_none()),
            self.end_of_lease(),
            self.timeouts.next(),
            self.progress
                .next_round()
                .filter(|_| self.reporting.is_none()),
            self.full_since.map(|since| since + STALL_WARNING),
            self.stopping.filter(|_| self.claims.held() > 0),
            self.deadline().filter(|_| self.claims.held() == 0),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns the time at which the first lease is over unless it is renewed.
    fn end_of_lease(&self) -> Option<Instant> {
        let over = self.claims.next_late()? + self.settings.lease;
        Some(Instant::now() + over.saturating_sub(since_boot()))
    }

    /// Performs the steps that are due.
    fn run_timers(&mut self) {
        // A run that has ended is neither late nor too slow.
        self.receive_all();
        self.pause = self.pause.filter(|&pause| Instant::now() < pause);
        self.pending_verdicts.resume(Instant::now());
        let over = since_boot().saturating_sub(self.settings.lease);
        for epoch in self.claims.older_than(over) {
            self.mark_late(epoch);
        }
        self.next_renewal = match (self.next_renewal, self.claims.oldest_renewal()) {
            (_, None) => None,
            (None, Some(_)) => Some(Instant::now() + self.settings.lease / 3),
            (next, Some(_)) => next,
        };
        self.watch_waits();
        self.enforce_timeouts();
        if self.stopping.is_some_and(|end| end <= Instant::now()) {
            self.abort_all();
        }
    }

    /// Warns if no permit becomes free while this process awaits tasks that need one. In that case, runs may
    /// wait for tasks that cannot run before those runs end.
    fn watch_waits(&mut self) {
        if self.claims.running() < self.settings.max_running {
            self.full_since = None;
            return;
        }
        let now = Instant::now();
        let since = *self.full_since.get_or_insert(now);
        if now - since >= STALL_WARNING {
            self.full_since = Some(now);
            if self.engine.waiters.is_any_queued() {
                self.tally.stalled_waits.add(1);
                report::waits_stalled(&self.engine.store_name, self.settings.max_running);
            }
        }
    }

    fn tally_runs(&self) {
        let (running, held) = (self.claims.running(), self.claims.held());
        self.tally.running.set(running);
        self.tally.suspended.set(held - running);
    }

    // ===== The end =====

    fn shut_down(&mut self, grace: Duration) {
        self.stop_within(grace);
        self.claims.stop_all(StopReason::Shutdown);
    }

    /// Stops claiming tasks, and aborts the runs that are still running after `grace`.
    fn stop_within(&mut self, grace: Duration) {
        let end = Instant::now() + grace.min(FOREVER);
        self.stopping = Some(self.stopping.map_or(end, |earlier| earlier.min(end)));
    }

    /// Aborts all runs, and gives their tasks back.
    fn abort_all(&mut self) {
        for (epoch, id) in self.claims.abort_all() {
            let last = self.progress.end(epoch, id);
            self.progress.add_last(last, &Verdict::Release);
            self.pending_verdicts.push(epoch, id, Verdict::Release);
        }
    }

    /// Returns the time at which the worker ends even if the store does not answer.
    fn deadline(&self) -> Option<Instant> {
        self.stopping.map(|end| end + MAX_CLOSING)
    }

    fn is_over(&self) -> bool {
        let is_stored = self.pending_verdicts.is_empty()
            && self.unanswered.is_none()
            && self.confirming.is_none()
            && self.firing.is_none();
        let is_late = self.deadline().is_some_and(|end| end <= Instant::now());
        self.stopping.is_some() && self.claims.held() == 0 && (is_stored || is_late)
    }

    async fn end(mut self) {
        let now = Instant::now();
        let deadline = self
            .deadline()
            .map_or(now, |end| end.min(now + MAX_CLOSING));
        for session in self.sessions.iter_mut().filter_map(|it| it.id.take()) {
            let closed = self.engine.store.close_session(session);
            timeout_at(deadline, closed).await.ok();
        }
        // After a shutdown, the `App` has been dropped, unless its drop takes too long.
        timeout_at(deadline, self.app.release()).await.ok();
    }
}

/// A task on the user's runtime. When the runtime is shut down, it drops this, and the worker ends.
struct RuntimeGuard(mpsc::UnboundedSender<Message>);

impl RuntimeGuard {
    async fn hold(self) {
        pending().await
    }
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        self.0.send(Message::Shutdown(Duration::ZERO)).ok();
    }
}

/// Waits for the answer to a request in flight. Without a request, it waits forever.
async fn answer<T>(in_flight: &mut Option<InFlight<T>>) -> Result<T, Failure> {
    match in_flight {
        Some(in_flight) => (&mut in_flight.answer).await,
        None => pending().await,
    }
}

async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
