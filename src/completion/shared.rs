//! What the two ends of a stream share: the outlet, the bounds, and who polls futures for the first time.

use std::fmt::{self, DebugStruct};
use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{self, Handle};

use super::runners::Runners;
use crate::join::{Entry, Finished, Id, Moved, Outlet, RunContext, Slot, Work, Wrapped};
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::{Arc, Number};
use crate::task::{Abort, Job, Task};

/// What the two ends of a stream share.
pub(super) struct Shared<T, K> {
    pub(super) outlet: Arc<Outlet<T, K>>,
    /// Counts the jobs that have not been read, and the places of those that are being submitted.
    outstanding: Semaphore,
    /// How many jobs have been read and are not settled. Only the reader changes it.
    read: Number,
    /// How many jobs that have not been read were tried more than once.
    retried: Number,
    /// Whether futures are polled once where they are submitted.
    pub(super) in_place: bool,
    /// Those of the first runtime that a future was submitted on.
    runners: OnceLock<(runtime::Id, Arc<Runners>)>,
}

impl<T, K> Shared<T, K> {
    pub(super) fn new(max_running: usize, max_outstanding: usize, kept: usize) -> Self {
        Self {
            outlet: Arc::new(Outlet::new(max_running, kept)),
            outstanding: Semaphore::new(max_outstanding),
            read: Number::new(0),
            retried: Number::new(0),
            in_place: false,
            runners: OnceLock::new(),
        }
    }

    pub(super) fn polling_in_place(self, in_place: bool) -> Self {
        Self { in_place, ..self }
    }

    /// Accepts no job from now on.
    pub(super) fn close(&self) {
        self.outlet.jobs().close();
        self.outstanding.close();
        self.outlet.running.close();
        // The reader may be waiting for a job that now cannot come.
        self.outlet.wake_reader();
    }

    /// How many jobs are not settled, and whether that is all that will come.
    pub(super) fn len(&self) -> (usize, bool) {
        let jobs = self.outlet.jobs();
        (jobs.len(), jobs.is_closed())
    }

    /// A job was read: its place is free. Says how often it was tried.
    pub(super) fn read(&self, finished: &Finished<T, K>) -> u32 {
        self.free_place();
        // The number is seen that its job has left, or a later one.
        if self.retried.get() == 0 {
            return 1;
        }
        let attempts = self.outlet.jobs().take_attempts(finished.key());
        if attempts.is_some() {
            self.retried.subtract(1);
        }
        attempts.unwrap_or(1)
    }

    /// A job was read whose completion was not in its cell any more: its place is free.
    pub(super) fn read_moved(&self, moved: &Moved<T, K>) {
        self.free_place();
        if moved.attempts > 1 {
            self.retried.subtract(1);
        }
    }

    fn free_place(&self) {
        // First, so that whoever gets the place does not see more jobs in flight than there are places.
        self.read.add_own(1);
        self.outstanding.release();
    }

    /// Forgets the jobs that were read.
    pub(super) fn settle(&self, keys: impl Iterator<Item = usize>, moved: usize) {
        let mut jobs = self.outlet.jobs();
        jobs.settle(keys, moved);
        // Under the lock: who counts what is in flight sees both, or neither.
        self.read.set(0);
    }

    /// How many jobs were accepted and not read.
    pub(super) fn in_flight(&self) -> usize {
        let jobs = self.outlet.jobs();
        jobs.len().saturating_sub(self.read.get())
    }

    /// How many jobs have finished and were not read, about: others may be on their way in or out.
    pub(super) fn ready(&self) -> usize {
        let running = self.outlet.running.count();
        self.in_flight().saturating_sub(running)
    }

    /// Aborts a job; `false`: it is not outstanding, or it has finished.
    pub(super) fn abort(&self, id: Id) -> bool {
        let abort = self.outlet.jobs().abort_of(id);
        abort.is_some_and(|abort| abort_one(&abort))
    }

    /// Aborts all jobs; returns how many of them had not finished.
    pub(super) fn abort_all(&self) -> usize {
        let all: Vec<_> = self.outlet.jobs().aborts().collect();
        all.iter().filter(|abort| abort_one(abort)).count()
    }

    /// A job is tried for the `attempts`th time.
    pub(super) fn note_attempts(&self, key: usize, attempts: u32) {
        if self.outlet.jobs().note_attempts(key, attempts) {
            self.retried.add(1);
        }
    }

    /// The reader goes: jobs are aborted, and what arrives is dropped.
    pub(super) fn abandon(&self) {
        for abort in self.forsake() {
            abort.abort();
        }
    }

    /// The reader, who has settled what was read, goes: what arrives is dropped. Returns the means to abort
    /// what is outstanding.
    pub(super) fn forsake(&self) -> impl Iterator<Item = Abort> + use<T, K> {
        self.close();
        self.outlet.seal();
        let (aborts, backlog) = self.outlet.jobs().forsake();
        drop(backlog);
        aborts
    }

    /// Runs a future on a runtime: by its runners, or, if the stream has those of another one, as a task of
    /// its own.
    pub(super) fn run(&self, runtime: &Handle, work: Work) {
        let (id, runners) = self.runners.get_or_init(|| {
            let workers = runtime.metrics().num_workers();
            let runners = Runners::new(Box::new(runtime.clone()), workers);
            (runtime.id(), runners)
        });
        match work.into_task() {
            Ok(task) if *id == runtime.id() => Runners::submit(runners, task),
            Ok(task) => drop(runtime.spawn(Work::new(task))),
            Err(started) => drop(runtime.spawn(started)),
        }
    }

    pub(super) fn fmt_fields(&self, f: &mut DebugStruct<'_, '_>) -> fmt::Result {
        let (_, closed) = self.len();
        f.field("running", &self.outlet.running.count())
            .field("outstanding", &self.in_flight())
            .field("closed", &closed)
            .finish()
    }

    /// Takes a place within both bounds, if there is one.
    pub(super) fn try_place(&self) -> Result<Place<'_, T, K>, TryAcquireError> {
        self.outstanding.try_acquire()?;
        let mut place = Place {
            shared: self,
            running: false,
        };
        self.outlet.running.try_acquire()?;
        place.running = true;
        Ok(place)
    }

    /// Takes a place within both bounds, as soon as there is one.
    pub(super) async fn place(&self) -> Result<Place<'_, T, K>, TryAcquireError> {
        match self.try_place() {
            // What was there of it has been given back: who waits does so in the order of the bounds.
            Err(TryAcquireError::Full) => self.wait_for_place().await,
            other => other,
        }
    }

    async fn wait_for_place(&self) -> Result<Place<'_, T, K>, TryAcquireError> {
        self.outstanding.acquire().await?;
        let mut place = Place {
            shared: self,
            running: false,
        };
        self.outlet.running.acquire().await?;
        place.running = true;
        Ok(place)
    }
}

/// Aborts a job; `false`: it has finished.
fn abort_one(abort: &Abort) -> bool {
    let finished = abort.is_complete();
    if !finished {
        abort.abort();
    }
    !finished
}

/// A job that was accepted, for who runs it.
pub(super) type Accepted = (Id, Task<RunContext>);

/// A place for one job. Dropping it gives the place back.
pub(super) struct Place<'a, T, K> {
    shared: &'a Shared<T, K>,
    /// Whether the place among the running is taken too.
    running: bool,
}

impl<'a, T: Send + 'static, K: Send + 'static> Place<'a, T, K> {
    pub(super) fn shared(&self) -> &'a Shared<T, K> {
        self.shared
    }

    /// Puts a job into the place; hands it back if the stream was closed meanwhile.
    pub(super) fn job<J>(self, tag: K, job: J) -> Result<Accepted, (K, J)>
    where
        J: Job<RunContext, Output = T>,
    {
        self.fill(tag, job, |entry, job| {
            let id = entry.id();
            let (task, abort) = entry.job(job);
            ((id, task), abort)
        })
    }

    /// Puts a future into the place that the caller runs.
    pub(super) fn wrap<F>(self, tag: K, future: F) -> Result<Wrapped<F, K>, (K, F)>
    where
        F: Future<Output = T>,
    {
        self.wrap_of(tag, future, |future, _, _| future)
    }

    /// The same with a future that knows its name, and the key under which the shared knows it.
    pub(super) fn wrap_of<P, F>(
        self,
        tag: K,
        parts: P,
        make: impl FnOnce(P, Id, usize) -> F,
    ) -> Result<Wrapped<F, K>, (K, P)>
    where
        F: Future<Output = T>,
    {
        self.fill(tag, parts, |entry, parts| {
            let future = make(parts, entry.id(), entry.key());
            Wrapped::new(entry, future)
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
        let outlet = &self.shared.outlet;
        let mut jobs = outlet.jobs();
        if jobs.is_closed() {
            return Err((tag, job));
        }
        let made = jobs.accept(outlet, tag, |entry| make(entry, job));
        // The job has the place now, and gives it back when it completes and when it is read.
        std::mem::forget(self);
        Ok(made)
    }
}

impl<T, K> Drop for Place<'_, T, K> {
    fn drop(&mut self) {
        if self.running {
            self.shared.outlet.running.release();
        }
        self.shared.outstanding.release();
    }
}
