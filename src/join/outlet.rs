//! Where completions arrive.

use std::task::Waker;

use super::backlog::Backlog;
use super::jobs::Jobs;
use super::slot::Finished;
use crate::inbox::{Batch, FifoList, Inbox, Tags};
use crate::semaphore::Semaphore;
use crate::sync::{Mutex, MutexGuard, Number, lock};
use crate::waker::WakerCell;

/// Where the completions of a stream arrive: an inbox, its reader's waker, the bound on what runs, and what is
/// known of the jobs.
///
/// A completion stays in its cell until it is read, which costs nobody anything, but for the memory: a cell is
/// several times as large as what most jobs return. So where many have arrived, and the reader does not come,
/// one of those who deliver moves them all into the [backlog](Backlog).
pub(crate) struct Outlet<T, K> {
    inbox: Inbox<Finished<T, K>>,
    reader: WakerCell,
    /// Counts the jobs that have not completed.
    pub(crate) running: Semaphore,
    jobs: Mutex<Jobs<T, K>>,
    /// How many completions stay in their cells, at least, however long they are not read.
    kept: usize,
    /// How many have arrived under keys that are so large.
    late: Number,
}

/// In the inbox's head: the reader is gone, and what arrives is dropped. Never cleared.
const SEALED: Tags = Tags::bit(0);
/// In the inbox's head: the reader has left its waker. Set by the reader, cleared by the completion that
/// wakes it.
const PARKED: Tags = Tags::bit(1);
/// In the inbox's head: something is in the backlog, which is older than what is in the inbox. Set by who moves
/// it there, cleared by the reader, both under the lock.
const MOVED: Tags = Tags::bit(2);

/// Of so many that have arrived late, one looks whether there are many.
const EACH: usize = 256;

impl<T, K> Outlet<T, K> {
    pub(crate) fn new(max_running: usize, kept: usize) -> Self {
        Self {
            inbox: Inbox::new(),
            reader: WakerCell::new(),
            running: Semaphore::new(max_running),
            jobs: Mutex::new(Jobs::new()),
            kept,
            late: Number::new(0),
        }
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs<T, K>> {
        lock(&self.jobs)
    }

    /// Everything that has arrived, in the order in which it did. If some of it was moved out of its cells,
    /// that is older, and is put into `backlog`, in which there is nothing.
    #[inline]
    pub(crate) fn take(&self, backlog: &mut Backlog<T, K>) -> FifoList<Finished<T, K>> {
        match self.inbox.take_unless(MOVED) {
            Some(arrived) => arrived,
            None => self.take_moved(backlog),
        }
    }

    /// Under the lock nothing is moved: what is in the inbox then is younger than what is in the backlog.
    #[cold]
    fn take_moved(&self, backlog: &mut Backlog<T, K>) -> FifoList<Finished<T, K>> {
        let mut jobs = self.jobs();
        self.inbox.retag(Tags::NONE, MOVED);
        *backlog = jobs.take_backlog();
        self.inbox.take()
    }

    /// Has `waker` woken by the next completion; `false`: there is one, and it may wake nobody.
    pub(crate) fn park(&self, waker: &Waker) -> bool {
        self.reader.register(waker);
        let seen = self.inbox.retag(PARKED, Tags::NONE);
        seen.empty && !seen.tags.has(MOVED)
    }

    /// Wakes the reader: something other than a completion is to be seen.
    pub(crate) fn wake_reader(&self) {
        self.reader.wake();
    }

    /// The reader goes: what has arrived, and what will, is dropped; but not what is in the backlog.
    pub(crate) fn seal(&self) {
        self.inbox.retag(SEALED, Tags::NONE);
        drop(self.inbox.take());
        self.reader.clear();
    }

    /// Puts a completion into the inbox. It learns by the same operation whether the reader waits: so
    /// only the first completion after the reader has parked has to wake it.
    pub(super) fn arrive(&self, finished: Finished<T, K>) {
        self.running.release();
        let key = finished.key();
        let pushed = self.inbox.push(Batch::of(finished), |seen| {
            (!seen.tags.has(SEALED)).then_some(seen.tags.without(PARKED))
        });
        match pushed {
            Ok(seen) if seen.tags.has(PARKED) => self.wake_reader(),
            // There are no keys so large where never as much was outstanding at a time.
            Ok(_) if key >= self.kept => self.arrive_late(),
            Ok(_) => {}
            Err(refused) => drop(refused),
        }
    }

    /// Moves what has arrived out of its cells, if it is much; few of those who come look.
    #[cold]
    fn arrive_late(&self) {
        if !self.late.add(1).is_multiple_of(EACH.min(self.kept)) {
            return;
        }
        let mut jobs = self.jobs();
        if jobs.in_cells().saturating_sub(self.running.count()) < self.kept {
            return;
        }
        // Before anything is moved: from here on the reader comes for the lock first, and so cannot take what
        // is younger before what is moved.
        self.inbox.retag(MOVED, Tags::NONE);
        let (mut arrived, len) = self.inbox.detach().take_newest(usize::MAX);
        jobs.exit_pool(len, std::iter::from_fn(|| arrived.pop_front()));
    }
}
