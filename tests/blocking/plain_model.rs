//! A simple model of a pool, without threads and without time.

use std::collections::VecDeque;
use std::sync::Arc;

use throng::blocking::Overflow;

/// The expected state of the pool.
#[derive(Debug)]
pub(crate) struct Model {
    max_threads: usize,
    policy: Policy,
    /// The number of permits.
    permits: usize,
    pub(crate) reserved: usize,
    /// The numbers of tasks.
    pub(crate) queue: VecDeque<usize>,
    pub(crate) running: Vec<usize>,
    pub(crate) threads: usize,
    pub(crate) closed: bool,
    pub(crate) returned: u64,
    pub(crate) panicked: u64,
    pub(crate) cancelled: u64,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Full,
    Closed,
}

impl Model {
    pub(crate) fn new(max_threads: usize, capacity: Option<usize>, policy: Policy) -> Self {
        Self {
            max_threads,
            policy,
            permits: capacity.map_or(usize::MAX, |capacity| max_threads + capacity),
            reserved: 0,
            queue: VecDeque::new(),
            running: Vec::new(),
            threads: 0,
            closed: false,
            returned: 0,
            panicked: 0,
            cancelled: 0,
            accepted: 0,
            rejected: 0,
        }
    }

    /// Acquires a permit, if one is free.
    pub(crate) fn enter(&self) -> Verdict {
        if self.closed {
            Verdict::Closed
        } else if self.inside() < self.permits {
            Verdict::Accepted
        } else {
            Verdict::Full
        }
    }

    pub(crate) fn submit(&mut self, number: usize) -> Verdict {
        let verdict = self.enter();
        match verdict {
            Verdict::Accepted => self.accept(number),
            _ => self.rejected += 1,
        }
        verdict
    }

    /// As `submit`, but applies the policy if no permit is free.
    pub(crate) fn spawn(&mut self, number: usize) -> Fate {
        match (self.submit(number), self.policy) {
            (Verdict::Accepted, _) => Fate::Accepted,
            (Verdict::Closed, _) => Fate::Closed,
            (Verdict::Full, Policy::Reject) => Fate::Rejected,
            (Verdict::Full, Policy::DropNewest) => Fate::Dropped,
            (Verdict::Full, Policy::DropOldest) => match self.queue.pop_front() {
                None => Fate::Rejected,
                Some(oldest) => {
                    self.cancelled += 1;
                    self.accept(number);
                    Fate::InPlaceOf(oldest)
                }
            },
        }
    }

    /// The largest batch whose outcome is determined: while threads start for other tasks, it is open which queued task
    /// is the oldest.
    pub(crate) fn most_at_once(&self) -> usize {
        match self.policy {
            Policy::DropOldest if !self.closed => self.permits - self.inside(),
            _ => usize::MAX,
        }
    }

    fn inside(&self) -> usize {
        self.reserved + self.queue.len() + self.running.len()
    }

    pub(crate) fn submit_reserved(&mut self, number: usize) -> Verdict {
        self.reserved -= 1;
        if self.closed {
            self.rejected += 1;
            return Verdict::Closed;
        }
        self.accept(number);
        Verdict::Accepted
    }

    fn accept(&mut self, number: usize) {
        self.accepted += 1;
        self.queue.push_back(number);
        self.run_queued();
    }

    fn run_queued(&mut self) {
        while self.running.len() < self.max_threads {
            match self.queue.pop_front() {
                Some(number) => self.running.push(number),
                None => break,
            }
        }
        self.threads = self.threads.max(self.running.len());
        if self.closed {
            self.threads = self.running.len();
        }
    }

    /// Returns `true` if the task had not started. Then its permit is released at once.
    pub(crate) fn abort(&mut self, number: usize) -> bool {
        let before = self.queue.len();
        self.queue.retain(|queued| *queued != number);
        let came_in_time = self.queue.len() < before;
        self.cancelled += u64::from(came_in_time);
        came_in_time
    }

    pub(crate) fn end(&mut self, number: usize, ending: Ending) {
        self.running.retain(|running| *running != number);
        match ending {
            Ending::Return => self.returned += 1,
            Ending::Panic => self.panicked += 1,
        }
        self.run_queued();
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.run_queued();
    }
}

/// What happens to a task without a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Reject,
    DropNewest,
    DropOldest,
}

impl Policy {
    pub(crate) fn overflow(self) -> Overflow {
        match self {
            Self::Reject => Overflow::Reject,
            Self::DropNewest => Overflow::Custom(Arc::new(drop)),
            Self::DropOldest => Overflow::DropOldest,
        }
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Accepted,
    /// It was accepted, and the task of this number was dropped for it.
    InPlaceOf(usize),
    Dropped,
    Rejected,
    Closed,
}

/// How a task ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Return,
    Panic,
}
