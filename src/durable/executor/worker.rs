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
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::claims::Claims;
use super::metrics::Tally;
use super::outbox::Outbox;
use super::registry::Runs;
use crate::durable::clock::since_boot;
use crate::durable::engine::Engine;
use crate::durable::engine::patience::{BACKOFF, PATIENCE};
use crate::durable::error::{Cause, Failure};
use crate::durable::store::{
    Beaten, Epoch, MAX_BATCH, MAX_BATCH_BYTES, Seen, SessionId, Turn, Turned, Verdict,
};
use crate::durable::{StopReason, TaskId, report};

mod leases;
mod runs;

/// Claims tasks, has them run, and tells the store how they ended.
pub(crate) struct Worker {
    engine: StdArc<Engine>,
    runs: StdArc<dyn Runs>,
    settings: Settings,
    runtime: Handle,
    tally: StdArc<Tally>,
    session: Option<SessionId>,
    /// The number of the last turn.
    number: u64,
    sender: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
    claims: Claims,
    outbox: Outbox,
    /// There may be something to claim.
    look: bool,
    /// When to look at the latest.
    next_look: Option<Instant>,
    turn: Option<InFlight<Turned>>,
    /// A turn that the store has not answered, to be sent again.
    unanswered: Option<StdArc<Turn>>,
    /// Whether it was sent more than once: the answer then does not tell what was refused.
    resent: bool,
    failures: u32,
    /// Not before then is a turn sent again.
    pause: Option<Instant>,
    beat: Option<InFlight<Beaten>>,
    next_beat: Option<Instant>,
    /// When the runtime was asked for a sign of life that it has not given yet.
    asked: Option<Duration>,
    /// Tasks that are to be cancelled, and may be among those that the turn in flight claims.
    early_cancels: HashSet<TaskId>,
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
    /// The runtime takes up what it is given.
    Pulse,
    /// Take no more tasks, and end, after some grace.
    Shutdown(Duration),
}

/// How long a worker rests at most, and no longer than a lease. Nothing else should need that: but a
/// wake-up may be lost with the process that owed it, and a timer stands still while the machine sleeps.
const REST: Duration = Duration::from_secs(60);

/// A time that nobody waits for the end of, and that can be added to any other.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A request, and its answer, some time.
struct InFlight<T> {
    /// When it was sent, since the machine was started.
    sent: Duration,
    answer: Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>,
}

impl Worker {
    pub(crate) fn new(
        engine: StdArc<Engine>,
        runs: StdArc<dyn Runs>,
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
            runs,
            settings,
            runtime,
            tally,
            session: Some(session),
            number: 0,
            sender,
            messages,
            claims: Claims::default(),
            outbox: Outbox::default(),
            look: true,
            next_look: None,
            turn: None,
            unanswered: None,
            resent: false,
            failures: 0,
            pause: None,
            beat: None,
            next_beat: None,
            asked: None,
            early_cancels: HashSet::new(),
            stopping: None,
        }
    }

    /// Works until it is shut down.
    pub(crate) async fn run(mut self) {
        let sentinel = self.runtime.spawn(Sentinel(self.sender.clone()).stand());
        while !self.is_over() {
            self.send_turn().await;
            self.send_beat();
            let timer = self.timer();
            tokio::select! {
                answer = answer(&mut self.turn) => self.turned(answer).await,
                answer = answer(&mut self.beat) => self.beaten(answer),
                Some(message) = self.messages.recv() => self.on_all(message),
                () = sleep_until_some(timer) => {}
            }
            self.keep_time();
        }
        sentinel.abort();
        self.end().await;
    }

    // ===== Turns =====

    async fn send_turn(&mut self) {
        let now = Instant::now();
        if self.turn.is_some() || self.pause.is_some_and(|pause| now < pause) {
            return;
        }
        let Some(request) = self.next_request(now).await else {
            return;
        };
        self.pause = None;
        self.unanswered = Some(StdArc::clone(&request));
        let store = StdArc::clone(&self.engine.store);
        self.turn = Some(InFlight {
            sent: since_boot(),
            answer: Box::pin(async move { store.turn(request).await }),
        });
    }

    /// The turn to be sent, if there is a reason to send one.
    async fn next_request(&mut self, now: Instant) -> Option<StdArc<Turn>> {
        if self.unanswered.is_none() && self.outbox.is_empty() && !self.looks(now) {
            return None;
        }
        let session = self.session().await?;
        self.resent = self.unanswered.is_some();
        match self.unanswered.take() {
            Some(request) if request.session == session => Some(request),
            // The store has ended the session, and takes nothing of it any more. What it may have taken
            // before, it refuses now.
            Some(request) => {
                let request = StdArc::unwrap_or_clone(request);
                self.number += 1;
                Some(StdArc::new(Turn {
                    session,
                    number: self.number,
                    ..request
                }))
            }
            None => Some(StdArc::new(self.new_turn(session))),
        }
    }

    fn new_turn(&mut self, session: SessionId) -> Turn {
        let verdicts = self.outbox.take();
        let want = self.free().min(MAX_BATCH);
        if want > 0 {
            self.look = false;
            self.next_look = None;
        }
        self.number += 1;
        Turn {
            session,
            number: self.number,
            verdicts,
            want,
            want_bytes: MAX_BATCH_BYTES,
            risky: !self.claims.is_any_risky(),
            lease: self.store_lease(),
            park: want > 0,
        }
    }

    /// The lease that the store is asked for. The suspect gets another third of it: together, that is
    /// the lease.
    ///
    /// Whoever has nothing to do looks again within that time: nobody tells it what others claim
    /// meanwhile, but so it has seen their leases before those can be over.
    fn store_lease(&self) -> Duration {
        self.settings.lease * 3 / 4
    }

    /// The session; a new one if the store has ended the last. Nothing if it does not answer.
    async fn session(&mut self) -> Option<SessionId> {
        if self.session.is_none() {
            let set = self.runs.set().clone();
            match self.engine.store.open_session(Some(set)).await {
                Ok(session) => {
                    self.session = Some(session);
                    self.number = 0;
                }
                Err(failure) => self.failed(&failure),
            }
        }
        self.session
    }

    async fn turned(&mut self, answer: Result<Turned, Failure>) {
        let sent = self.turn.take().map_or_else(since_boot, |turn| turn.sent);
        match answer {
            Ok(turned) => {
                self.failures = 0;
                self.tally.turns.add(1);
                // Who has claimed something is not parked, as a rule, nor who had no room when it asked:
                // they look once more, when they have room.
                self.look |= turned.more || turned.claim.is_some() && !turned.parked;
                if let Some(request) = self.unanswered.take() {
                    self.look |= !request.park;
                    self.settle(&request, &turned.refused);
                }
                let next = turned.next.map_or(REST, |next| next.min(REST));
                self.next_look = Some(Instant::now() + next.min(self.store_lease()));
                if let Some(claim) = turned.claim {
                    self.begin(claim, sent).await;
                }
                self.early_cancels.clear();
            }
            Err(failure) => {
                if failure.cause == Cause::NoSession {
                    self.session = None;
                }
                self.failed(&failure);
            }
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.tally.failures.add(1);
        self.failures = self.failures.saturating_add(1);
        report::store_failed(&self.engine.queue, failure, self.failures);
        let pause = BACKOFF.delay(self.failures).unwrap_or_default();
        self.pause = Some(Instant::now() + pause);
    }

    /// The store has taken the verdicts of a turn, all but those that it has refused.
    fn settle(&mut self, request: &Turn, refused: &[TaskId]) {
        for verdicts in &request.verdicts {
            self.claims.told(verdicts.epoch, verdicts.tasks.len());
        }
        let refused: HashSet<_> = refused.iter().collect();
        for (id, verdict) in request.verdicts.iter().flat_map(|verdicts| &verdicts.tasks) {
            if refused.contains(id) {
                self.refused(*id);
                continue;
            }
            self.tally.count(verdict);
            match verdict {
                Verdict::Done(_) if self.resent => self.engine.waiters.look_at([*id]),
                // Those who wait in this process need not ask the store.
                Verdict::Done(output) => {
                    let end = || Ok(Seen::Done(output.clone()));
                    self.engine.waiters.resolve(*id, end);
                }
                Verdict::Dead { error, .. } => report::died(&self.engine.queue, *id, error),
                _ => {}
            }
        }
    }

    /// The store has not taken a verdict: others have the task; or, if the turn was sent more than once,
    /// it may have taken it the first time.
    fn refused(&self, id: TaskId) {
        if !self.resent {
            self.tally.refused.add(1);
            report::refused(&self.engine.queue, id);
        }
        self.engine.waiters.look_at([id]);
    }

    /// Whether to ask for tasks without having anything to tell.
    fn looks(&self, now: Instant) -> bool {
        let is_due = self.next_look.is_some_and(|next| next <= now);
        self.free() > 0 && (self.look || is_due)
    }

    /// How many tasks have ended without the store's knowing of it: they count as if they ran, or a
    /// worker with large outputs would pile them up.
    fn untold(&self) -> usize {
        let unanswered = self.unanswered.iter().flat_map(|turn| &turn.verdicts);
        let unanswered: usize = unanswered.map(|verdicts| verdicts.tasks.len()).sum();
        self.outbox.len() + unanswered
    }

    /// How many more tasks can run.
    fn free(&self) -> usize {
        match self.stopping.is_some() || self.is_stalled() {
            true => 0,
            false => self
                .settings
                .concurrency
                .saturating_sub(self.claims.running() + self.untold()),
        }
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
            self.pause.filter(|_| must_send || !self.outbox.is_empty()),
            self.next_beat.filter(|_| self.beat.is_none()),
            self.end_of_lease(),
            self.stopping.filter(|_| self.claims.running() > 0),
            self.give_up().filter(|_| self.claims.running() == 0),
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
        if self.stopping.is_some_and(|end| end <= Instant::now()) {
            self.release_all();
        }
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
            self.outbox.push(epoch, id, Verdict::Release);
        }
        self.tally.running.set(0);
    }

    /// When to end even if the store does not answer.
    fn give_up(&self) -> Option<Instant> {
        self.stopping.map(|end| end + PATIENCE)
    }

    fn is_over(&self) -> bool {
        let told = self.outbox.is_empty() && self.unanswered.is_none();
        let given_up = self.give_up().is_some_and(|end| end <= Instant::now());
        self.stopping.is_some() && self.claims.running() == 0 && (told || given_up)
    }

    async fn end(mut self) {
        if let Some(session) = self.session.take() {
            let closed = self.engine.store.close_session(session);
            timeout(PATIENCE, closed).await.ok();
        }
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
