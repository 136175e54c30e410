//! [`ProgressWaiters`]: requests the progress of tasks for the streams that wait for it.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::waiters::is_final;
use crate::durable::TaskId;
use crate::durable::failure::Failure;
use crate::durable::resend::BACKOFF;
use crate::durable::store::{Backend, Epoch, MAX_BATCH_TASKS, Progress, ProgressState};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;

/// The streams that wait for the progress of tasks.
///
/// The progress of a task is requested when a stream begins to wait for its first report, and then about twice a second, together with
/// that of all other tasks for which streams wait.
#[derive(Default)]
pub(crate) struct ProgressWaiters {
    state: Mutex<State>,
    /// Notified when a stream begins to wait.
    wake: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<TaskId, Vec<Waiter>>,
    /// The tasks whose progress is requested next.
    to_check: HashSet<TaskId>,
    /// No more requests will be made.
    closed: bool,
}

struct Waiter {
    /// The last report that the stream has yielded.
    seen: Option<ReportOrder>,
    stream: oneshot::Sender<News>,
}

/// The epoch and the number of a report, which order the reports of a task.
pub(crate) type ReportOrder = (Epoch, u64);

/// A later report, the end of the task, or the permanent failure that ends the wait.
pub(crate) type News = Result<ProgressState, Failure>;

/// The minimum and maximum pause between two requests for all tasks, and the ratio of the pause to the time that the store took to
/// answer the last one.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(500);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_PER_ANSWER_TIME: u32 = 2;

impl ProgressWaiters {
    /// Returns a receiver of a report that is later than `seen`, or of the end of the task. The sender is dropped if the client is closed.
    pub(crate) fn wait(&self, id: TaskId, seen: Option<ReportOrder>) -> oneshot::Receiver<News> {
        let (stream, news) = oneshot::channel();
        let mut state = lock(&self.state);
        if !state.closed {
            let waiters = state.waiting.entry(id).or_default();
            waiters.push(Waiter { seen, stream });
            if seen.is_none() {
                state.to_check.insert(id);
            }
        }
        drop(state);
        self.wake.notify_one();
        news
    }

    /// Ends all present and future waits, since no more requests will be made.
    pub(crate) fn close(&self) {
        let closed = State {
            closed: true,
            ..State::default()
        };
        let state = mem::replace(&mut *lock(&self.state), closed);
        // Each drop wakes a stream.
        for waiter in state.waiting.into_values().flatten() {
            contain(|| drop(waiter));
        }
    }

    /// Requests the progress of tasks for as long as the engine runs.
    pub(crate) async fn run(self: StdArc<Self>, store: StdArc<dyn Backend>) {
        let (mut next_poll, mut failures) = (Instant::now(), 0);
        loop {
            match self.is_idle() {
                true => self.wake.notified().await,
                false => drop(timeout_at(next_poll, self.wake.notified()).await),
            }
            let is_poll = Instant::now() >= next_poll;
            if is_poll {
                self.check_all();
            }
            let begun = Instant::now();
            if self.request_progress(&*store).await.is_err() {
                failures += 1;
                sleep(BACKOFF.delay(failures).unwrap_or_default()).await;
                next_poll = Instant::now();
                continue;
            }
            failures = 0;
            if is_poll {
                let pause = begun.elapsed() * PAUSE_PER_ANSWER_TIME;
                next_poll = Instant::now() + pause.clamp(MIN_POLL_PAUSE, MAX_POLL_PAUSE);
            }
        }
    }

    /// Returns `true` if no stream waits.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).waiting.is_empty()
    }

    /// Removes the waits of dropped streams, and requests the progress of all other tasks.
    fn check_all(&self) {
        let mut state = lock(&self.state);
        let State {
            waiting, to_check, ..
        } = &mut *state;
        waiting.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.stream.is_closed());
            !waiters.is_empty()
        });
        to_check.extend(waiting.keys());
    }

    async fn request_progress(&self, store: &dyn Backend) -> Result<(), Failure> {
        let to_check = mem::take(&mut lock(&self.state).to_check);
        let ids: Vec<_> = to_check.into_iter().collect();
        for ids in ids.chunks(MAX_BATCH_TASKS) {
            match store.progress(ids.to_vec()).await {
                Ok(states) => {
                    for (&id, state) in ids.iter().zip(states) {
                        self.update(id, &Ok(state));
                    }
                }
                Err(failure) if is_final(&failure) => {
                    let failed = Err(failure);
                    ids.iter().for_each(|&id| self.update(id, &failed));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Ends the waits for which an answer contains a later report, the end of the task or a failure.
    fn update(&self, id: TaskId, news: &News) {
        for waiter in lock(&self.state).take_informed(id, news) {
            // The waker of a stream may panic.
            contain(|| drop(waiter.stream.send(news.clone())));
        }
    }
}

impl State {
    fn take_informed(&mut self, id: TaskId, news: &News) -> Vec<Waiter> {
        let Some(waiters) = self.waiting.get_mut(&id) else {
            return Vec::new();
        };
        let informed = waiters.extract_if(.., |waiter| waiter.is_informed_by(news));
        let informed = informed.collect();
        if waiters.is_empty() {
            self.waiting.remove(&id);
        }
        informed
    }
}

impl Waiter {
    fn is_informed_by(&self, news: &News) -> bool {
        match news {
            Ok(ProgressState::Alive(progress)) => {
                progress.as_ref().map(Progress::order) > self.seen
            }
            Ok(ProgressState::Ended) | Err(_) => true,
        }
    }
}
