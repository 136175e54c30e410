//! The vocabulary of the cases: processes, sessions, tasks, and the expected answers.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Harness;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::{QueueInfo, QueueSettings};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{
    Change, ChangeAnswer, Claim, ClaimPushes, DeadPayload, Enqueue, Enqueued, Epoch, Event,
    NewSession, NewTask, QueueChange, RenewAnswer, SessionId, Store, TaskState, Turn, TurnAnswer,
    Verdict, Verdicts,
};
use crate::durable::{Counts, DeadFilter, DeadLetter, TaskId};

#[cfg(all(test, feature = "redis"))]
pub(in crate::durable::store) use self::tasks::with_key;
pub(super) use self::tasks::*;
#[cfg(all(test, any(feature = "redis", feature = "postgres")))]
pub(in crate::durable::store) use self::tasks::{id, task};

mod tasks;

/// The time for which a test waits for an event, in real time. Only a failure takes this long.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the ids of claimed tasks, in their order.
pub(super) fn ids(claim: &Claim) -> Vec<TaskId> {
    claim.tasks.iter().map(|task| task.id).collect()
}

#[track_caller]
pub(super) fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Failure>) {
    let failure = answer.expect_err("the request should have been refused");
    assert_eq!(failure.cause, Cause::NoSession);
    assert_eq!(failure.effect, Effect::None);
}

/// Waits for a future that must complete.
pub(super) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(EVENT_TIMEOUT, future).await;
    waited.unwrap_or_else(|_| panic!("{what} has not arrived"))
}

/// A process that uses a store. Its requests must succeed.
pub(super) struct Process(pub(super) Store);

impl Process {
    pub(super) fn of(harness: &dyn Harness) -> Self {
        Self(harness.connect())
    }

    pub(super) fn kill(self, harness: &dyn Harness) {
        harness.kill(self.0);
    }

    /// Opens a session that knows all types of this suite.
    pub(super) async fn session(&self) -> Session<'_> {
        self.session_of(&NAMES).await
    }

    /// Opens a session that knows the types with these names.
    pub(super) async fn session_of(&self, names: &[&'static str]) -> Session<'_> {
        self.session_with(set(names)).await
    }

    /// Opens a session of a queue that knows all types of this suite.
    pub(super) async fn session_in(&self, queue: &str) -> Session<'_> {
        self.session_of_in(&NAMES, queue).await
    }

    /// Opens a session of a queue that knows the types with these names.
    pub(super) async fn session_of_in(&self, names: &[&'static str], queue: &str) -> Session<'_> {
        let set = set(names).in_queue(queue_name(queue));
        self.session_with(set).await
    }

    pub(super) async fn session_with(&self, set: TypeSet) -> Session<'_> {
        let (set, card) = (Some(set), None);
        self.session_with_card(NewSession { set, card }).await
    }

    pub(super) async fn session_with_card(&self, session: NewSession) -> Session<'_> {
        let id = self.0.0.open_session_with(session).await.unwrap();
        Session {
            store: &self.0,
            id,
            number: 0,
            received: None,
            answered: Cell::new(None),
        }
    }

    pub(super) fn damage(&self) -> Option<(u64, String)> {
        self.0.0.damage()
    }

    pub(super) fn events(&self) -> Events {
        Events(self.0.0.events())
    }

    pub(super) async fn status(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<TaskState> {
        let ids: Vec<_> = numbers.into_iter().map(id).collect();
        let len = ids.len();
        let seen = self.0.0.status(ids).await.unwrap();
        assert_eq!(seen.len(), len);
        seen
    }

    pub(super) async fn status_of(&self, number: u64) -> TaskState {
        self.status([number]).await.remove(0)
    }

    pub(super) async fn cancel(&self, numbers: impl IntoIterator<Item = u64>) -> u64 {
        let ids = numbers.into_iter().map(id).collect();
        self.0.0.cancel(ids).await.unwrap()
    }

    /// Changes a task. Returns the answer for it.
    pub(super) async fn change_task(&self, number: u64, change: Change) -> ChangeAnswer {
        let answers = self.0.0.change(vec![id(number)], change).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    pub(super) async fn run_now(&self, number: u64) -> ChangeAnswer {
        self.change_task(number, Change::RunNow).await
    }

    /// Moves a task to a queue. An empty name is that of the default queue.
    pub(super) async fn move_to(&self, queue: &str, number: u64) -> ChangeAnswer {
        self.change_task(number, Change::MoveTo(queue_name(queue)))
            .await
    }

    pub(super) async fn renew(&self, claims: impl IntoIterator<Item = Epoch>) -> RenewAnswer {
        let claims = claims.into_iter().collect();
        self.0.0.renew(claims).await.unwrap()
    }

    pub(super) async fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Vec<DeadLetter> {
        self.0.0.dead_letters(filter, limit).await.unwrap()
    }

    /// Returns the ids of the dead letters.
    pub(super) async fn dead_ids(&self, filter: DeadFilter, limit: usize) -> Vec<TaskId> {
        let dead_letters = self.dead_letters(filter, limit).await;
        dead_letters
            .iter()
            .map(|dead_letter| dead_letter.id)
            .collect()
    }

    pub(super) async fn dead_letter_payload(&self, number: u64) -> Option<DeadPayload> {
        self.0.0.dead_letter_payload(id(number)).await.unwrap()
    }

    pub(super) async fn replay_dead_letters(&self, filter: DeadFilter) -> u64 {
        self.0.0.replay_dead_letters(filter).await.unwrap()
    }

    pub(super) async fn delete_dead_letters(&self, filter: DeadFilter) -> u64 {
        self.0.0.delete_dead_letters(filter).await.unwrap()
    }

    pub(super) async fn pause(&self, name: &str) {
        self.0.0.set_paused(name.to_owned(), true).await.unwrap();
    }

    pub(super) async fn resume(&self, name: &str) {
        self.0.0.set_paused(name.to_owned(), false).await.unwrap();
    }

    pub(super) async fn paused_types(&self) -> Vec<String> {
        self.0.0.paused_types().await.unwrap()
    }

    /// Sets the limits of a queue. Returns `false` if that has no effect.
    pub(super) async fn set_queue(&self, queue: &str, settings: QueueSettings) -> bool {
        let change = QueueChange::Settings(settings);
        let changed = self.0.0.change_queue(queue_name(queue), change).await;
        changed.unwrap()
    }

    pub(super) async fn pause_queue(&self, queue: &str) {
        let change = QueueChange::Paused(true);
        let changed = self.0.0.change_queue(queue_name(queue), change).await;
        assert!(changed.unwrap());
    }

    pub(super) async fn resume_queue(&self, queue: &str) {
        let change = QueueChange::Paused(false);
        let changed = self.0.0.change_queue(queue_name(queue), change).await;
        assert!(changed.unwrap());
    }

    pub(super) async fn queue(&self, queue: &str) -> QueueInfo {
        self.0.0.queue(queue_name(queue)).await.unwrap()
    }

    pub(super) async fn maintain(&self, budget: usize) -> bool {
        self.0.0.maintain(budget).await.unwrap()
    }

    pub(super) async fn counts(&self) -> Counts {
        self.0.0.counts().await.unwrap()
    }
}

/// A session, which numbers its requests.
pub(super) struct Session<'a> {
    store: &'a Store,
    pub(super) id: SessionId,
    pub(super) number: u64,
    /// The claim that the last turn has confirmed, and the one in its answer.
    received: Option<Epoch>,
    answered: Cell<Option<Epoch>>,
}

impl Session<'_> {
    /// Stores tasks under the next number.
    pub(super) async fn enqueue(&mut self, tasks: impl IntoIterator<Item = NewTask>) {
        self.number += 1;
        self.enqueue_again(tasks).await.unwrap();
    }

    /// Stores tasks under the number of the last request.
    pub(super) async fn enqueue_again(
        &self,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Enqueued, Failure> {
        let request = Enqueue {
            session: self.id,
            number: self.number,
            batch: Arc::new(tasks.into_iter().collect::<Vec<_>>().into()),
        };
        self.store.0.enqueue(Arc::new(request)).await
    }

    /// Makes a turn under the next number.
    pub(super) async fn turn(&mut self, options: TurnOptions) -> TurnAnswer {
        self.number += 1;
        self.received = self.answered.take();
        self.turn_again(options).await.unwrap()
    }

    /// Makes a turn under the number of the last request. The answer does not say how long tasks have waited, so that tests can compare
    /// tasks that were claimed at other times: see [`waits`](Self::waits).
    pub(super) async fn turn_again(&self, options: TurnOptions) -> Result<TurnAnswer, Failure> {
        let mut turned = self.timed_turn(options).await?;
        let claimed = turned.claim.iter_mut().flat_map(|claim| &mut claim.tasks);
        claimed.for_each(|task| task.waited = None);
        Ok(turned)
    }

    async fn timed_turn(&self, options: TurnOptions) -> Result<TurnAnswer, Failure> {
        let request = Turn {
            session: self.id,
            number: self.number,
            verdicts: options.verdicts,
            received: self.received,
            floor: options.floor,
            want: options.want,
            want_bytes: options.want_bytes,
            lease: options.lease,
            quarantined: options.quarantined,
            go_idle: options.go_idle,
            pushes: ClaimPushes::default(),
        };
        let turned = self.store.0.turn(Arc::new(request)).await?;
        let answered = turned.claim.as_ref().map(|claim| claim.epoch);
        self.answered.set(answered);
        Ok(turned)
    }

    /// Sends the last request again, and loses the answer.
    pub(super) async fn turn_again_without_answer(&self, options: TurnOptions) -> TurnAnswer {
        let turned = self.turn_again(options).await.unwrap();
        self.answered.set(None);
        turned
    }

    /// Claims at most `want` tasks, and at least one.
    pub(super) async fn claim(&mut self, want: usize) -> Claim {
        let turned = self.turn(wanting(want)).await;
        turned.claim.expect("a task should be claimed")
    }

    /// Claims at most `want` tasks. Returns how long they have waited, in the order of their ids.
    pub(super) async fn waits(&mut self, want: usize) -> Vec<(TaskId, Option<Duration>)> {
        self.number += 1;
        self.received = self.answered.take();
        let turned = self.timed_turn(wanting(want)).await.unwrap();
        let claimed = turned.claim.into_iter().flat_map(|claim| claim.tasks);
        let mut waits: Vec<_> = claimed.map(|task| (task.id, task.waited)).collect();
        waits.sort_unstable();
        waits
    }

    /// Reports one verdict, which must be accepted.
    pub(super) async fn report(&mut self, epoch: Epoch, number: u64, verdict: Verdict) {
        let turned = self.turn(wanting(0).verdict(epoch, number, verdict)).await;
        assert_eq!(turned.refused, []);
    }

    /// Stores a task, claims it, and reports a verdict.
    pub(super) async fn run(&mut self, new: NewTask, verdict: Verdict) {
        let id = new.id;
        self.enqueue([new]).await;
        self.run_first(id, verdict).await;
    }

    /// Claims a task, which is the first one that waits, and reports a verdict.
    pub(super) async fn run_first(&mut self, id: TaskId, verdict: Verdict) {
        let claim = self.claim(1).await;
        assert_eq!(ids(&claim), [id]);
        let verdicts = vec![(id, verdict)];
        let epoch = claim.epoch;
        let turned = self.turn(wanting(0).verdicts(epoch, verdicts)).await;
        assert_eq!(turned.refused, []);
    }

    /// Makes turns until there is nothing to do, and is idle. Nothing must be claimed.
    pub(super) async fn rest(&mut self) {
        for _ in 0..100 {
            let turned = self.turn(wanting(9).go_idle()).await;
            assert_eq!(turned.claim, None);
            if !turned.more {
                return;
            }
        }
        panic!("the session comes to no rest");
    }

    pub(super) async fn close(self) {
        self.store.0.close_session(self.id).await.unwrap();
    }
}

/// The options of a turn.
#[derive(Clone)]
pub(super) struct TurnOptions {
    verdicts: Vec<Verdicts>,
    floor: Epoch,
    want: usize,
    want_bytes: usize,
    lease: Duration,
    quarantined: bool,
    go_idle: bool,
}

/// The options of a turn that claims up to `want` tasks of any size.
pub(super) fn wanting(want: usize) -> TurnOptions {
    TurnOptions {
        verdicts: Vec::new(),
        floor: 0,
        want,
        want_bytes: usize::MAX >> 1,
        lease: LEASE,
        quarantined: true,
        go_idle: false,
    }
}

impl TurnOptions {
    pub(super) fn verdicts(mut self, epoch: Epoch, tasks: Vec<(TaskId, Verdict)>) -> Self {
        self.verdicts.push(Verdicts { epoch, tasks });
        self
    }

    /// Adds a verdict on a task of a claim.
    pub(super) fn verdict(mut self, epoch: Epoch, number: u64, verdict: Verdict) -> Self {
        let verdict = (id(number), verdict);
        match self.verdicts.last_mut() {
            Some(last) if last.epoch == epoch => last.tasks.push(verdict),
            _ => return self.verdicts(epoch, vec![verdict]),
        }
        self
    }

    pub(super) fn bytes(self, want_bytes: usize) -> Self {
        Self { want_bytes, ..self }
    }

    /// Makes it the request of a client that has received this epoch.
    pub(super) fn floor(self, floor: Epoch) -> Self {
        Self { floor, ..self }
    }

    pub(super) fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Does not claim a quarantined task.
    pub(super) fn without_quarantined(self) -> Self {
        Self {
            quarantined: false,
            ..self
        }
    }

    pub(super) fn go_idle(self) -> Self {
        Self {
            go_idle: true,
            ..self
        }
    }
}

fn is_end_of(event: &Event, number: u64) -> bool {
    match event {
        Event::MaybeEnded(ids) => ids.contains(&id(number)),
        Event::Ended(ends) => ends.iter().any(|end| end.0 == id(number)),
        _ => false,
    }
}

/// The events of a process.
pub(super) struct Events(mpsc::UnboundedReceiver<Event>);

impl Events {
    pub(super) async fn next(&mut self) -> Event {
        let event = in_time("an event", self.0.recv()).await;
        event.expect("a store sends events as long as its process lives")
    }

    /// Waits for a wanted event, and skips others.
    pub(super) async fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) {
        in_time(what, async { while !wanted(&self.next().await) {} }).await;
    }

    pub(super) async fn woken(&mut self) {
        self.until("a wake-up", |event| event.is_wake()).await;
    }

    /// Waits for the event that a task may have ended.
    pub(super) async fn ended(&mut self, number: u64) {
        let of = |event: &Event| is_end_of(event, number);
        self.until("the end of a task", of).await;
    }

    /// Waits for the event that a task may have ended. No wake-up must come before.
    pub(super) async fn ended_without_wake(&mut self, number: u64) {
        let of = |event: &Event| {
            assert!(!event.is_wake(), "woken in vain: {event:?}");
            is_end_of(event, number)
        };
        self.until("the end of a task", of).await;
    }

    pub(super) async fn cancelled(&mut self, number: u64) {
        let of = |event: &Event| matches!(event, Event::Cancel(ids) if ids.contains(&id(number)));
        self.until("the cancellation of a task", of).await;
    }

    /// Discards the events so far.
    pub(super) fn drain(&mut self) {
        while self.0.try_recv().is_ok() {}
    }
}

/// Claims until no task is left. Returns the tasks and the number of turns.
pub(super) async fn claim_all(session: &mut Session<'_>) -> (Vec<TaskId>, usize) {
    let (mut claimed, mut turns) = (Vec::new(), 0);
    loop {
        let turned = session.turn(wanting(256)).await;
        turns += 1;
        claimed.extend(turned.claim.iter().flat_map(ids));
        if turned.claim.is_none() && !turned.more {
            return (claimed, turns);
        }
    }
}
