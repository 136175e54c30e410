//! [`CompletionStream`]: finished jobs, in the order in which they finish, whoever runs them.

mod builder;
mod ledger;
mod submitter;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

pub use self::builder::Builder;
use self::ledger::Ledger;
pub use self::submitter::Submitter;
use crate::inbox::Chain;
pub use crate::join::Slot;
use crate::join::{Finished, Id, JoinError};
use crate::sync::Arc;

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
/// closures that have not started too.
///
/// # Compared with others
///
/// - [`tokio::task::JoinSet`] yields `None` whenever it is empty, which is what you want for a fixed
///   set of tasks that one owner spawns and joins. It has no bounds, jobs cannot be added while
///   somebody waits for the next, and a finished task keeps its memory until it is joined.
/// - `futures::stream::FuturesUnordered` polls all futures in one task: no parallelism, but nothing
///   is spawned. Use it, or `buffer_unordered`, for a few futures that only wait.
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
    ledger: Arc<Ledger<T, K>>,
    /// What was taken from the outlet and not yet yielded.
    taken: Chain<Finished<T, K>>,
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
    /// Its output, or why there is none.
    pub outcome: Result<T, JoinError>,
}

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Options for a new stream.
    pub fn builder() -> Builder<T, K> {
        Builder::new()
    }

    fn with_bounds(max_running: usize, max_outstanding: usize) -> (Submitter<T, K>, Self) {
        let ledger = Arc::new(Ledger::new(max_running, max_outstanding));
        let stream = Self {
            ledger: Arc::clone(&ledger),
            taken: Chain::new(),
            ended: false,
        };
        (Submitter::new(ledger), stream)
    }

    /// The next completion; `None` when the stream is closed and everything has been read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next completion that has arrived.
    fn take(&mut self) -> Option<Completed<T, K>> {
        if self.taken.is_empty() {
            self.taken = self.ledger.outlet.take();
        }
        let finished = self.taken.pop_front()?;
        self.ledger.settle(&finished);
        let (id, tag, outcome) = finished.into_parts();
        Some(Completed {
            id,
            tag,
            outcome: outcome.map_err(|fault| JoinError::new(id, fault)),
        })
    }

    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<Completed<T, K>>> {
        if let Some(completed) = self.take() {
            return Poll::Ready(Some(completed));
        }
        self.ledger.outlet.register(cx.waker());
        // What arrived before the waker was there woke nobody: look again.
        if let Some(completed) = self.take() {
            return Poll::Ready(Some(completed));
        }
        if self.ledger.len() == (0, true) {
            self.ended = true;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl<T: Send + 'static, K: Send + 'static> Stream for CompletionStream<T, K> {
    type Item = Completed<T, K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let item = ready!(self.poll_take(cx));
        coop.made_progress();
        Poll::Ready(item)
    }

    /// The jobs that were accepted and not read will come; once the stream is closed, no others.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let (outstanding, closed) = self.ledger.len();
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

impl<T, K> Drop for CompletionStream<T, K> {
    fn drop(&mut self) {
        self.ledger.abandon();
    }
}

impl<T, K> fmt::Debug for CompletionStream<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ledger
            .fmt_fields(&mut f.debug_struct("CompletionStream"))
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
