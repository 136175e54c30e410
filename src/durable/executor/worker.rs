//! [`Worker`]: claims tasks, has them run, and tells the store how they ended.
//!
//! It is one loop on the engine's thread; the tasks run on the user's runtime. One turn is in flight
//! at a time, and what ends meanwhile goes with the next: so batches grow with the load. A turn whose
//! answer is lost is sent again until it is answered. Leases are renewed beside it.

use std::collections::HashSet;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::runs::Confirmed;
use super::app_guard::AppGuard;
use super::claims::Claims;
use super::metrics::Tally;
use super::pending_verdicts::PendingVerdicts;
use crate::durable::clock::since_boot;
use crate::durable::engine::Engine;
use crate::durable::failure::Failure;
use crate::durable::store::{Epoch, RenewAnswer, SessionId, Turn, TurnAnswer, Verdict};
use crate::durable::{StopReason, TaskId, report};
use crate::sync::Number;

mod leases;
mod permit;
mod runs;
mod turns;

/// Claims tasks, has them run, and tells the store how they ended.
pub(crate) struct Worker {
    engine: StdArc<Engine>,
    app: AppGuard,
    settings: Settings,
    runtime: Handle,
    tally: StdArc<Tally>,
    session: Option<SessionId>,
    /// The number of the last turn.
    number: u64,
    sender: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
    claims: Claims,
    pending_verdicts: PendingVerdicts,
    /// There may be something to claim.
    look: bool,
    /// When to look at the latest.
    next_look: Option<Instant>,
    turn: Option<InFlight<TurnAnswer>>,
    /// The claim with which the last turn was answered. The next turn names it.
    received: Option<Epoch>,
    opening: Option<InFlight<SessionId>>,
    /// A claim that has tasks which were lost, until it is confirmed.
    confirming: Option<InFlight<Confirmed>>,
    /// A turn that the store has not answered, to be sent again.
    unanswered: Option<StdArc<Turn>>,
    /// Whether it was sent more than once: the answer then does not tell what was refused.
    resent: bool,
    failures: u32,
    /// Not before then is a turn sent again.
    pause: Option<Instant>,
    beat: Option<InFlight<RenewAnswer>>,
    next_beat: Option<Instant>,
    /// When the runtime was asked for a sign of life that it has not given yet.
    asked: Option<Duration>,
    /// Tasks that are to be cancelled, and may be among those that the turn in flight claims.
    early_cancels: HashSet<TaskId>,
    /// The runs that await durable handles.
    waiting: StdArc<Number>,
    /// The time since which all permits are taken and none was given back.
    full: Option<Instant>,
    /// The end of the grace, once the worker is shut down.
    stopping: Option<Instant>,
}

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) lease: Duration,
    pub(crate) stall_limit: Duration,
}

/// What a worker is told.
pub(crate) enum Message {
    /// There may be something to claim.
    Wake,
    /// Tasks are to be cancelled, if this worker runs them.
    Cancel(Vec<TaskId>),
    /// A run has ended; without a verdict, its runtime has dropped it.
    Ended {
        epoch: Epoch,
        id: TaskId,
        verdict: Option<Verdict>,
    },
    /// A run awaits durable handles, and gives its permit back.
    Suspended { epoch: Epoch, id: TaskId },
    /// A run that was suspended asks for a permit.
    Resume {
        epoch: Epoch,
        id: TaskId,
        grant: oneshot::Sender<()>,
    },
    /// The runtime takes up what it is given.
    Pulse,
    /// Take no more tasks, and end, after some grace.
    Shutdown(Duration),
}

/// How long a worker rests at most, and no longer than a lease. Nothing else should need that: but a
/// wake-up may be lost with the process that owed it, and a timer stands still while the machine sleeps.
const REST: Duration = Duration::from_secs(60);

/// Effectively forever, yet small enough to add to any instant (30 years).
pub(crate) const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The maximum time after the grace period in which a worker stores the outcomes of its runs and closes its
/// session.
const CLOSING: Duration = Duration::from_secs(2);

/// The time without a free permit after which a worker [warns](Worker::watch_waits).
pub(crate) const STALL_WARNING: Duration = Duration::from_secs(30);

/// A request, and its answer, some time.
struct InFlight<T> {
    /// When it was sent, since the machine was started.
    sent: Duration,
    answer: Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>,
}

impl<T> InFlight<T> {
    fn new(answer: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self {
        Self {
            sent: since_boot(),
            answer: Box::pin(answer),
        }
    }
}

impl Worker {
    pub(crate) fn new(
        engine: StdArc<Engine>,
        app: AppGuard,
        settings: Settings,
        runtime: Handle,
        session: SessionId,
        (sender, messages): (
            mpsc::UnboundedSender<Message>,
            mpsc::UnboundedReceiver<Message>,
        ),
        tally: StdArc<Tally>,
    ) -> Self {
        Self {
            engine,
            app,
            settings,
            runtime,
            tally,
            session: Some(session),
            number: 0,
            sender,
            messages,
            claims: Claims::default(),
            pending_verdicts: PendingVerdicts::default(),
            look: true,
            next_look: None,
            turn: None,
            received: None,
            opening: None,
            confirming: None,
            unanswered: None,
            resent: false,
            failures: 0,
            pause: None,
            beat: None,
            next_beat: None,
            asked: None,
            early_cancels: HashSet::new(),
            waiting: StdArc::default(),
            full: None,
            stopping: None,
        }
    }

    /// Works until it is shut down.
    pub(crate) async fn run(mut self) {
        let sentinel = self.runtime.spawn(Sentinel(self.sender.clone()).stand());
        while !self.is_over() {
            self.claims.grant(self.settings.concurrency);
            self.tally_runs();
            self.send_turn();
            self.send_beat();
            let timer = self.timer();
            tokio::select! {
                answer = answer(&mut self.turn) => self.turned(answer),
                answer = answer(&mut self.opening) => self.opened(answer),
                answer = answer(&mut self.confirming) => self.confirmed(answer),
                answer = answer(&mut self.beat) => self.beaten(answer),
                Some(message) = self.messages.recv() => self.on_all(message),
                () = sleep_until_some(timer) => {}
            }
            self.keep_time();
        }
        sentinel.abort();
        self.end().await;
    }

    // ===== Time =====

    /// When there is something to do, if nothing happens before.
    fn timer(&self) -> Option<Instant> {
        let can_look = self.turn.is_none() && self.free() > 0;
        let must_send = self.turn.is_none() && (self.look || self.unanswered.is_some());
        let times = [
            // A pause that is over was forgotten.
            self.next_look
                .max(self.pause)
                .filter(|_| can_look && self.next_look.is_some()),
            self.pause
                .filter(|_| must_send || !self.pending_verdicts.is_empty()),
            self.next_beat.filter(|_| self.beat.is_none()),
            self.end_of_lease(),
            self.full.map(|since| since + STALL_WARNING),
            self.stopping.filter(|_| self.claims.held() > 0),
            self.deadline().filter(|_| self.claims.held() == 0),
        ];
        times.into_iter().flatten().min()
    }

    /// When the first lease is over, unless it is renewed.
    fn end_of_lease(&self) -> Option<Instant> {
        let over = self.claims.next_late()? + self.settings.lease;
        Some(Instant::now() + over.saturating_sub(since_boot()))
    }

    /// Does what it is time for.
    fn keep_time(&mut self) {
        self.pause = self.pause.filter(|&pause| Instant::now() < pause);
        let over = since_boot().saturating_sub(self.settings.lease);
        for epoch in self.claims.older_than(over) {
            self.late(epoch);
        }
        self.next_beat = match (self.next_beat, self.claims.oldest_renewal()) {
            (_, None) => None,
            (None, Some(_)) => Some(Instant::now() + self.settings.lease / 3),
            (next, Some(_)) => next,
        };
        self.watch_waits();
        if self.stopping.is_some_and(|end| end <= Instant::now()) {
            self.release_all();
        }
    }

    /// Warns if no permit becomes free while this process awaits tasks that need one. In that case, runs may
    /// wait for tasks that cannot run before those runs end.
    fn watch_waits(&mut self) {
        if self.claims.running() < self.settings.concurrency {
            self.full = None;
            return;
        }
        let now = Instant::now();
        let since = *self.full.get_or_insert(now);
        if now - since >= STALL_WARNING {
            self.full = Some(now);
            if self.engine.waiters.is_any_queued() {
                self.tally.stalled_waits.add(1);
                report::waits_stalled(&self.engine.queue, self.settings.concurrency);
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
        let end = Instant::now() + grace.min(FOR_EVER);
        self.stopping = Some(self.stopping.map_or(end, |earlier| earlier.min(end)));
        self.claims.stop_all(StopReason::Shutdown);
    }

    /// Gives up all runs, and gives their tasks back.
    fn release_all(&mut self) {
        for (epoch, id) in self.claims.give_up_all() {
            self.pending_verdicts.push(epoch, id, Verdict::Release);
        }
    }

    /// When to end even if the store does not answer.
    fn deadline(&self) -> Option<Instant> {
        self.stopping.map(|end| end + CLOSING)
    }

    fn is_over(&self) -> bool {
        let told = self.pending_verdicts.is_empty()
            && self.unanswered.is_none()
            && self.confirming.is_none();
        let is_late = self.deadline().is_some_and(|end| end <= Instant::now());
        self.stopping.is_some() && self.claims.held() == 0 && (told || is_late)
    }

    async fn end(mut self) {
        let deadline = self.deadline().unwrap_or_else(Instant::now);
        if let Some(session) = self.session.take() {
            let closed = self.engine.store.close_session(session);
            timeout_at(deadline, closed).await.ok();
        }
        // After a shutdown, the `App` is gone, unless its drop takes long.
        timeout_at(deadline, self.app.release()).await.ok();
    }
}

/// On a runtime, until that drops it: then the worker ends.
struct Sentinel(mpsc::UnboundedSender<Message>);

impl Sentinel {
    async fn stand(self) {
        pending().await
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.0.send(Message::Shutdown(Duration::ZERO)).ok();
    }
}

/// The answer to a request in flight; none, if there is none.
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
