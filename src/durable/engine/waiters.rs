//! [`Waiters`]: who awaits which task.

use std::collections::{HashMap, HashSet};
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

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
}

#[derive(Default)]
struct State {
    waiting: HashMap<TaskId, Awaited>,
    /// Those to be looked at next.
    look: HashSet<TaskId>,
    /// How many times the store has been asked.
    asked: u64,
    /// Nobody will look at anything.
    closed: bool,
}

/// A task that somebody awaits.
#[derive(Default)]
struct Awaited {
    waiters: Vec<Waiter>,
    /// Since when the store has said that the task waits for a worker.
    queued: Option<Instant>,
}

struct Waiter {
    end: oneshot::Sender<End>,
    patience: Patience,
    /// How many times the store had been asked when it began to wait.
    asked: u64,
}

/// How long somebody waits for the end of a task. At the end of its patience it gets the status that the
/// task has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until the task has ended.
    Endless,
    /// Until a worker has not taken the task for [some time](QUEUED_LIMIT).
    WhileServed,
    /// Until the store has answered once.
    Once,
}

/// How long a quarantined run waits for a task that no worker takes. If that task is quarantined, too, this
/// worker never takes it: at most one such task is with a worker.
pub(crate) const QUEUED_LIMIT: Duration = Duration::from_secs(30);

/// How a task has ended, or why that will never be known.
pub(crate) type End = Result<Seen, Failure>;

/// How often all are looked at, at most; and the part of the time that this may take.
const INTERVAL: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

impl Waiters {
    /// Begins to wait for the end of a task.
    pub(crate) fn wait(&self, id: TaskId, patience: Patience) -> oneshot::Receiver<End> {
        let (end, receiver) = oneshot::channel();
        let mut state = lock(&self.state);
        if state.closed {
            return receiver;
        }
        let waiter = Waiter {
            end,
            patience,
            asked: state.asked,
        };
        state.waiting.entry(id).or_default().waiters.push(waiter);
        state.look.insert(id);
        drop(state);
        self.bell.notify_one();
        receiver
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
        tell(awaited.waiters, &end());
    }

    /// Returns `true` if somebody awaits a task that waits for a worker.
    pub(crate) fn is_any_queued(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.values().any(|task| task.queued.is_some())
    }

    /// Tells those who wait, and those who will, that nobody looks.
    pub(crate) fn close(&self) {
        *lock(&self.state) = State {
            closed: true,
            ..State::default()
        };
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
            let start = Instant::now();
            let is_sweep = start >= next_sweep;
            if is_sweep {
                self.sweep();
                self.look_at_all();
            }
            let looked = self.look(&*store).await;
            if is_sweep {
                next_sweep = Instant::now() + INTERVAL.max(start.elapsed() * SHARE);
            }
            match looked {
                Ok(()) => failures = 0,
                Err(_) => {
                    failures += 1;
                    sleep(BACKOFF.delay(failures).unwrap_or_default()).await;
                    self.look_at_all();
                }
            }
        }
    }

    async fn look(&self, store: &dyn Backend) -> Result<(), Failure> {
        let (look, asked) = self.begin_to_ask();
        let ids: Vec<_> = look.into_iter().collect();
        for ids in ids.chunks(MAX_BATCH) {
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
        }
        Ok(())
    }

    /// Returns what is to be looked at, and the number of this request.
    fn begin_to_ask(&self) -> (HashSet<TaskId>, u64) {
        let mut state = lock(&self.state);
        state.asked += 1;
        (std::mem::take(&mut state.look), state.asked)
    }

    /// How a task has ended, as an event says it.
    pub(crate) fn heard(&self, id: TaskId, seen: Seen) {
        self.saw(id, seen, 0);
    }

    /// What the store has answered to a request: tells those who wait for the task, if it has ended, or if
    /// their patience has.
    fn saw(&self, id: TaskId, seen: Seen, asked: u64) {
        match seen {
            Seen::Waiting | Seen::Delayed | Seen::Running => {
                let impatient = lock(&self.state).goes_on(id, &seen, asked);
                tell(impatient, &Ok(seen));
            }
            end => self.resolve(id, || Ok(end)),
        }
    }

    /// Forgets those who wait no longer.
    fn sweep(&self) {
        lock(&self.state).waiting.retain(|_, awaited| {
            let waiters = &mut awaited.waiters;
            waiters.retain(|waiter| !waiter.end.is_closed());
            !waiters.is_empty()
        });
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).waiting.is_empty()
    }
}

impl State {
    /// A task has not ended. Returns those who do not wait any longer.
    fn goes_on(&mut self, id: TaskId, seen: &Seen, asked: u64) -> Vec<Waiter> {
        let Some(awaited) = self.waiting.get_mut(&id) else {
            return Vec::new();
        };
        let now = Instant::now();
        let queued = awaited.queued.take().unwrap_or(now);
        awaited.queued = (*seen == Seen::Waiting).then_some(queued);
        let is_over = awaited.queued.is_some() && now - queued >= QUEUED_LIMIT;
        let impatient = awaited.waiters.extract_if(.., |waiter| {
            // What was asked before somebody began to wait may be out of date.
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

/// Tells waiters. Their wakers are not ours, and may panic.
fn tell(waiters: Vec<Waiter>, end: &End) {
    for waiter in waiters {
        contain(|| drop(waiter.end.send(end.clone())));
    }
}

/// Whether a store that says this will never say anything else.
fn is_final(failure: &Failure) -> bool {
    matches!(
        failure.cause,
        Cause::NewerLayout { .. } | Cause::OlderLayout { .. } | Cause::Replaced | Cause::Corrupt
    )
}
