//! An executor with a bound: places that are taken before the job.

use std::fmt;

use super::SerialExecutor;
use super::core::Owner;
use super::queue::Level;
use super::submit::{Place, Plain, not_entered};
use crate::join::{JoinHandle, TrySpawnError, prepare_to_wait};
use crate::semaphore::TryAcquireError;

/// A place in the queue for one job: see [`SerialExecutor::reserve`]. Dropping it gives the place back.
#[must_use = "dropping a permit gives its place back"]
pub struct Permit<'a, S> {
    executor: &'a SerialExecutor<S>,
    /// `None`: there is no bound.
    place: Option<Place>,
}

impl<S: Send + 'static> SerialExecutor<S> {
    /// As [`submit`](Self::submit), and gives the job back if it is refused.
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) if the executor has a [`capacity`](super::Builder::capacity), is busy,
    /// and has no room; [`is_closed`](TrySpawnError::is_closed) or [`is_poisoned`](TrySpawnError::is_poisoned) if it is.
    pub fn try_submit<F, R>(&self, job: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        let inline = self.core.options.inline;
        let queued = match inline.then(|| Owner::acquire(&self.core)) {
            None => self.post_at(Level::NORMAL, Plain(job)),
            Some(Ok(owner)) => return Ok(self.run_acquired(owner, Level::NORMAL, Plain(job))),
            Some(Err(seen)) => self.queue(Level::NORMAL, Plain(job), seen),
        };
        let watch = queued.map_err(|error| error.map(|Plain(job)| job))?;
        Ok(self.handle(Ok(watch)))
    }

    /// Waits until there is room for a job in the queue, and keeps the place for the caller:
    /// back-pressure that blocks no thread. Without a [`capacity`](super::Builder::capacity) there always
    /// is, and for a job that asks its own executor.
    ///
    /// Those who wait are woken in the order in which they came, but a place is not granted before
    /// it is taken: one who comes just then may be faster. Who has lost twice is handed the next one.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) if the executor is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has taken no place, and loses its turn. One that is kept without being polled
    /// may hold up others that wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let log = SerialExecutor::builder().capacity(100).build(Vec::new());
    /// for line in 0..1_000 {
    ///     // Goes on when fewer than a hundred lines wait.
    ///     drop(log.reserve().await?.submit(move |log| log.push(line)));
    /// }
    /// assert_eq!(log.into_inner().await?.len(), 1_000);
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, S>, TrySpawnError<()>> {
        let place = match &self.core.room {
            None if self.is_closed() => return Err(TrySpawnError::closed(())),
            None => None,
            Some(room) => {
                let must_not_wait = || prepare_to_wait(self.core.name()).is_err();
                let entered = match Place::enter(room, must_not_wait) {
                    Err(TryAcquireError::Full) => Place::wait(room).await,
                    entered => entered,
                };
                Some(entered.map_err(|no_room| not_entered((), no_room))?)
            }
        };
        Ok(Permit {
            executor: self,
            place,
        })
    }
}

impl<S: Send + 'static> Permit<'_, S> {
    /// Runs a job, at once or when the jobs before it are done, as
    /// [`submit`](SerialExecutor::submit) does. A job that runs at once needs no place, and gives it back
    /// before it runs.
    ///
    /// # Errors
    ///
    /// As [`submit`](SerialExecutor::submit), but the queue is never full.
    pub fn submit<F, R>(self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        let Self { executor, place } = self;
        let job = Plain(job);
        let core = &executor.core;
        if core.options.inline
            && let Ok(owner) = Owner::acquire(core)
        {
            drop(place);
            return executor.run_acquired(owner, Level::NORMAL, job);
        }
        let queued = match place {
            Some(place) if core.options.inline => executor.push(Level::NORMAL, job, place),
            None if core.options.inline => executor.push(Level::NORMAL, job, ()),
            place => executor.post_in(Level::NORMAL, job, place),
        };
        executor.handle(queued.map_err(TrySpawnError::drop_task))
    }
}

impl<S> fmt::Debug for Permit<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
