//! [`CompletionStream`]: the reading end of a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use super::queue::{CompletionQueue, Finished, ReadCell};
use super::shared::Shared;
use super::spill::{Spill, Spilled};
use super::submitter::Submitter;
use crate::inbox::FifoList;
use crate::join::{Id, JoinError};
use crate::sync::{Arc, Unshared};
use crate::task::Outcome;

/// A stream of finished jobs, in the order in which they finish.
///
/// Jobs are submitted through a [`Submitter`] and read from the stream. Submit and read in two tasks, as in the example
/// below: when the stream is full, `submit` waits until a completion is read. A single task that does both must never
/// await `submit`, because it would wait for itself. Instead, it selects between [`reserve`](super::Submitter::reserve) and
/// [`next`](Self::next):
///
/// ```
/// # use throng::CompletionStream;
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (jobs, mut done) = CompletionStream::builder().max_running(2).build()?;
/// # let mut sum = 0;
/// let mut left = (1..=10).peekable();
/// while left.peek().is_some() || jobs.in_flight() > 0 {
///     tokio::select! {
///         permit = jobs.reserve(), if left.peek().is_some() => {
///             let n = left.next().expect("there is one");
///             permit?.submit(n, async move { n * n })?;
///         }
///         Some(completed) = done.next() => sum += completed.outcome?,
///     }
/// }
/// # assert_eq!(sum, 385);
/// # Ok(()) }
/// ```
///
/// A job is a future that runs on Tokio, a closure that runs on a pool, or a [slot](super::Slot) that is completed
/// by anything else. Each job yields exactly one [`Completed`]: its output, its panic, its cancellation, or its loss.
/// Two limits hold: on the jobs that run, and on the jobs that are outstanding, which means that their completions
/// have not been read. So a slow reader slows the submitters down, and memory stays bounded.
///
/// An open stream without completions is pending. The stream ends with `None` once it is closed and everything has
/// been read. Dropping it aborts the jobs: futures are dropped, and closures that have not started are dropped too.
/// [`detach`](Self::detach) lets the jobs run on, and [`shutdown`](Self::shutdown) waits for them.
///
/// It implements [`Stream`], and can also be read [without waiting](Self::try_next), [in batches](Self::next_batch),
/// [until no job is left](Self::next_until_idle), and [in the order of submission](Self::ordered). For a fixed number
/// of futures, see [`JoinSet::join_all`](super::JoinSet::join_all).
///
/// # Compared with others
///
/// | | `CompletionStream` | [`JoinSet`](super::JoinSet) of this crate | [`tokio::task::JoinSet`] | `FuturesUnordered` |
/// | --- | --- | --- | --- | --- |
/// | runs jobs | anywhere: Tokio, pools, threads, other processes | as Tokio tasks | as Tokio tasks | in the task that polls it |
/// | a small future that waits at most once | costs no task | costs no task | costs a task | costs no task |
/// | jobs in parallel | yes | yes | yes | no |
/// | submits | any number of [`Submitter`]s, also while it is read | its owner | its owner | its owner |
/// | bounds | on what runs and on what is unread; `submit` waits | none | none | none |
/// | empty | pending; [`next_until_idle`](Self::next_until_idle) returns `None` | `None` | `None` | `None` |
/// | a panic | is an item | is an item | is an item | unwinds into the task |
/// | identifies a job by | [`Id`] and a tag of any type | [`Id`] | `tokio::task::Id` | |
/// | keeps of a finished job | output and tag, and little else once 1,024 are unread | output, and little else once 1,024 are unread | the whole task | the output |
/// | dropped | aborts | aborts | aborts | drops the futures |
///
/// Tokio's `JoinSet` is enough for tasks that one owner spawns and then joins, and whose number needs no bound.
/// `FuturesUnordered`, or `buffer_unordered`, is enough for futures that only wait and need no thread of their own:
/// nothing is spawned, and they may borrow.
///
/// # Cancel safety
///
/// [`next`](Self::next) and the other methods that read lose nothing in `select!`: a completion is taken only when
/// it is returned.
///
/// # Examples
///
/// ```
/// use throng::{BlockingPool, CompletionStream};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(4).build()?;
/// let (jobs, mut done) = CompletionStream::builder().max_running(8).build()?;
/// tokio::spawn(async move {
///     for n in 0..100_u64 {
///         jobs.submit_blocking(&pool, n, move || n * n).await.ok();
///     }
/// });
///
/// let mut sum = 0;
/// while let Some(completed) = done.next().await {
///     assert_eq!(completed.outcome?, completed.tag * completed.tag);
///     sum += completed.tag;
/// }
/// assert_eq!(sum, 4950);
/// # Ok(()) }
/// ```
#[must_use = "streams do nothing unless polled, and dropping this one aborts its jobs"]
pub struct CompletionStream<T, K = ()> {
    pub(super) shared: Arc<Shared<T, K>>,
    /// Completions that were taken from the queue and not yielded. The spilled ones come first.
    spill: Unshared<Spill<T, K>>,
    taken: FifoList<Finished<T, K>>,
    /// The cells of jobs that were read and not released. Many are released at a time, under one lock.
    read: Vec<ReadCell<T, K>>,
    /// The number of jobs that were read, whose completions had been spilled, and that are not released.
    read_spilled: usize,
    /// The number of items for which the reader's budget has been charged in advance.
    paid: u32,
    pub(super) ended: bool,
}

/// A finished job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completed<T, K = ()> {
    /// The id that the job got when it was submitted.
    pub id: Id,
    /// The tag that it was submitted with.
    pub tag: K,
    /// Its output, or the reason why there is none.
    pub outcome: Result<T, JoinError>,
}

/// The number of jobs that are released at a time.
const RELEASE_BATCH: usize = 32;

impl<T, K> CompletionStream<T, K> {
    /// The two ends of a stream.
    pub(super) fn new(shared: Shared<T, K>) -> (Submitter<T, K>, Self) {
        let shared = Arc::new(shared);
        let stream = Self {
            shared: Arc::clone(&shared),
            spill: Unshared::new(Spill::default()),
            taken: FifoList::new(),
            read: Vec::with_capacity(RELEASE_BATCH),
            read_spilled: 0,
            paid: 0,
            ended: false,
        };
        (Submitter::new(shared), stream)
    }
}

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Takes the next completion that has arrived.
    pub(super) fn take(&mut self) -> Option<Completed<T, K>> {
        self.fetch();
        if let Some(spilled) = self.take_spilled() {
            return Some(self.read_spilled(spilled));
        }
        let finished = self.taken.pop_front()?;
        Some(self.read_finished(finished))
    }

    /// Takes the next completion that has arrived, out of its cell. It counts as unread until it is
    /// [read](Self::read_spilled).
    pub(super) fn take_out(&mut self) -> Option<Spilled<T, K>> {
        self.fetch();
        let spilled = self.take_spilled();
        spilled.or_else(|| {
            let finished = self.taken.pop_front()?;
            let mut jobs = self.shared.queue.jobs();
            Some(CompletionQueue::spill(finished, &mut jobs))
        })
    }

    /// Takes what has arrived, if everything that was taken before has been yielded.
    fn fetch(&mut self) {
        self.shared.note_poll();
        if self.has_yielded_all() {
            self.taken = self.shared.queue.take(self.spill.get_mut());
        }
    }

    pub(super) fn has_yielded_all(&mut self) -> bool {
        self.taken.is_empty() && self.spill.get_mut().is_empty()
    }

    fn take_spilled(&mut self) -> Option<Spilled<T, K>> {
        let spill = self.spill.get_mut();
        if spill.is_empty() {
            return None;
        }
        spill.pop_front()
    }

    fn read_finished(&mut self, finished: Finished<T, K>) -> Completed<T, K> {
        self.shared.count_read();
        let (id, tag, outcome, cell) = finished.into_parts();
        self.read.push(cell);
        if self.read.len() >= RELEASE_BATCH {
            self.release_read();
        }
        self.completed((id, tag, outcome))
    }

    pub(super) fn read_spilled(&mut self, spilled: Spilled<T, K>) -> Completed<T, K> {
        self.shared.count_read();
        self.read_spilled += 1;
        if self.read_spilled >= RELEASE_BATCH {
            self.release_read();
        }
        self.completed(spilled.into_parts())
    }

    fn completed(&self, (id, tag, outcome): (Id, K, Outcome<T>)) -> Completed<T, K> {
        let outcome = outcome.map_err(|fault| JoinError::new(id, fault));
        self.shared.count_outcome(&outcome);
        Completed { id, tag, outcome }
    }

    /// Numbers the jobs that have not been read from zero, in the order of submission.
    pub(super) fn renumber(&mut self) {
        self.release_read();
        let taken = self.spill.get_mut();
        self.shared.queue.jobs().renumber(taken);
    }

    /// Returns `true` if no completion can come any more. Requires that everything read is released.
    pub(super) fn is_over(&self) -> bool {
        self.shared.len() == (0, true)
    }

    /// Polls for what `take` takes. `None` if there is nothing and `is_over` holds.
    pub(super) fn poll_take<I>(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut Self) -> Option<I>,
        is_over: impl FnOnce(&Self) -> bool,
    ) -> Poll<Option<I>> {
        let coop = match self.paid {
            0 => Some(ready!(tokio::task::coop::poll_proceed(cx))),
            _ => None,
        };
        let mut item = take(self);
        if item.is_none() && !self.shared.queue.park(cx.waker()) {
            // A completion that arrived before the waker was registered has woken nothing.
            item = take(self);
        }
        if item.is_none() {
            self.release_read();
            if !is_over(self) {
                return Poll::Pending;
            }
        }
        if let Some(coop) = coop {
            coop.made_progress();
            self.paid = self.shared.items_per_unit();
        }
        self.paid -= 1;
        Poll::Ready(item)
    }

    /// Polls for the next completion. `None` if no job is outstanding.
    pub(super) fn poll_until_idle(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Completed<T, K>>> {
        self.poll_take(cx, Self::take, |stream| stream.shared.len().0 == 0)
    }
}

impl<T: Send + 'static, K: Send + 'static> Stream for CompletionStream<T, K> {
    type Item = Completed<T, K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.poll_take(cx, Self::take, Self::is_over));
        self.ended = item.is_none();
        Poll::Ready(item)
    }

    /// At least the outstanding jobs; exactly those once the stream is closed.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let (unreleased, closed) = self.shared.len();
        let outstanding = unreleased - self.read.len() - self.read_spilled;
        (outstanding, closed.then_some(outstanding))
    }
}

impl<T: Send + 'static, K: Send + 'static> FusedStream for CompletionStream<T, K> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

// Completions are moved, never pinned.
impl<T, K> Unpin for CompletionStream<T, K> {}

impl<T, K> CompletionStream<T, K> {
    /// Releases the jobs that were read.
    pub(super) fn release_read(&mut self) {
        if !self.read.is_empty() || self.read_spilled > 0 {
            let spilled = std::mem::take(&mut self.read_spilled);
            self.shared.release(self.read.drain(..), spilled);
        }
    }

    /// Lets the jobs run on, and drops their outputs. No further jobs are accepted. (Dropping the stream aborts the
    /// jobs instead.)
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, done) = CompletionStream::builder().build()?;
    /// let (finished, is_finished) = tokio::sync::oneshot::channel();
    /// jobs.submit((), async move { finished.send("still running").ok() }).await?;
    /// done.detach();
    /// assert_eq!(is_finished.await?, "still running");
    /// assert!(jobs.is_closed());
    /// # Ok(()) }
    /// ```
    pub fn detach(mut self) {
        self.release_read();
        // After this there is nothing left for the stream's drop to abort.
        for job in self.shared.detach_reader() {
            // Its record is gone, so a shutdown of the runtime would not find it while it is suspended. The wake-up
            // makes it a task if it is still pending.
            job.wake();
        }
    }
}

impl<T, K> Drop for CompletionStream<T, K> {
    fn drop(&mut self) {
        self.release_read();
        for abort in self.shared.detach_reader() {
            abort.abort();
        }
    }
}

impl<T, K> fmt::Debug for CompletionStream<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared
            .fmt_fields(&mut f.debug_struct("CompletionStream"))
    }
}
