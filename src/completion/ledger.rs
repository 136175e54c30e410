//! What the two ends of a stream share: the outlet, the bounds, and which jobs are outstanding.

use std::fmt::{self, DebugStruct};

use slab::Slab;

use crate::join::{Entry, Finished, Id, Outlet, Seat, Slot};
use crate::room::{NoRoom, Room};
use crate::sync::{Arc, Mutex, lock};
use crate::task::{Abort, Job, Task};

/// What the two ends of a stream share.
pub(super) struct Ledger<T, K> {
    pub(super) outlet: Arc<Outlet<T, K>>,
    /// Counts the jobs that have not been read, and the places of those that are being submitted.
    outstanding: Room,
    jobs: Mutex<Jobs>,
}

/// The jobs that were accepted and have not been read.
#[derive(Default)]
struct Jobs {
    /// How to abort each of them.
    outstanding: Slab<Abort>,
    /// No other is accepted.
    closed: bool,
}

impl<T, K> Ledger<T, K> {
    pub(super) fn new(max_running: usize, max_outstanding: usize) -> Self {
        Self {
            outlet: Arc::new(Outlet::new(max_running)),
            outstanding: Room::new(max_outstanding),
            jobs: Mutex::new(Jobs::default()),
        }
    }

    /// Accepts no job from now on.
    pub(super) fn close(&self) {
        lock(&self.jobs).closed = true;
        self.outstanding.close();
        self.outlet.running.close();
        // The reader may be waiting for a job that now cannot come.
        self.outlet.wake_reader();
    }

    /// How many jobs are outstanding, and whether that is all that will come.
    pub(super) fn len(&self) -> (usize, bool) {
        let jobs = lock(&self.jobs);
        (jobs.outstanding.len(), jobs.closed)
    }

    /// A job was read: it cannot be aborted any more, and its place is free.
    pub(super) fn settle(&self, finished: &Finished<T, K>) {
        let abort = lock(&self.jobs).outstanding.try_remove(finished.key());
        // Outside of the lock: it may be the last reference to the cell.
        drop(abort);
        self.outstanding.leave();
    }

    /// The reader goes: jobs are aborted, and what arrives is dropped.
    pub(super) fn abandon(&self) {
        self.close();
        self.outlet.seal();
        let jobs = std::mem::take(&mut lock(&self.jobs).outstanding);
        for (_, abort) in jobs {
            abort.abort();
        }
    }

    pub(super) fn fmt_fields(&self, f: &mut DebugStruct<'_, '_>) -> fmt::Result {
        let (outstanding, closed) = self.len();
        f.field("running", &self.outlet.running.count())
            .field("outstanding", &outstanding)
            .field("closed", &closed)
            .finish()
    }

    /// Waits for a place within both bounds.
    pub(super) async fn place(&self) -> Result<Place<'_, T, K>, NoRoom> {
        self.outstanding.enter().await?;
        let mut place = Place {
            ledger: self,
            running: false,
        };
        self.outlet.running.enter().await?;
        place.running = true;
        Ok(place)
    }
}

/// A place for one job. Dropping it gives the place back.
pub(super) struct Place<'a, T, K> {
    ledger: &'a Ledger<T, K>,
    /// Whether the place among the running is taken too.
    running: bool,
}

impl<T: Send + 'static, K: Send + 'static> Place<'_, T, K> {
    /// Puts a job into the place; hands it back if the stream was closed meanwhile.
    pub(super) fn job<J>(self, tag: K, job: J) -> Result<(Id, Task<Seat>), (K, J)>
    where
        J: Job<Seat, Output = T>,
    {
        self.fill(tag, job, |entry, job| {
            let id = entry.id();
            let task = entry.job(job);
            let abort = task.abort_ref();
            ((id, task), abort)
        })
    }

    /// Puts the promise of a completion into the place.
    pub(super) fn slot(self, tag: K) -> Result<Slot<T, K>, K> {
        self.fill(tag, (), |entry, ()| Slot::new(entry))
            .map_err(|(tag, ())| tag)
    }

    fn fill<J, R>(
        self,
        tag: K,
        job: J,
        make: impl FnOnce(Entry<T, K>, J) -> (R, Abort),
    ) -> Result<R, (K, J)> {
        let mut jobs = lock(&self.ledger.jobs);
        if jobs.closed {
            return Err((tag, job));
        }
        let vacant = jobs.outstanding.vacant_entry();
        let entry = Entry::new(Arc::clone(&self.ledger.outlet), tag, vacant.key());
        let (made, abort) = make(entry, job);
        vacant.insert(abort);
        // The job has the place now, and gives it back when it completes and when it is read.
        std::mem::forget(self);
        Ok(made)
    }
}

impl<T, K> Drop for Place<'_, T, K> {
    fn drop(&mut self) {
        if self.running {
            self.ledger.outlet.running.leave();
        }
        self.ledger.outstanding.leave();
    }
}
