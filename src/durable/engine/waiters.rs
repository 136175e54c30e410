//! [`Waiters`]: who awaits which task.

use std::collections::{HashMap, HashSet};
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::patience::BACKOFF;
use crate::durable::TaskId;
use crate::durable::error::{Cause, Failure};
use crate::durable::store::{Backend, MAX_BATCH, Seen};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;

/// Who awaits which task.
///
/// Each is looked at when somebody begins to wait, and when an event says that it may have ended;
/// and, since events can be lost, all of them every second or so.
#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    bell: Notify,
    /// Rung when the store can be reached again.
    ready: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<TaskId, Awaited>,
    /// Those to be looked at next.
    look: HashSet<TaskId>,
    /// The number of requests to the store so far.
    asked: u64,
    /// No more requests will be made.
    closed: bool,
}

/// An awaited task.
#[derive(Default)]
struct Awaited {
    waiters: Vec<Waiter>,
    /// The time since which the store has reported that the task waits for a worker.
    queued: Option<Instant>,
}

struct Waiter {
    to: To,
    patience: Patience,
    /// The number of requests to the store before it began to wait.
    asked: u64,
}

/// The receiver of the end.
enum To {
    Handle(oneshot::Sender<End>),
    /// A function to call, with `None` if the end will never be known.
    Call(Box<dyn FnOnce(Option<End>) + Send>),
}

/// How long a waiter waits for the end of a task. At the end of its patience it gets the task's current
/// status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until the task has ended.
    Endless,
    /// Until no worker has taken the task for [some time](QUEUED_LIMIT).
    WhileServed,
    /// Until the store has answered once.
    Once,
}

/// How long a quarantined run waits for a task that no worker takes. If that task is quarantined, too, this
/// worker never takes it: at most one such task is with a worker.
pub(crate) const QUEUED_LIMIT: Duration = Duration::from_secs(30);

/// How a task has ended, or why that will never be known.
pub(crate) type End = Result<Seen, Failure>;

/// The pause after each status request for all tasks, at least and at most; and the ratio of that pause to the
/// time of the request.
const INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
const SHARE: u32 = 20;

impl Waiters {
    /// Begins to wait for the end of a task.
    pub(crate) fn wait(&self, id: TaskId, patience: Patience) -> oneshot::Receiver<End> {
        let (sender, end) = oneshot::channel();
        self.enter(id, patience, To::Handle(sender));
        end
    }

    /// Calls `call` with the end of a task, on the engine's thread.
    pub(crate) fn call(
        &self,
        id: TaskId,
        patience: Patience,
        call: impl FnOnce(Option<End>) + Send + 'static,
    ) {
        self.enter(id, patience, To::Call(Box::new(call)));
    }

    fn enter(&self, id: TaskId, patience: Patience, to: To) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return to.tell(None);
        }
        let waiter = Waiter {
            to,
            patience,
            asked: state.asked,
        };
        state.waiting.entry(id).or_default().waiters.push(waiter);
        state.look.insert(id);
        drop(state);
        self.bell.notify_one();
    }

    /// Has tasks looked at, those that somebody waits for.
    pub(crate) fn look_at(&self, ids: impl IntoIterator<Item = TaskId>) {
        let mut state = lock(&self.state);
        let State { waiting, look, .. } = &mut *state;
        look.extend(ids.into_iter().filter(|id| waiting.contains_key(id)));
        let any = !look.is_empty();
        drop(state);
        if any {
            self.bell.notify_one();
        }
    }

    /// Has all tasks looked at that somebody waits for.
    pub(crate) fn look_at_all(&self) {
        let ids: Vec<_> = lock(&self.state).waiting.keys().copied().collect();
        self.look_at(ids);
    }

    /// A task has ended: tells those who wait for it.
    pub(crate) fn resolve(&self, id: TaskId, end: impl FnOnce() -> End) {
        let Some(awaited) = lock(&self.state).waiting.remove(&id) else {
            return;
        };
        tell(awaited.waiters, Some(&end()));
    }

    /// Returns `true` if an awaited task waits for a worker.
    pub(crate) fn is_any_queued(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.values().any(|task| task.queued.is_some())
    }

    /// Tells those who wait, and those who will, that nobody looks.
    pub(crate) fn close(&self) {
        let closed = State {
            closed: true,
            ..State::default()
        };
        let state = std::mem::replace(&mut *lock(&self.state), closed);
        for awaited in state.waiting.into_values() {
            tell(awaited.waiters, None);
        }
    }

    /// The store can be reached again: looks at all at once.
    pub(crate) fn recovered(&self) {
        self.ready.notify_one();
        self.look_at_all();
    }

    /// Looks at what is to be looked at, as long as the engine runs.
    pub(crate) async fn run(self: StdArc<Self>, store: StdArc<dyn Backend>) {
        let mut next_sweep = Instant::now() + INTERVAL;
        let mut failures = 0;
        loop {
            if self.is_idle() {
                self.bell.notified().await;
            } else {
                timeout_at(next_sweep, self.bell.notified()).await.ok();
            }
            // Also if the bell never stops ringing: it may be for others.
            let is_sweep = Instant::now() >= next_sweep;
            if is_sweep {
                self.sweep();
                self.look_at_all();
            }
            match self.look(&*store).await {
                Ok(asking) => {
                    failures = 0;
                    if is_sweep {
                        let pause = (asking * SHARE).clamp(INTERVAL, MAX_INTERVAL);
                        next_sweep = Instant::now() + pause;
                    }
                }
                // All are asked about again, at the latest when the store can be reached.
                Err(_) => {
                    failures += 1;
                    let pause = BACKOFF.delay(failures).unwrap_or_default();
                    timeout(pause, self.ready.notified()).await.ok();
                    self.look_at_all();
                }
            }
        }
    }

    /// Asks for what is to be looked at. Returns how long the store took to answer.
    async fn look(&self, store: &dyn Backend) -> Result<Duration, Failure> {
        let (look, asked) = self.begin_to_ask();
        let ids: Vec<_> = look.into_iter().collect();
        let mut asking = Duration::ZERO;
        for ids in ids.chunks(MAX_BATCH) {
            let start = Instant::now();
            match store.look(ids.to_vec()).await {
                Ok(seen) => ids.iter().zip(seen).for_each(|(&id, seen)| {
                    self.saw(id, seen, asked);
                }),
                Err(failure) if is_final(&failure) => {
                    for &id in ids {
                        self.resolve(id, || Err(failure.clone()));
                    }
                }
                Err(failure) => return Err(failure),
            }
            asking += start.elapsed();
        }
        Ok(asking)
    }

    /// Returns what is to be looked at, and the number of this request.
    fn begin_to_ask(&self) -> (HashSet<TaskId>, u64) {
        let mut state = lock(&self.state);
        state.asked += 1;
        (std::mem::take(&mut state.look), state.asked)
    }

    /// Takes the end of a task, as an event reports it.
    pub(crate) fn heard(&self, id: TaskId, seen: Seen) {
        self.saw(id, seen, 0);
    }

    /// Takes the store's answer for a task: tells the task's waiters if it has ended, and those whose patience
    /// has ended.
    fn saw(&self, id: TaskId, seen: Seen, asked: u64) {
        match seen {
            Seen::Waiting | Seen::Delayed | Seen::Running => {
                let impatient = lock(&self.state).goes_on(id, &seen, asked);
                tell(impatient, Some(&Ok(seen)));
            }
            end => self.resolve(id, || Ok(end)),
        }
    }

    /// Forgets those who wait no longer.
    fn sweep(&self) {
        lock(&self.state).waiting.retain(|_, awaited| {
            let waiters = &mut awaited.waiters;
            waiters.retain(|waiter| !waiter.to.is_gone());
            !waiters.is_empty()
        });
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).waiting.is_empty()
    }
}

impl State {
    /// A task has not ended. Returns the waiters whose patience has ended.
    fn goes_on(&mut self, id: TaskId, seen: &Seen, asked: u64) -> Vec<Waiter> {
        let Some(awaited) = self.waiting.get_mut(&id) else {
            return Vec::new();
        };
        let now = Instant::now();
        let queued = awaited.queued.take().unwrap_or(now);
        awaited.queued = (*seen == Seen::Waiting).then_some(queued);
        let is_over = awaited.queued.is_some() && now - queued >= QUEUED_LIMIT;
        let impatient = awaited.waiters.extract_if(.., |waiter| {
            // The answer to a request from before the wait may be out of date.
            waiter.asked < asked
                && match waiter.patience {
                    Patience::Endless => false,
                    Patience::WhileServed => is_over,
                    Patience::Once => true,
                }
        });
        let impatient = impatient.collect();
        if awaited.waiters.is_empty() {
            self.waiting.remove(&id);
        }
        impatient
    }
}

impl To {
    /// Tells of an end. The waker of a handle is not ours, and may panic.
    fn tell(self, end: Option<End>) {
        match (self, end) {
            (Self::Handle(handle), Some(end)) => contain(|| drop(handle.send(end))),
            (Self::Handle(handle), None) => contain(|| drop(handle)),
            (Self::Call(call), end) => call(end),
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Handle(handle) if handle.is_closed())
    }
}

fn tell(waiters: Vec<Waiter>, end: Option<&End>) {
    for waiter in waiters {
        waiter.to.tell(end.cloned());
    }
}

/// Whether a store that says this will never say anything else.
fn is_final(failure: &Failure) -> bool {
    matches!(
        failure.cause,
        Cause::NewerLayout { .. } | Cause::OlderLayout { .. } | Cause::Replaced | Cause::Corrupt
    )
}
