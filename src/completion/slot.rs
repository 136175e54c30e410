//! [`Slot`]: the promise of exactly one completion.

use std::fmt;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::task::{Context, Poll};

use super::queue::QueueEntry;
use crate::join::Id;
use crate::task::{Abort, Fault, Outcome, Promise};
use crate::unwind::contain;

/// The promise of exactly one completion in a [`CompletionStream`](crate::CompletionStream).
///
/// A slot brings work into a stream that is neither a future nor a closure of this crate: that of another thread, a
/// callback, or a foreign runtime. The stream yields exactly one item for each slot: the value that the slot was
/// [completed](Self::complete) with, or an error if the slot is dropped. The error is
/// [`is_cancelled`](crate::JoinError::is_cancelled) if the slot was aborted before, and
/// [`is_lost`](crate::JoinError::is_lost) otherwise.
///
/// - For a closure that may panic, use [`run`](Self::run).
/// - For a task that has a [`JoinHandle`](crate::JoinHandle), such as a job of a
///   [`SerialExecutor`](crate::SerialExecutor), use [`JoinHandle::complete`](crate::JoinHandle::complete). No other
///   task awaits the handle. A `DurableHandle` has the same method.
///
/// Aborting the slot's job, or dropping the stream, does not stop the work, but the holder of the slot can find out:
/// see [`aborted`](Self::aborted) and [`is_aborted`](Self::is_aborted).
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use throng::CompletionStream;
///
/// let (jobs, mut done) = CompletionStream::<u32, &str>::builder().build()?;
/// let slot = jobs.slot("from a thread").await?;
/// std::thread::spawn(move || slot.complete(7));
///
/// let completed = done.next().await.expect("one is outstanding");
/// assert_eq!((completed.tag, completed.outcome?), ("from a thread", 7));
/// # Ok(()) }
/// ```
#[must_use = "dropping a slot loses its job"]
pub struct Slot<T, K = ()> {
    promise: Promise<T, QueueEntry<T, K>>,
    id: Id,
}

impl<T: Send + 'static, K: Send + 'static> Slot<T, K> {
    /// A slot, and the means to abort it.
    pub(super) fn new(entry: QueueEntry<T, K>) -> (Self, Abort) {
        let id = entry.id();
        let (promise, abort) = entry.promise();
        (Self { promise, id }, abort)
    }

    /// Completes the job with a value.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// jobs.slot("callback").await?.complete(7);
    /// assert_eq!(done.next().await.expect("one is outstanding").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub fn complete(self, value: T) {
        self.end(Ok(value));
    }

    /// Runs a closure on this thread, and completes the job with what it returns.
    ///
    /// A panic of the closure becomes the outcome of the job, and does not propagate. If the slot
    /// [is aborted](Self::is_aborted), the closure is dropped without being called, and the outcome is
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use throng::CompletionStream;
    /// let (jobs, mut done) = CompletionStream::<u32>::builder().build()?;
    /// let slot = jobs.slot(()).await?;
    /// // Rayon aborts the process if a job panics. This one does not.
    /// rayon::spawn(move || slot.run(|| "seven".parse().expect("a number")));
    ///
    /// let error = done.next().await.expect("one is outstanding").outcome.unwrap_err();
    /// assert!(error.is_panic());
    /// # Ok(()) }
    /// ```
    pub fn run(self, f: impl FnOnce() -> T) {
        let outcome = if self.is_aborted() {
            contain(|| drop(f));
            Err(Fault::cancelled())
        } else {
            panic::catch_unwind(AssertUnwindSafe(f)).map_err(Fault::panicked)
        };
        self.end(outcome);
    }

    pub(super) fn end(self, outcome: Outcome<T>) {
        self.promise.complete(outcome);
    }

    /// Waits until the slot [is aborted](Self::is_aborted).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped. Its waker stays in the slot until the slot ends or this is called
    /// again.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use throng::CompletionStream;
    /// # async fn ask_server() -> u32 { std::future::pending().await }
    /// let (jobs, mut done) = CompletionStream::<u32>::builder().build()?;
    /// let mut slot = jobs.slot(()).await?;
    /// let id = slot.id();
    /// tokio::spawn(async move {
    ///     tokio::select! {
    ///         answer = ask_server() => slot.complete(answer),
    ///         // Drops the slot, which ends its job as cancelled.
    ///         () = slot.aborted() => {}
    ///     }
    /// });
    ///
    /// jobs.abort(id);
    /// let error = done.next().await.expect("one is outstanding").outcome.unwrap_err();
    /// assert!(error.is_cancelled());
    /// # Ok(()) }
    /// ```
    pub async fn aborted(&mut self) {
        poll_fn(|cx| self.poll_aborted(cx)).await;
    }

    pub(super) fn poll_aborted(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.promise.watch_abort(cx.waker());
        match self.is_aborted() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl<T, K> Slot<T, K> {
    /// The id of the job, which its item has too.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns `true` if the completion is no longer wanted: the job was aborted, or the stream was dropped, but not
    /// [detached](crate::CompletionStream::detach).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, _done) = CompletionStream::<()>::builder().build()?;
    /// let slot = jobs.slot(()).await?;
    /// assert!(!slot.is_aborted());
    /// jobs.abort(slot.id());
    /// assert!(slot.is_aborted());
    /// # Ok(()) }
    /// ```
    pub fn is_aborted(&self) -> bool {
        self.promise.is_aborted()
    }

    /// Ends the job as cancelled.
    pub(super) fn cancel(self) {
        self.promise.fail(Fault::cancelled());
    }
}

impl<T, K> fmt::Debug for Slot<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("id", &self.id).finish()
    }
}
