//! [`CompletionStream`]: finished jobs, in the order in which they finish, whoever runs them.

mod budget;
mod builder;
mod fixed;
mod ordered;
mod read;
mod retry;
mod runners;
mod shared;
mod start;
mod submitter;
mod until_idle;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

pub use self::builder::Builder;
pub use self::fixed::JobError;
pub use self::ordered::Ordered;
pub use self::read::{DrainReady, NextOrSubmit};
use self::shared::Shared;
pub use self::submitter::Submitter;
pub use self::until_idle::UntilIdle;
use crate::inbox::FifoList;
use crate::join::{Backlog, Finished, Id, JoinError, Moved};
pub use crate::join::{Slot, Wrapped};
use crate::sync::{Arc, Unshared};

/// A stream of finished jobs, in the order in which they finish.
///
/// Jobs go in at the [`Submitter`], which can be cloned and used while the stream is read: futures
/// that run on Tokio, closures that run on a pool, and [slots](Slot) that anything else completes.
/// Each yields exactly one [`Completed`], whatever happens to it: its output, its panic, its
/// cancellation, or its loss. Two bounds hold: on the jobs that run, and on those whose completion
/// has not been read, so that a slow reader slows the submitters down and memory stays bounded.
///
/// An open stream with nothing to yield is pending; the end, `None`, comes when it is closed and
/// everything has been read, and is final. Dropping the stream aborts the jobs: futures are dropped,
/// closures that have not started too. [`detach`](Self::detach) leaves them alone, and
/// [`shutdown`](Self::shutdown) waits for them.
///
/// It is a [`Stream`], with every combinator there is for streams, and can also be read
/// [at once](Self::try_next), [many at a time](Self::next_batch), [for some time](Self::next_timeout),
/// [until nothing is left to do](Self::until_idle), and [in the order of submission](Self::ordered). A
/// failed job can be [tried again](Submitter::submit_retry). For a given number of futures there are
/// [`all`](CompletionStream::all), [`all_or_abort`](CompletionStream::all_or_abort) and
/// [`first_ok`](CompletionStream::first_ok).
///
/// # Compared with others
///
/// | | `CompletionStream` | [`JoinSet`](tokio::task::JoinSet) | `FuturesUnordered` |
/// | --- | --- | --- | --- |
/// | runs jobs | anywhere: Tokio, pools, threads, other processes | as Tokio tasks | in the task that polls it |
/// | a future that is ready at its first poll | costs no task | costs a task | costs no task |
/// | jobs in parallel | yes | yes | no |
/// | submits | any number of [`Submitter`]s, also while it is read | its owner, not while it waits for the next | its owner, not while it waits for the next |
/// | bounds | on what runs, and on what is unread; who submits waits | none | none |
/// | empty | pending; [`until_idle`](Self::until_idle) ends | `None` | `None` |
/// | a panic | is an item | is an item | unwinds into the task |
/// | names a job by | [`Id`] and any tag | `tokio::task::Id` | |
/// | keeps of a finished job | output and tag, and from the first thousand on little besides | the whole task | the output |
/// | dropped | aborts | aborts | drops the futures |
///
/// `JoinSet` is enough for tasks that one owner spawns and then joins, and which are not so many that they
/// need a bound: it comes with Tokio. `FuturesUnordered`, or `buffer_unordered`, is enough for some
/// futures that only wait, and need no thread of their own: nothing is spawned, and they may borrow.
///
/// # Cancel safety
///
/// [`next`](Self::next), and the stream's other uses in `select!`, lose nothing: a completion is
/// taken only when it is returned.
///
/// # Examples
///
/// ```
/// use throng::{BlockingPool, CompletionStream};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(4).build()?;
/// let (jobs, mut done) = CompletionStream::builder().max_running(8).build();
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
    shared: Arc<Shared<T, K>>,
    /// What was taken from the outlet and not yet yielded: first what had been moved out of its cells, then
    /// the others.
    backlog: Unshared<Backlog<T, K>>,
    taken: FifoList<Finished<T, K>>,
    /// The keys of those that were read and are still known to the shared: many at a time are settled
    /// under one lock.
    read: Vec<usize>,
    /// How many were read that had been moved out of their cells, and are not settled.
    read_moved: usize,
    /// The budget for how many more items is paid for.
    paid: u32,
    ended: bool,
}

/// A finished job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completed<T, K = ()> {
    /// The name that it got when it was submitted.
    pub id: Id,
    /// What it was submitted with.
    pub tag: K,
    /// How often it was tried: once, or more often if it was
    /// [submitted to be](Submitter::submit_retry).
    pub attempts: u32,
    /// Its output, or why there is none.
    pub outcome: Result<T, JoinError>,
}

/// How many jobs that were read are settled at once.
const READ: usize = 32;

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Options for a new stream.
    pub fn builder() -> Builder<T, K> {
        Builder::new()
    }

    fn with_ledger(shared: Shared<T, K>) -> (Submitter<T, K>, Self) {
        let shared = Arc::new(shared);
        let stream = Self {
            shared: Arc::clone(&shared),
            backlog: Unshared::new(Backlog::default()),
            taken: FifoList::new(),
            read: Vec::with_capacity(READ),
            read_moved: 0,
            paid: 0,
            ended: false,
        };
        (Submitter::new(shared), stream)
    }

    /// The next completion that has arrived.
    fn take(&mut self) -> Option<Completed<T, K>> {
        self.fetch();
        if let Some(moved) = self.take_moved() {
            return Some(self.yielded_moved(moved));
        }
        let finished = self.taken.pop_front()?;
        Some(self.yielded(finished))
    }

    /// What comes next, out of its cell; it counts as unread until it is yielded.
    fn take_out(&mut self) -> Option<Moved<T, K>> {
        self.fetch();
        let moved = self.take_moved();
        moved.or_else(|| Some(self.shared.outlet.jobs().moved(self.taken.pop_front()?)))
    }

    /// Takes what has arrived, if everything that was taken before has been yielded.
    fn fetch(&mut self) {
        if self.has_yielded_all() {
            self.taken = self.shared.outlet.take(self.backlog.get_mut());
        }
    }

    fn has_yielded_all(&mut self) -> bool {
        self.taken.is_empty() && self.backlog.get_mut().is_empty()
    }

    fn take_moved(&mut self) -> Option<Moved<T, K>> {
        let backlog = self.backlog.get_mut();
        if backlog.is_empty() {
            return None;
        }
        backlog.pop_front()
    }

    fn yielded(&mut self, finished: Finished<T, K>) -> Completed<T, K> {
        let attempts = self.shared.read(&finished);
        self.read.push(finished.key());
        if self.read.len() >= READ {
            self.settle();
        }
        let (id, tag, outcome) = finished.into_parts();
        Completed {
            id,
            tag,
            attempts,
            outcome: outcome.map_err(|fault| JoinError::new(id, fault)),
        }
    }

    fn yielded_moved(&mut self, moved: Moved<T, K>) -> Completed<T, K> {
        self.shared.read_moved(&moved);
        self.read_moved += 1;
        if self.read_moved >= READ {
            self.settle();
        }
        let (id, attempts) = (moved.id, moved.attempts);
        let (tag, outcome) = moved.into_parts();
        Completed {
            id,
            tag,
            attempts,
            outcome: outcome.map_err(|fault| JoinError::new(id, fault)),
        }
    }

    /// The places of jobs in the order of submission begin with zero from now on. Everything that was read is
    /// settled.
    fn count_turns_anew(&mut self) {
        let taken = self.backlog.get_mut();
        self.shared.outlet.jobs().count_turns_anew(taken);
    }

    /// Whether there is nothing to wait for, when everything is settled.
    fn is_over(&self) -> bool {
        self.shared.len() == (0, true)
    }

    /// What `take` takes; `None` when `is_over` says so.
    fn poll_take<I>(
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
        if item.is_none() && !self.shared.outlet.park(cx.waker()) {
            // What arrived before the waker was there woke nobody: look again.
            item = take(self);
        }
        if item.is_none() {
            self.settle();
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

    /// The jobs that were accepted and not read will come; once the stream is closed, no others.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let (unsettled, closed) = self.shared.len();
        let outstanding = unsettled - self.read.len() - self.read_moved;
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
    /// Has the shared forget what was read.
    fn settle(&mut self) {
        if !self.read.is_empty() || self.read_moved > 0 {
            let moved = std::mem::take(&mut self.read_moved);
            self.shared.settle(self.read.drain(..), moved);
        }
    }
}

impl<T, K> Drop for CompletionStream<T, K> {
    fn drop(&mut self) {
        self.settle();
        self.shared.abandon();
    }
}

impl<T, K> fmt::Debug for CompletionStream<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared
            .fmt_fields(&mut f.debug_struct("CompletionStream"))
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
