//! Slots: promises of exactly one completion, and what of it is in their cells.

use std::fmt;
use std::future::poll_fn;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::{Id, JoinError, Outlet, RunContext};
use crate::inbox::{Link, Linked};
use crate::sync::{Arc, UnsafeCell};
use crate::task::{Abort, Destination, Done, Fault, Job, Outcome, Promise, Task};
use crate::unwind::contain;

/// The promise of exactly one completion in a [`CompletionStream`](crate::CompletionStream).
///
/// It is the way in for whatever is not a future or a closure that this crate runs: another thread,
/// a callback, a foreign runtime. Whatever happens to it, the stream yields one item for it: the
/// value that it was [completed](Self::complete) with, or, if it is dropped, an error that
/// [`is_lost`](crate::JoinError::is_lost), or [`is_cancelled`](crate::JoinError::is_cancelled) if it was
/// aborted before. Where the value is computed may have an end of its own:
///
/// - a closure that may panic [runs](Self::run) in the slot;
/// - what a part of this crate runs, and has a [`JoinHandle`](crate::JoinHandle) for, completes the slot
///   without a task that awaits it: [`JoinHandle::complete`](crate::JoinHandle::complete). A job on a
///   [`SerialExecutor`](crate::SerialExecutor) gets into a stream in this way. A durable task does by the
///   method of the same name of its handle.
///
/// Aborting the slot's job, or dropping the stream, only tells who holds it: see
/// [`aborted`](Self::aborted) and [`is_aborted`](Self::is_aborted).
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use throng::CompletionStream;
///
/// let (jobs, mut done) = CompletionStream::<u32, &str>::builder().build();
/// let slot = jobs.slot("from a thread").await?;
/// std::thread::spawn(move || slot.complete(7));
///
/// let completed = done.next().await.expect("one is outstanding");
/// assert_eq!((completed.tag, completed.outcome?), ("from a thread", 7));
/// # Ok(()) }
/// ```
#[must_use = "dropping a slot loses its job"]
pub struct Slot<T, K = ()> {
    promise: Promise<T, Entry<T, K>>,
    id: Id,
}

impl<T: Send + 'static, K: Send + 'static> Slot<T, K> {
    /// A slot whose completion arrives at `outlet`, and a reference with which it can be aborted.
    pub(crate) fn new(entry: Entry<T, K>) -> (Self, Abort) {
        let id = entry.id;
        let (promise, abort) = Promise::new(entry);
        (Self { promise, id }, abort)
    }

    /// Fulfils the promise. The stream's reader is woken if it waits.
    pub fn complete(self, value: T) {
        self.end(Ok(value));
    }

    /// Fulfils the promise with what a closure returns, which runs here; its panic is the item's, and does
    /// not get any further. The closure of a slot that [is aborted](Self::is_aborted) is dropped instead,
    /// and the item says [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use throng::CompletionStream;
    /// let (jobs, mut done) = CompletionStream::<u32>::builder().build();
    /// let slot = jobs.slot(()).await?;
    /// // Rayon ends the process if a job panics. This one does not.
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

    /// Ends the promise as something else has ended: the item says what this error says, under its own
    /// name.
    pub fn fail(self, error: JoinError) {
        self.end(Err(error.into_fault()));
    }

    pub(super) fn end(self, outcome: Outcome<T>) {
        self.promise.complete(outcome);
    }

    /// Waits until nobody wants the completion any more: its job was aborted, or the stream dropped; not if it
    /// was [detached](crate::CompletionStream::detach).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was lost. Its waker stays with the slot, until that
    /// ends or this is called again.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use throng::CompletionStream;
    /// # async fn ask_somebody() -> u32 { std::future::pending().await }
    /// let (jobs, mut done) = CompletionStream::<u32>::builder().build();
    /// let mut slot = jobs.slot(()).await?;
    /// let id = slot.id();
    /// tokio::spawn(async move {
    ///     tokio::select! {
    ///         answer = ask_somebody() => slot.complete(answer),
    ///         // Dropped, which is how it is cancelled.
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
    /// The name under which the completion will arrive.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Whether nobody wants the completion any more: its job was aborted, or the stream dropped, but not
    /// [detached](crate::CompletionStream::detach).
    pub fn is_aborted(&self) -> bool {
        self.promise.is_aborted()
    }

    /// Ends the promise because who should fulfil it was dropped.
    pub(super) fn cancel(self) {
        self.promise.fail(Fault::cancelled());
    }
}

impl<T, K> fmt::Debug for Slot<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("id", &self.id).finish()
    }
}

/// What a cell that is bound for an outlet carries.
pub(crate) struct Entry<T, K> {
    /// In the outlet's inbox. Not the link of the cell's header: a job that is aborted while it is
    /// queued somewhere arrives here at once, and leaves that queue later.
    link: Link,
    /// Taken by whoever delivers the cell; gone after that.
    outlet: UnsafeCell<ManuallyDrop<Arc<Outlet<T, K>>>>,
    /// Taken by whoever reads the completion.
    tag: UnsafeCell<ManuallyDrop<K>>,
    id: Id,
    /// The number under which the stream knows the job, until that is settled or leaves its cell.
    key: usize,
}

// SAFETY: `outlet` and `tag` are each used by one party at a time: by who delivers, by who reads.
unsafe impl<T: Send, K: Send> Sync for Entry<T, K> {}
// SAFETY: as above, and a cell may end on any thread.
unsafe impl<T: Send, K: Send> Send for Entry<T, K> {}

impl<T: Send + 'static, K: Send + 'static> Entry<T, K> {
    pub(crate) fn new(outlet: Arc<Outlet<T, K>>, tag: K, key: usize) -> Self {
        Self {
            link: Link::new(),
            outlet: UnsafeCell::new(ManuallyDrop::new(outlet)),
            tag: UnsafeCell::new(ManuallyDrop::new(tag)),
            id: Id::next(),
            key,
        }
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    pub(crate) fn key(&self) -> usize {
        self.key
    }

    /// Whether the cell of a job needs no memory of its own.
    pub(crate) fn is_small<J: Job<RunContext, Output = T>>() -> bool {
        Task::is_recycled::<J, Self>()
    }

    /// A job whose completion arrives where this entry says, and the means to abort it.
    pub(crate) fn job<J: Job<RunContext, Output = T>>(self, job: J) -> (Task<RunContext>, Abort) {
        Task::bound_for(job, self)
    }
}

impl<T: Send + 'static, K: Send + 'static> Destination<T> for Entry<T, K> {
    fn deliver(done: Done<T, Self>) {
        done.complete();
        // SAFETY: a cell is delivered once, and this is the only place that takes the outlet.
        let outlet = done
            .destination()
            .outlet
            .with_mut(|outlet| unsafe { ManuallyDrop::take(&mut *outlet) });
        outlet.arrive(Finished(done));
        contain(|| drop(outlet));
    }
}

/// A completion: a cell that has arrived.
pub(crate) struct Finished<T, K>(Done<T, Entry<T, K>>);

impl<T, K> Finished<T, K> {
    pub(crate) fn key(&self) -> usize {
        self.0.destination().key
    }

    pub(crate) fn into_parts(self) -> (Id, K, Outcome<T>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the cell reference is moved out once.
        let done = unsafe { std::ptr::read(&raw const this.0) };
        let id = done.destination().id;
        // SAFETY: the completion's reader, which is us, has the tag; `this` is not dropped.
        let tag = unsafe { take_tag(done.destination()) };
        (id, tag, done.into_outcome())
    }
}

impl<T, K> Drop for Finished<T, K> {
    fn drop(&mut self) {
        // SAFETY: the completion's reader has the tag, and this is the end of it.
        contain(|| drop(unsafe { take_tag(self.0.destination()) }));
    }
}

/// # Safety
///
/// The caller has the tag, which has not been taken.
unsafe fn take_tag<T, K>(entry: &Entry<T, K>) -> K {
    // SAFETY: as the caller says.
    entry
        .tag
        .with_mut(|tag| unsafe { ManuallyDrop::take(&mut *tag) })
}

// SAFETY: the link lies in the destination of a cell that the completion keeps alive, and is reached
// by a pointer to the whole cell.
unsafe impl<T, K> Linked for Finished<T, K> {
    fn into_link(self) -> NonNull<Link> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the cell reference is moved out once.
        let done = unsafe { std::ptr::read(&raw const this.0) };
        let entry = done.into_destination();
        // SAFETY: the link lies this far into the entry.
        unsafe { entry.byte_add(offset_of!(Entry<T, K>, link)).cast() }
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: the inverse of `into_link`.
        let entry = unsafe { link.byte_sub(offset_of!(Entry<T, K>, link)).cast() };
        // SAFETY: it came from `into_destination` there.
        Self(unsafe { Done::from_destination(entry) })
    }
}
