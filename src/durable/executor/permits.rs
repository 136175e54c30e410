//! [`Permits`]: counts the runs of a worker, and grants permits to them.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use crate::durable::TaskId;
use crate::durable::store::Epoch;

/// The numbers of runs of a worker, and their requests for permits. The queues are numbered in the order in which the
/// worker serves them.
pub(crate) struct Permits {
    /// The number of permits.
    limit: usize,
    queues: Vec<QueuePermits>,
    /// The number of the last request.
    last_request: u64,
}

/// The runs of one queue.
struct QueuePermits {
    /// The maximum number of permits that runs of this queue can have at once.
    limit: usize,
    /// The number of runs in each [`Phase`].
    runs: [usize; 3],
    requests: BTreeMap<RequestKey, PermitRequest>,
}

/// The order of the requests: first those of runs that resume (`false`), then those of runs that start (`true`), each by number.
type RequestKey = (bool, u64);

/// A request of a run for a permit.
pub(crate) struct PermitRequest {
    pub(crate) epoch: Epoch,
    pub(crate) id: TaskId,
    pub(crate) grant: oneshot::Sender<()>,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has a permit.
    Running,
    /// It awaits durable handles, and needs no permit.
    Suspended,
    /// It needs a permit to start or to resume.
    Ready,
}

impl Permits {
    /// Returns this number of permits, shared by queues that have these limits.
    pub(crate) fn new(limit: usize, queues: impl IntoIterator<Item = usize>) -> Self {
        let queues = queues.into_iter().map(|queue_limit| QueuePermits {
            limit: queue_limit.min(limit),
            runs: [0; 3],
            requests: BTreeMap::new(),
        });
        Self {
            limit,
            queues: queues.collect(),
            last_request: 0,
        }
    }

    /// Returns the number of runs.
    pub(crate) fn held(&self) -> usize {
        self.queues.iter().flat_map(|queue| queue.runs).sum()
    }

    /// Returns the number of runs in a phase.
    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.queues.iter().map(|queue| queue.count(phase)).sum()
    }

    /// Returns the maximum number of permits that runs of a queue can have at once.
    pub(crate) fn limit(&self, queue: usize) -> usize {
        self.queues[queue].limit
    }

    /// Returns the number of permits that runs have or wait for. For each queue, at most its limit counts.
    pub(crate) fn used(&self) -> usize {
        let queues = self.queues.iter();
        queues.map(|queue| queue.active().min(queue.limit)).sum()
    }

    /// Returns how many more runs of a queue could have permits if there were no other limit than that of the queue.
    pub(crate) fn room(&self, queue: usize) -> usize {
        let queue = &self.queues[queue];
        queue.limit.saturating_sub(queue.active())
    }

    /// Returns `true` if a run of a queue can have a permit now.
    pub(crate) fn is_free(&self, queue: usize) -> bool {
        self.count(Phase::Running) < self.limit && self.queues[queue].is_free()
    }

    pub(crate) fn add(&mut self, queue: usize, phase: Phase) {
        self.queues[queue].runs[phase as usize] += 1;
    }

    pub(crate) fn remove(&mut self, queue: usize, phase: Phase) {
        self.queues[queue].runs[phase as usize] -= 1;
    }

    /// Adds a request of a run that is to start or to resume.
    pub(crate) fn request(&mut self, queue: usize, is_start: bool, request: PermitRequest) {
        self.last_request += 1;
        let key = (is_start, self.last_request);
        self.queues[queue].requests.insert(key, request);
    }

    /// Removes and returns the first request that can be granted now. Runs that resume go before runs that start.
    pub(crate) fn next_request(&mut self) -> Option<PermitRequest> {
        if self.count(Phase::Running) >= self.limit {
            return None;
        }
        let free = self.queues.iter_mut().filter(|queue| queue.is_free());
        let requests = free.filter_map(|queue| queue.requests.first_entry());
        let first = requests.min_by_key(|request| *request.key());
        first.map(|request| request.remove())
    }
}

impl QueuePermits {
    fn count(&self, phase: Phase) -> usize {
        self.runs[phase as usize]
    }

    /// Returns the number of runs that have or need a permit.
    fn active(&self) -> usize {
        self.count(Phase::Running) + self.count(Phase::Ready)
    }

    fn is_free(&self) -> bool {
        self.count(Phase::Running) < self.limit
    }
}
