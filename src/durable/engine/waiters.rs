//! [`Waiters`]: the handles that await tasks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::durable::TaskId;
use crate::durable::clock::since_boot;
use crate::durable::failure::{Cause, Failure};
use crate::durable::resend::BACKOFF;
use crate::durable::store::{Backend, MAX_BATCH_TASKS, TaskState};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;

/// The handles that await tasks.
///
/// The status of a task is requested when a handle begins to await it, and when an event says that it may have ended.
/// Since events can be lost, the status of all awaited tasks is also requested every second or so.
#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// Notified when there are tasks to check.
    wake: Notify,
    /// Notified when the store can be reached again.
    recovered: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<TaskId, Awaited>,
    /// The tasks whose status will be requested next.
    to_check: HashSet<TaskId>,
    /// The number of status requests so far.
    requests: u64,
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
    receiver: Receiver,
    limit: WaitLimit,
    /// The number of status requests before it began to wait.
    requests: u64,
    /// The time at which it began to wait, since the machine was started.
    since: Duration,
}

/// The receiver of the end of a task.
enum Receiver {
    Handle(oneshot::Sender<End>),
    /// A function that is called with the end, or with `None` if the client was closed.
    Callback(Box<dyn FnOnce(Option<End>) + Send>),
}

/// The time for which a waiter waits for the end of a task. At its limit, it gets the task's current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Until the task has ended.
    Unlimited,
    /// Until no worker has claimed the task for [`MAX_QUEUED`].
    WhileServed,
    /// Until the store has answered once.
    OneAnswer,
}

/// The time for which a quarantined run waits for a task that no worker claims. If that task is quarantined, too, this worker never
/// claims it, since a worker holds at most one such task.
pub(crate) const MAX_QUEUED: Duration = Duration::from_secs(30);

/// The final state of a task, or the failure because of which it will never be known.
pub(crate) type End = Result<TaskState, Failure>;

/// The minimum and maximum pause between two status requests for all tasks, and the ratio of the pause to the time that
/// the store took for the last answer.
const MIN_POLL_PAUSE: Duration = Duration::from_secs(1);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_PER_ANSWER_TIME: u32 = 20;

impl Waiters {
    /// Begins to wait for the end of a task.
    pub(crate) fn wait(&self, id: TaskId, limit: WaitLimit) -> oneshot::Receiver<End> {
        let (sender, end) = oneshot::channel();
        self.add(id, limit, Receiver::Handle(sender));
        end
    }

    /// Calls `callback` with the end of a task, on the engine's thread.
    pub(crate) fn call(
        &self,
        id: TaskId,
        limit: WaitLimit,
        callback: impl FnOnce(Option<End>) + Send + 'static,
    ) {
        self.add(id, limit, Receiver::Callback(Box::new(callback)));
    }

    fn add(&self, id: TaskId, limit: WaitLimit, receiver: Receiver) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return receiver.send(None);
        }
        let waiter = Waiter {
            receiver,
            limit,
            requests: state.requests,
            since: since_boot(),
        };
        state.waiting.entry(id).or_default().waiters.push(waiter);
        state.to_check.insert(id);
        drop(state);
        self.wake.notify_one();
    }

    /// Requests the status of those of these tasks that are awaited.
    pub(crate) fn check(&self, ids: impl IntoIterator<Item = TaskId>) {
        let mut state = lock(&self.state);
        let State {
            waiting, to_check, ..
        } = &mut *state;
        to_check.extend(ids.into_iter().filter(|id| waiting.contains_key(id)));
        let any = !to_check.is_empty();
        drop(state);
        if any {
            self.wake.notify_one();
        }
    }

    /// Requests the status of all awaited tasks.
    pub(crate) fn check_all(&self) {
        let ids: Vec<_> = lock(&self.state).waiting.keys().copied().collect();
        self.check(ids);
    }

    /// Resolves the waiters of a task whose end the store has accepted. `sent` is the time at which the request was sent, since the
    /// machine was started.
    ///
    /// Later waiters may await another task with the same id, which was spawned after the store stopped keeping the end of this one. For
    /// them, the store is asked.
    pub(crate) fn resolve_earlier(&self, id: TaskId, sent: Duration, end: impl FnOnce() -> End) {
        self.resolve_some(id, |waiter| waiter.since < sent, end);
    }

    /// Resolves those waiters of a task that has ended for which `is_earlier` returns `true`. The others ask the store.
    fn resolve_some(
        &self,
        id: TaskId,
        is_earlier: impl Fn(&Waiter) -> bool,
        end: impl FnOnce() -> End,
    ) {
        let mut state = lock(&self.state);
        let earlier = state.take(id, is_earlier);
        let is_awaited = state.waiting.contains_key(&id);
        drop(state);
        if is_awaited {
            self.check([id]);
        }
        if !earlier.is_empty() {
            send(earlier, Some(&end()));
        }
    }

    /// Resolves the waiters of a task that has ended.
    fn resolve(&self, id: TaskId, end: impl FnOnce() -> End) {
        let Some(awaited) = lock(&self.state).waiting.remove(&id) else {
            return;
        };
        send(awaited.waiters, Some(&end()));
    }

    /// Resolves the waiters of a task whose end an event has reported.
    pub(crate) fn ended(&self, id: TaskId, state: TaskState) {
        match state {
            TaskState::Waiting | TaskState::Delayed | TaskState::Running => {}
            end => self.resolve(id, || Ok(end)),
        }
    }

    /// Returns `true` if an awaited task waits for a worker.
    pub(crate) fn is_any_queued(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.values().any(|task| task.queued.is_some())
    }

    /// Resolves all present and future waiters with an error, since no more requests will be made.
    pub(crate) fn close(&self) {
        let closed = State {
            closed: true,
            ..State::default()
        };
        let state = std::mem::replace(&mut *lock(&self.state), closed);
        for awaited in state.waiting.into_values() {
            send(awaited.waiters, None);
        }
    }

    /// Ends the pause after a failure, since the store can be reached again, and checks all tasks.
    pub(crate) fn recovered(&self) {
        self.recovered.notify_one();
        self.check_all();
    }

    /// Requests the status of tasks for as long as the engine runs.
    pub(crate) async fn run(self: StdArc<Self>, store: StdArc<dyn Backend>) {
        let mut next_poll = Instant::now() + MIN_POLL_PAUSE;
        let mut failures = 0;
        loop {
            if self.is_idle() {
                self.wake.notified().await;
            } else {
                timeout_at(next_poll, self.wake.notified()).await.ok();
            }
            // Polling must not depend on the timeout: notifications for other tasks may never pause.
            let is_poll = Instant::now() >= next_poll;
            if is_poll {
                self.remove_dropped();
                self.check_all();
            }
            match self.request_status(&*store).await {
                Ok(answer_time) => {
                    failures = 0;
                    if is_poll {
                        let pause = answer_time * PAUSE_PER_ANSWER_TIME;
                        next_poll = Instant::now() + pause.clamp(MIN_POLL_PAUSE, MAX_POLL_PAUSE);
                    }
                }
                // All tasks are checked again after the pause, or as soon as the store can be reached.
                Err(_) => {
                    failures += 1;
                    let pause = BACKOFF.delay(failures).unwrap_or_default();
                    timeout(pause, self.recovered.notified()).await.ok();
                    self.check_all();
                }
            }
        }
    }

    /// Requests the status of the tasks that are to be checked. Returns the time that the store took to answer.
    async fn request_status(&self, store: &dyn Backend) -> Result<Duration, Failure> {
        let (to_check, request) = self.begin_request();
        let ids: Vec<_> = to_check.into_iter().collect();
        let mut answer_time = Duration::ZERO;
        for ids in ids.chunks(MAX_BATCH_TASKS) {
            let start = Instant::now();
            match store.status(ids.to_vec()).await {
                Ok(states) => ids.iter().zip(states).for_each(|(&id, state)| {
                    self.update(id, state, request);
                }),
                Err(failure) if is_final(&failure) => {
                    for &id in ids {
                        self.resolve(id, || Err(failure.clone()));
                    }
                }
                Err(failure) => return Err(failure),
            }
            answer_time += start.elapsed();
        }
        Ok(answer_time)
    }

    /// Returns the tasks that are to be checked, and the number of this request.
    fn begin_request(&self) -> (HashSet<TaskId>, u64) {
        let mut state = lock(&self.state);
        state.requests += 1;
        (std::mem::take(&mut state.to_check), state.requests)
    }

    /// Handles the state of a task, as the answer to a request reports it. Of the waiters from before the request, resolves all if the task
    /// has ended, and otherwise those that have reached their limit. Later ones may await another task with the same id.
    fn update(&self, id: TaskId, task: TaskState, request: u64) {
        match task {
            TaskState::Waiting | TaskState::Delayed | TaskState::Running => {
                let at_limit = lock(&self.state).take_at_limit(id, &task, request);
                send(at_limit, Some(&Ok(task)));
            }
            end => self.resolve_some(id, |waiter| waiter.requests < request, || Ok(end)),
        }
    }

    /// Removes waiters whose handles were dropped.
    fn remove_dropped(&self) {
        lock(&self.state).waiting.retain(|_, awaited| {
            let waiters = &mut awaited.waiters;
            waiters.retain(|waiter| !waiter.receiver.is_dropped());
            !waiters.is_empty()
        });
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).waiting.is_empty()
    }
}

impl State {
    /// Removes and returns the waiters of a task that has not ended, but for which they wait no longer.
    fn take_at_limit(&mut self, id: TaskId, task: &TaskState, request: u64) -> Vec<Waiter> {
        let Some(awaited) = self.waiting.get_mut(&id) else {
            return Vec::new();
        };
        let now = Instant::now();
        let queued = awaited.queued.take().unwrap_or(now);
        awaited.queued = (*task == TaskState::Waiting).then_some(queued);
        let is_unserved = awaited.queued.is_some() && now - queued >= MAX_QUEUED;
        let at_limit = awaited.waiters.extract_if(.., |waiter| {
            // The answer to a request from before the wait may be out of date.
            waiter.requests < request
                && match waiter.limit {
                    WaitLimit::Unlimited => false,
                    WaitLimit::WhileServed => is_unserved,
                    WaitLimit::OneAnswer => true,
                }
        });
        let at_limit = at_limit.collect();
        if awaited.waiters.is_empty() {
            self.waiting.remove(&id);
        }
        at_limit
    }

    /// Removes and returns those waiters of a task for which `is_taken` returns `true`.
    fn take(&mut self, id: TaskId, is_taken: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let Some(awaited) = self.waiting.get_mut(&id) else {
            return Vec::new();
        };
        let taken = awaited.waiters.extract_if(.., |waiter| is_taken(waiter));
        let taken = taken.collect();
        if awaited.waiters.is_empty() {
            self.waiting.remove(&id);
        }
        taken
    }
}

impl Receiver {
    /// Sends the end of the task. The waker of a handle may panic.
    fn send(self, end: Option<End>) {
        match (self, end) {
            (Self::Handle(handle), Some(end)) => contain(|| drop(handle.send(end))),
            (Self::Handle(handle), None) => contain(|| drop(handle)),
            (Self::Callback(callback), end) => callback(end),
        }
    }

    fn is_dropped(&self) -> bool {
        matches!(self, Self::Handle(handle) if handle.is_closed())
    }
}

fn send(waiters: Vec<Waiter>, end: Option<&End>) {
    for waiter in waiters {
        waiter.receiver.send(end.cloned());
    }
}

/// Returns `true` if the store will answer every later request with this failure, too.
pub(super) fn is_final(failure: &Failure) -> bool {
    matches!(
        failure.cause,
        Cause::NewerLayout { .. } | Cause::OlderLayout { .. } | Cause::Replaced | Cause::Corrupt
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task with the same id may have been stored since the status was requested.
    #[test]
    fn a_status_resolves_only_those_that_waited_when_it_was_requested() {
        let (waiters, id) = (Waiters::default(), TaskId::new());
        let mut earlier = waiters.wait(id, WaitLimit::Unlimited);
        let (_, request) = waiters.begin_request();
        let mut later = waiters.wait(id, WaitLimit::Unlimited);
        waiters.update(id, TaskState::Absent, request);
        assert_eq!(
            earlier.try_recv().map(Result::ok),
            Ok(Some(TaskState::Absent))
        );
        assert!(later.try_recv().is_err());
        let (to_check, request) = waiters.begin_request();
        assert!(to_check.contains(&id));
        waiters.update(id, TaskState::Done(Vec::new()), request);
        assert!(later.try_recv().is_ok());
        assert!(waiters.is_idle());
    }
}
