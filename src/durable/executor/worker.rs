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

use super::claims::{Claims, Run};
use super::metrics::Tally;
use super::outbox::Outbox;
use super::registry::Runs;
use crate::durable::clock::{millis, since_boot};
use crate::durable::engine::Engine;
use crate::durable::engine::patience::{BACKOFF, PATIENCE};
use crate::durable::error::{Cause, Failure};
use crate::durable::store::{
    Beaten, Claim, Claimed, Epoch, MAX_BATCH, MAX_BATCH_BYTES, Seen, SessionId, Turn, Turned,
    Verdict,
};
use crate::durable::{StopReason, TaskId};
use crate::sync::Number;

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
    failures: u32,
    /// Not before then is a turn sent again.
    pause: Option<Instant>,
    beat: Option<InFlight<Beaten>>,
    next_beat: Option<Instant>,
    /// When the runtime was last seen to work, in milliseconds since the machine was started.
    alive: StdArc<Number>,
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
    /// Take no more tasks, and end, after some grace.
    Shutdown(Duration),
}

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
            failures: 0,
            pause: None,
            beat: None,
            next_beat: None,
            alive: StdArc::default(),
            stopping: None,
        }
    }

    /// Works until it is shut down.
    pub(crate) async fn run(mut self) {
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
        match self.unanswered.take() {
            Some(request) if request.session == session => Some(request),
            // The store has ended the session, and did not take the turn.
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
        let want = self.free().min(MAX_BATCH);
        if want > 0 {
            self.look = false;
            self.next_look = None;
        }
        self.number += 1;
        Turn {
            session,
            number: self.number,
            verdicts: self.outbox.take(),
            want,
            want_bytes: MAX_BATCH_BYTES,
            // The suspect gets another third of it: together, the lease.
            lease: self.settings.lease * 3 / 4,
            park: want > 0,
        }
    }

    /// The session; a new one if the store has ended the last. Nothing if it does not answer.
    async fn session(&mut self) -> Option<SessionId> {
        if self.session.is_none() {
            match self.engine.store.open_session().await {
                Ok(session) => {
                    self.session = Some(session);
                    self.number = 0;
                }
                Err(_) => self.failed(),
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
                if let Some(request) = self.unanswered.take() {
                    self.settle(&request, &turned.refused);
                }
                self.look |= turned.more;
                self.next_look = turned.next.map(|next| Instant::now() + next);
                if let Some(claim) = turned.claim {
                    self.begin(claim, sent).await;
                }
            }
            Err(failure) => {
                if failure.cause == Cause::NoSession {
                    self.session = None;
                }
                self.failed();
            }
        }
    }

    fn failed(&mut self) {
        self.tally.failures.add(1);
        self.failures += 1;
        let pause = BACKOFF.delay(self.failures).unwrap_or_default();
        self.pause = Some(Instant::now() + pause);
    }

    /// The store has taken the verdicts of a turn, all but those that it has refused.
    fn settle(&self, request: &Turn, refused: &[TaskId]) {
        let refused: HashSet<_> = refused.iter().collect();
        for (id, verdict) in request.verdicts.iter().flat_map(|verdicts| &verdicts.tasks) {
            if refused.contains(id) {
                self.tally.refused.add(1);
                continue;
            }
            self.tally.count(verdict);
            // Those who wait in this process need not ask the store.
            if let Verdict::Done(output) = verdict {
                let end = || Ok(Seen::Done(output.clone()));
                self.engine.waiters.resolve(*id, end);
            }
        }
    }

    /// Whether to ask for tasks without having anything to tell.
    fn looks(&self, now: Instant) -> bool {
        let is_due = self.next_look.is_some_and(|next| next <= now);
        self.free() > 0 && (self.look || is_due)
    }

    /// How many more tasks can run.
    fn free(&self) -> usize {
        match self.stopping {
            Some(_) => 0,
            None => self.settings.concurrency - self.claims.running(),
        }
    }

    // ===== Runs =====

    async fn begin(&mut self, claim: Claim, sent: Duration) {
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
        let (id, stop) = (task.id, crate::durable::context::Stop::default());
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

    fn on_all(&mut self, first: Message) {
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

    fn ended(&mut self, epoch: Epoch, id: TaskId, verdict: Option<Verdict>) {
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

    // ===== Leases =====

    fn send_beat(&mut self) {
        let now = Instant::now();
        if self.beat.is_some() || self.next_beat.is_none_or(|next| now < next) {
            return;
        }
        let sent = since_boot();
        let claims = self
            .claims
            .older_than(sent.saturating_sub(self.settings.lease / 3));
        self.next_beat = Some(now + self.settings.lease / 6);
        if claims.is_empty() || !self.runtime_works(sent) {
            return;
        }
        let store = StdArc::clone(&self.engine.store);
        self.beat = Some(InFlight {
            sent,
            answer: Box::pin(async move { store.beat(claims).await }),
        });
    }

    /// Whether the runtime takes up what it is given. One that does not is asked again, and again.
    fn runtime_works(&self, now: Duration) -> bool {
        let alive = StdArc::clone(&self.alive);
        drop(
            self.runtime
                .spawn(async move { alive.set(millis(since_boot()) as usize) }),
        );
        let silence = millis(now).saturating_sub(self.alive.get() as u64);
        silence <= millis(self.settings.stall_limit)
    }

    fn beaten(&mut self, answer: Result<Beaten, Failure>) {
        let sent = self.beat.take().map_or(Duration::ZERO, |beat| beat.sent);
        let Ok(beaten) = answer else {
            self.tally.failures.add(1);
            return;
        };
        let renewed = self
            .claims
            .older_than(sent.saturating_sub(self.settings.lease / 3));
        for epoch in renewed {
            self.claims.renew(epoch, sent);
        }
        beaten.lost.into_iter().for_each(|epoch| self.lose(epoch));
        self.claims.stop(&beaten.cancelled, StopReason::Cancelled);
    }

    fn lose(&mut self, epoch: Epoch) {
        if self.claims.lose(epoch) {
            self.tally.leases_lost.add(1);
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
            self.stopping.filter(|_| self.claims.running() > 0),
            self.give_up().filter(|_| self.claims.running() == 0),
        ];
        times.into_iter().flatten().min()
    }

    /// Does what it is time for.
    fn keep_time(&mut self) {
        self.pause = self.pause.filter(|&pause| Instant::now() < pause);
        let over = since_boot().saturating_sub(self.settings.lease);
        for epoch in self.claims.older_than(over) {
            self.lose(epoch);
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
        let end = Instant::now() + grace;
        self.stopping = Some(self.stopping.map_or(end, |earlier| earlier.min(end)));
        self.claims.stop_all(StopReason::Shutdown);
    }

    /// Gives up all runs, and gives their tasks back.
    fn release_all(&mut self) {
        for (epoch, id, removed) in self.claims.take_all() {
            removed.run.abort.abort();
            if !removed.lost {
                self.outbox.push(epoch, id, Verdict::Release);
            }
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
