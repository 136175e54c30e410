//! [`SpawnQueue`]: spawned tasks that wait for a request, and [`WriteBatch`], the tasks of one request.
//!
//! A *spawn request* holds the tasks of one call, which are stored together. It waits in the queue until a
//! *write batch* takes it. A batch is *open* when it is sent to the store: it is empty, and whatever is
//! spawned meanwhile will be in it. The store *closes* it when it reads it for the first time. From then on its
//! tasks are fixed, so the request can be sent again. At most one batch is open at a time.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;
use std::fmt;
use std::mem;
use std::sync::{Arc as StdArc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::callers::{BatchCallers, Reply};
use super::failure::Failure;
use super::key::Enqueued;
#[cfg(any(test, feature = "redis"))]
use super::key::KeyConflict;
use super::resend::STORE_TIMEOUT;
use super::task::{MAX_BATCH_BYTES, MAX_BATCH_TASKS, NewTask, bytes_of};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;
use crate::wait_queue::WaitQueue;

/// The time for which a spawn request may wait in the queue while some parts of the store answer and others do not.
const MAX_WAIT_FOR_A_PART: Duration = STORE_TIMEOUT.saturating_mul(3);

#[cfg_attr(
    not(any(test, feature = "redis")),
    allow(
        dead_code,
        reason = "other stores have no parts that can fail separately"
    )
)]
mod callers;

/// Spawned tasks that wait for a request, in the order in which they were spawned.
pub(crate) struct SpawnQueue {
    state: Mutex<State>,
    /// Notified when a batch is needed, and when the queue is closed.
    senders: WaitQueue,
}

#[derive(Default)]
struct State {
    requests: VecDeque<SpawnRequest>,
    /// The number of requests so far.
    pushed: usize,
    /// The number of batches so far.
    batches: u64,
    /// The number of the open batch.
    open: Option<u64>,
    /// No request is accepted any more.
    closed: bool,
}

/// Tasks that are stored together: at most [`MAX_BATCH_TASKS`].
struct SpawnRequest {
    tasks: Vec<NewTask>,
    since: Instant,
    reply: Reply,
}

/// Resolves when the tasks of a spawn request are stored, or cannot be. Positions in the answer count the tasks of this
/// request. An error of the channel means that the queue was closed.
pub(crate) type Stored = oneshot::Receiver<Result<Enqueued, Failure>>;

/// The tasks of one request to a store: at most [`MAX_BATCH_TASKS`], possibly none.
pub struct WriteBatch {
    tasks: OnceLock<Vec<NewTask>>,
    /// Where the tasks come from. A batch without a source is closed from the beginning.
    source: Option<Source>,
    callers: Mutex<BatchCallers>,
}

/// The queue that an open batch takes its tasks from.
struct Source {
    queue: StdArc<SpawnQueue>,
    /// The number of the batch.
    batch: u64,
    /// The number of spawn requests before the batch was opened.
    pushed: usize,
}

impl SpawnQueue {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            senders: WaitQueue::new(),
        }
    }

    /// Adds a request for tasks that fit into one batch. If the queue is closed, the request is dropped.
    pub(crate) fn push(&self, tasks: Vec<NewTask>) -> Stored {
        let (reply, stored) = oneshot::channel();
        let request = SpawnRequest {
            tasks,
            since: Instant::now(),
            reply,
        };
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            drop(request);
            return stored;
        }
        let is_first = state.requests.is_empty();
        state.requests.push_back(request);
        state.pushed += 1;
        let is_batch_needed = is_first && state.open.is_none();
        drop(state);
        if is_batch_needed {
            self.senders.notify_one();
        }
        stored
    }

    /// Waits until a batch is needed, and opens it. Returns `None` when the queue is closed and empty.
    pub(crate) async fn next_batch(self: &StdArc<Self>) -> Option<StdArc<WriteBatch>> {
        // The check runs under the lock under which requests are added, so no notification is missed.
        let batch = self.senders.wait(|| self.try_next_batch()).await;
        if batch.is_none() {
            // The other senders would wait forever.
            self.senders.notify_one();
        }
        batch
    }

    /// Returns `None` if no batch is needed now, and `Some(None)` if none will ever be.
    fn try_next_batch(self: &StdArc<Self>) -> Option<Option<StdArc<WriteBatch>>> {
        let mut state = lock(&self.state);
        if state.requests.is_empty() {
            return state.closed.then_some(None);
        }
        if state.open.is_some() {
            return None;
        }
        state.batches += 1;
        state.open = Some(state.batches);
        let batch = WriteBatch::open(Source {
            queue: StdArc::clone(self),
            batch: state.batches,
            pushed: state.pushed,
        });
        Some(Some(StdArc::new(batch)))
    }

    /// Accepts no more requests. Those in the queue will still be sent.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.senders.notify_all();
    }

    /// Closes the queue, and drops the requests in it: no sender is left.
    pub(crate) fn abort(&self) {
        self.close();
        let requests = mem::take(&mut lock(&self.state).requests);
        contain(|| drop(requests));
    }
}

impl State {
    /// Takes the oldest requests that fit into one batch.
    fn take(&mut self) -> Drain<'_, SpawnRequest> {
        let (mut tasks, mut bytes) = (0, 0);
        let fits = |request: &&SpawnRequest| {
            tasks += request.tasks.len();
            bytes += bytes_of(&request.tasks);
            tasks <= MAX_BATCH_TASKS && bytes <= MAX_BATCH_BYTES
        };
        // The first one fits in any case.
        let count = self.requests.iter().take_while(fits).count().max(1);
        self.requests.drain(..count.min(self.requests.len()))
    }

    /// Takes the requests that fail with a batch: if it is open, those that were pushed before it was opened; and in
    /// any case those that have waited for longer than `max_wait`.
    fn take_failed(&mut self, source: &Source, max_wait: Duration) -> Drain<'_, SpawnRequest> {
        let later = match self.open == Some(source.batch) {
            true => self.pushed - source.pushed,
            // It is closed, and has its requests.
            false => self.requests.len(),
        };
        let earlier = self.requests.len().saturating_sub(later);
        let is_old = |request: &&SpawnRequest| request.since.elapsed() > max_wait;
        let old = self.requests.iter().take_while(is_old).count();
        self.requests.drain(..old.max(earlier))
    }
}

impl WriteBatch {
    fn open(source: Source) -> Self {
        Self {
            tasks: OnceLock::new(),
            source: Some(source),
            callers: Mutex::default(),
        }
    }

    /// Closes the batch if it is open, and returns its tasks. A store calls this as late as it can: everything that was
    /// spawned until then is in the batch.
    pub fn close(&self) -> &[NewTask] {
        self.tasks.get_or_init(|| {
            let source = self.source.as_ref();
            source.map_or_else(Vec::new, |source| self.take_tasks(source))
        })
    }

    /// Takes the tasks from the queue. If the request has been answered meanwhile, this is a late copy of it, which has
    /// no tasks.
    fn take_tasks(&self, Source { queue, batch, .. }: &Source) -> Vec<NewTask> {
        let mut state = lock(&queue.state);
        if state.open != Some(*batch) {
            return Vec::new();
        }
        state.open = None;
        let requests = state.take();
        let (tasks, callers): (Vec<_>, Vec<_>) = requests
            .map(|request| {
                let count = request.tasks.len();
                (request.tasks, (request.reply, count))
            })
            .unzip();
        // Under the lock, so that `finish` finds all of them.
        *lock(&self.callers) = BatchCallers::new(callers);
        let is_batch_needed = !state.requests.is_empty();
        drop(state);
        if is_batch_needed {
            queue.senders.notify_one();
        }
        tasks.into_iter().flatten().collect()
    }

    /// Closes the batch if it is open, and returns the tasks that are to be sent, with their positions. Tasks for which a part of the store
    /// has [given a final answer](Self::end_part) are left out.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn rest(&self) -> Vec<(usize, &NewTask)> {
        let tasks = self.close().iter().enumerate();
        let callers = lock(&self.callers);
        let is_sent = |(position, _): &(usize, _)| !callers.is_settled(*position);
        tasks.filter(is_sent).collect()
    }

    /// Records the outcome of the part of the store that has the tasks at these positions. Resolves the future of each caller whose tasks
    /// all have a final outcome. A store that calls this for one part calls it for every part. It must not hold a lock.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn end_part(&self, positions: &[usize], stored: &Result<Vec<KeyConflict>, Failure>) {
        let outcomes = lock(&self.callers).end_part(positions, stored);
        outcomes.into_iter().for_each(reply);
    }

    /// Returns the outcome of the tasks for which no part of the store has given a final answer. `stored` is that of the whole request.
    pub(crate) fn outcome_of_rest(
        &self,
        stored: Result<Enqueued, Failure>,
    ) -> Result<Enqueued, Failure> {
        lock(&self.callers).rest(stored)
    }

    /// Resolves the futures of the callers: their tasks are stored. A store may call this before it answers, from the
    /// thread that has committed the tasks, so that the callers need not wait for another thread. It must not hold a
    /// lock.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite-unbundled")),
        allow(dead_code, reason = "other stores report it by their answer")
    )]
    pub fn notify_stored(&self, enqueued: &Enqueued) {
        self.reply(&Ok(enqueued.clone()));
    }

    /// Resolves the futures of the callers with the result of the request, which is not sent again.
    ///
    /// If the request has failed, this also fails the spawn requests that are still in the queue although they were there before the batch
    /// was opened, or for longer than [`STORE_TIMEOUT`]. If a part of the store has stored its tasks, they may wait for longer.
    pub(crate) fn finish(&self, stored: &Result<Enqueued, Failure>) {
        let max_wait = match lock(&self.callers).has_stored() {
            // This part may store those of the queue, too.
            true => MAX_WAIT_FOR_A_PART,
            false => STORE_TIMEOUT,
        };
        let failed = self.end(stored.is_err().then_some(max_wait));
        self.reply(stored);
        if let Err(failure) = stored {
            let failure = failure.clone().without_effect();
            let failed = failed.into_iter();
            failed.for_each(|it| reply((it.reply, Err(failure.clone()))));
        }
    }

    /// Ensures that the batch takes no more tasks. If it has failed, returns the spawn requests that fail with it, which include those that
    /// have waited for longer than `max_wait`.
    fn end(&self, max_wait: Option<Duration>) -> Vec<SpawnRequest> {
        let Some(source) = &self.source else {
            return Vec::new();
        };
        let mut state = lock(&source.queue.state);
        let failed = match max_wait {
            Some(max_wait) => state.take_failed(source, max_wait).collect(),
            None => Vec::new(),
        };
        if state.open == Some(source.batch) {
            state.open = None;
        }
        failed
    }

    fn reply(&self, stored: &Result<Enqueued, Failure>) {
        let outcomes = lock(&self.callers).end(stored);
        outcomes.into_iter().for_each(reply);
    }
}

/// Wakes the caller, unless it has dropped the future. Its waker may panic.
fn reply((reply, stored): (Reply, Result<Enqueued, Failure>)) {
    contain(|| drop(reply.send(stored)));
}

/// Splits tasks into groups that fit into one batch.
pub(crate) fn split(tasks: Vec<NewTask>) -> Vec<Vec<NewTask>> {
    let mut groups: Vec<Vec<NewTask>> = Vec::new();
    for task in tasks {
        match groups.last_mut() {
            Some(group)
                if group.len() < MAX_BATCH_TASKS
                    && bytes_of(group) + task.payload.len() <= MAX_BATCH_BYTES =>
            {
                group.push(task);
            }
            _ => groups.push(vec![task]),
        }
    }
    groups
}

/// A closed batch of these tasks.
impl From<Vec<NewTask>> for WriteBatch {
    fn from(tasks: Vec<NewTask>) -> Self {
        Self {
            tasks: OnceLock::from(tasks),
            source: None,
            callers: Mutex::default(),
        }
    }
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatch").finish_non_exhaustive()
    }
}
