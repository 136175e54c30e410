//! The end of a stream where jobs go in.

use std::fmt;
use std::future::Future;

use tokio::runtime::Handle;

use super::shared::{Place, Shared};
use super::start::{start, start_on};
use crate::join::{Id, Slot, Spawn, TrySpawnError, Work, Wrapped};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;
use crate::task::Thunk;

/// Submits jobs to a [`CompletionStream`](super::CompletionStream), also while it is read.
///
/// It is cheap to clone. When the last clone is dropped, or [`close`](Self::close) was called, the
/// stream ends as soon as everything has been read.
///
/// Every job that is accepted yields exactly one item, whatever happens to it.
///
/// | job | by |
/// | --- | --- |
/// | a future, on the current Tokio runtime, or on another one | [`submit`](Self::submit), [`submit_on`](Self::submit_on) |
/// | one that is tried again when it fails | [`submit_retry`](Self::submit_retry) |
/// | one that cannot be sent to another thread, or runs on something else than Tokio | [`wrap`](Self::wrap) |
/// | a closure, on a [`BlockingPool`](crate::BlockingPool), a [`ComputePool`](crate::ComputePool), or a runtime's blocking threads | [`submit_blocking`](Self::submit_blocking) |
/// | a job on a [`SerialExecutor`](crate::SerialExecutor), or another task that has a handle of this crate | [`slot`](Self::slot) and [`JoinHandle::complete`](crate::JoinHandle::complete) |
/// | a durable task | [`slot`](Self::slot) and `DurableHandle::complete` |
/// | what a thread, a callback or another library does | [`slot`](Self::slot) |
pub struct Submitter<T, K = ()> {
    handle: Arc<Open<T, K>>,
}

/// What the clones of a submitter share: the last of them closes the stream.
struct Open<T, K>(Arc<Shared<T, K>>);

impl<T: Send + 'static, K: Send + 'static> Submitter<T, K> {
    pub(super) fn new(shared: Arc<Shared<T, K>>) -> Self {
        Self {
            handle: Arc::new(Open(shared)),
        }
    }

    /// Waits for room, and runs a future on the current Tokio runtime.
    ///
    /// A task of Tokio's costs more than many futures do. So not every job gets one. That of a large future
    /// does; but the task of one that, with tag and result, has room in a cell of 128 bytes, and is ready at
    /// its first poll, goes on with others of that kind that were submitted meanwhile, and only what is then
    /// pending becomes a task of its own. What is ready by then costs a fraction. There are about as many
    /// such tasks as the runtime has workers, at most. That differs from `tokio::spawn` in this:
    ///
    /// - [`tokio::task::id`] is, until the future waits for the first time, that of the task that polls it.
    /// - It may be polled for the second time without having been woken, which every future must bear.
    /// - If it computes for long before it first waits, or blocks its thread, those that were submitted after
    ///   it are taken over by other tasks, which may take some milliseconds if none did so before.
    ///
    /// If there is no runtime, or it has been shut down, the item says so:
    /// [`is_rejected`](crate::JoinError::is_rejected),
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// The builder's [`poll_in_place`](super::Builder::poll_in_place) polls it once before.
    ///
    /// Do not await this in the task that reads the stream: when there is no room, that task would
    /// wait for itself.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and future, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted, and is dropped. One that
    /// is kept without being polled may hold up others that wait for room.
    pub async fn submit<F>(&self, tag: K, future: F) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.shared().tick().await;
        match self.place().await {
            Some(place) => start(place, tag, future),
            None => Err(TrySpawnError::closed((tag, future))),
        }
    }

    /// Runs a future on the current Tokio runtime, if there is room now.
    ///
    /// As [`submit`](Self::submit), otherwise. For the task that reads the stream, which must not wait for
    /// room; see also [`next_or_submit`](super::CompletionStream::next_or_submit).
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) or [`is_closed`](TrySpawnError::is_closed), with tag and future.
    pub fn try_submit<F>(&self, tag: K, future: F) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        match self.shared().try_place() {
            Ok(place) => start(place, tag, future),
            Err(no_room) => Err(refused(no_room, (tag, future))),
        }
    }

    /// Waits for room, and runs a future on this Tokio runtime, whichever is the current one.
    ///
    /// As [`submit`](Self::submit), otherwise; but of futures on any other runtime than that of the first, each
    /// is a task of its own.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and future, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// As that of [`submit`](Self::submit).
    pub async fn submit_on<F>(
        &self,
        runtime: &Handle,
        tag: K,
        future: F,
    ) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        match self.place().await {
            Some(place) => start_on(place, runtime, tag, future),
            None => Err(TrySpawnError::closed((tag, future))),
        }
    }

    /// Waits for room, and makes a job of a future that the caller runs, where it likes.
    ///
    /// It is the way in for futures that cannot be sent to another thread, on a
    /// [`LocalSet`](tokio::task::LocalSet), and for executors other than Tokio's. Panics are items and
    /// [`abort`](Self::abort) works, as with futures that are [submitted](Self::submit). There is no method
    /// that spawns it on a `LocalSet`: that can be done in two ways, one of which panics outside of such a
    /// set, and other executors have others.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and future, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// As that of [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// use throng::CompletionStream;
    /// use tokio::task::LocalSet;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build();
    /// let local = LocalSet::new();
    /// let name = Rc::new("not Send");
    /// let job = jobs.wrap("a tag", async move {
    ///     tokio::task::yield_now().await;
    ///     name.len()
    /// });
    /// if let Ok(job) = job.await {
    ///     local.spawn_local(job);
    /// }
    ///
    /// let completed = local.run_until(done.next()).await.expect("one is outstanding");
    /// assert_eq!(completed.outcome?, 8);
    /// # Ok(()) }
    /// ```
    pub async fn wrap<F>(&self, tag: K, future: F) -> Result<Wrapped<F, K>, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T>,
    {
        match self.place().await {
            Some(place) => place.wrap(tag, future).map_err(TrySpawnError::closed),
            None => Err(TrySpawnError::closed((tag, future))),
        }
    }

    /// Waits for room, and runs a closure that may block on a pool, or on a runtime's blocking
    /// threads.
    ///
    /// The room is this stream's. A pool that is itself bounded and full, or closed, does not accept
    /// the closure; the item then says [`is_rejected`](crate::JoinError::is_rejected).
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and closure, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted, and is dropped. One that
    /// is kept without being polled may hold up others that wait for room.
    pub async fn submit_blocking<F>(
        &self,
        pool: &impl Spawn,
        tag: K,
        f: F,
    ) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let Some(place) = self.place().await else {
            return Err(TrySpawnError::closed((tag, f)));
        };
        let (id, task) = place
            .job(tag, Thunk(f))
            .map_err(|(tag, Thunk(f))| TrySpawnError::closed((tag, f)))?;
        run_on(pool, Work::new(task));
        Ok(id)
    }

    /// Waits for room, and promises a completion that comes from anywhere else: see [`Slot`].
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with the tag, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was promised. One that is kept without
    /// being polled may hold up others that wait for room.
    pub async fn slot(&self, tag: K) -> Result<Slot<T, K>, TrySpawnError<K>> {
        match self.place().await {
            Some(place) => place.slot(tag).map_err(TrySpawnError::closed),
            None => Err(TrySpawnError::closed(tag)),
        }
    }

    /// Promises a completion that comes from anywhere else, if there is room now: see [`Slot`].
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) or [`is_closed`](TrySpawnError::is_closed), with the tag.
    pub fn try_slot(&self, tag: K) -> Result<Slot<T, K>, TrySpawnError<K>> {
        match self.shared().try_place() {
            Ok(place) => place.slot(tag).map_err(TrySpawnError::closed),
            Err(no_room) => Err(refused(no_room, tag)),
        }
    }

    /// Aborts a job; `false`: it has finished, or there is none of this name.
    ///
    /// A future is dropped, soon, by who runs it, and not polled before. A closure that has not started is
    /// dropped at once; one that has runs to its end, and its item says how it ended, not that it was
    /// aborted. Who holds a [`Slot`] is [told](Slot::aborted). The item of a job that was ended says
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// It looks for the job among all that are outstanding, which may take a microsecond for some hundreds
    /// of them, and meanwhile holds up those who submit and who read.
    pub fn abort(&self, id: Id) -> bool {
        self.shared().abort(id)
    }

    /// Aborts all jobs that are outstanding, and returns how many of them had not finished. Their items
    /// come; the stream stays open.
    pub fn abort_all(&self) -> usize {
        self.shared().abort_all()
    }

    /// Accepts no job from now on, from any clone. The stream ends when everything has been read.
    ///
    /// Those who wait for room are refused. What was accepted goes on, also what will be tried again.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Whether no job is accepted any more: the stream was closed or dropped.
    pub fn is_closed(&self) -> bool {
        self.shared().len().1
    }

    /// How many jobs were accepted and not read.
    pub fn in_flight(&self) -> usize {
        self.shared().in_flight()
    }

    /// How many jobs have finished and were not read. While others submit and complete, it is about so many.
    pub fn ready(&self) -> usize {
        self.shared().ready()
    }

    pub(super) async fn place(&self) -> Option<Place<'_, T, K>> {
        self.shared().place().await.ok()
    }

    pub(super) fn shared(&self) -> &Arc<Shared<T, K>> {
        &self.handle.0
    }
}

impl<T, K> Clone for Submitter<T, K> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
        }
    }
}

impl<T, K> fmt::Debug for Submitter<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.0.fmt_fields(&mut f.debug_struct("Submitter"))
    }
}

impl<T, K> Drop for Open<T, K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn refused<R>(no_room: TryAcquireError, job: R) -> TrySpawnError<R> {
    match no_room {
        TryAcquireError::Full => TrySpawnError::full(job),
        TryAcquireError::Closed => TrySpawnError::closed(job),
    }
}

fn run_on(spawn: &impl Spawn, work: Work) {
    if let Err(work) = spawn.spawn_work(work) {
        work.reject("the pool did not accept the job: it is full, closed, or has no thread");
    }
}
