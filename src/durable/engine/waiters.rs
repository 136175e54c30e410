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
    waiting: HashMap<TaskId, Vec<oneshot::Sender<End>>>,
    /// Those to be looked at next.
    look: HashSet<TaskId>,
    /// Nobody will look at anything.
    closed: bool,
}

/// How a task has ended, or why that will never be known.
pub(crate) type End = Result<Seen, Failure>;

/// How often all are looked at, at most; and the part of the time that this may take.
const INTERVAL: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

impl Waiters {
    /// Begins to wait for the end of a task.
    pub(crate) fn wait(&self, id: TaskId) -> oneshot::Receiver<End> {
        let (sender, receiver) = oneshot::channel();
        let mut state = lock(&self.state);
        if state.closed {
            return receiver;
        }
        state.waiting.entry(id).or_default().push(sender);
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
        let Some(waiting) = lock(&self.state).waiting.remove(&id) else {
            return;
        };
        let end = end();
        for waiter in waiting {
            waiter.send(end.clone()).ok();
        }
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
        let look = std::mem::take(&mut lock(&self.state).look);
        let ids: Vec<_> = look.into_iter().collect();
        for ids in ids.chunks(MAX_BATCH) {
            match store.look(ids.to_vec()).await {
                Ok(seen) => ids
                    .iter()
                    .zip(seen)
                    .for_each(|(&id, seen)| self.saw(id, seen)),
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

    /// What the store says of a task: tells those who wait for it, if it has ended.
    pub(crate) fn saw(&self, id: TaskId, seen: Seen) {
        if !matches!(seen, Seen::Waiting | Seen::Delayed | Seen::Running) {
            self.resolve(id, || Ok(seen));
        }
    }

    /// Forgets those who wait no longer.
    fn sweep(&self) {
        lock(&self.state).waiting.retain(|_, waiting| {
            waiting.retain(|waiter| !waiter.is_closed());
            !waiting.is_empty()
        });
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).waiting.is_empty()
    }
}

/// Whether a store that says this will never say anything else.
fn is_final(failure: &Failure) -> bool {
    matches!(
        failure.cause,
        Cause::NewerLayout { .. } | Cause::OlderLayout { .. } | Cause::Replaced | Cause::Corrupt
    )
}
