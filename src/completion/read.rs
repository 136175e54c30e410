//! How a stream is read, beside being polled.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::start::start;
use super::{Completed, CompletionStream, Ordered, UntilIdle};
use crate::join::{Id, TrySpawnError};
use crate::sync::Arc;

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// The next completion; `None` when the stream is closed and everything has been read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next completion, if one has arrived. It does not wait, and is not limited by the task's
    /// [budget](tokio::task::coop).
    ///
    /// `None` is also the end: the [`size_hint`](Stream::size_hint) is then `(0, Some(0))`. A task that
    /// waits for the stream is woken all the same by the next completion.
    pub fn try_next(&mut self) -> Option<Completed<T, K>> {
        self.take()
    }

    /// Waits for a completion, and returns it with those that have arrived by then, up to `max`, in their
    /// order; nothing when the stream has ended.
    ///
    /// # Panics
    ///
    /// Panics if `max` is 0: an empty batch is the end.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped: it takes completions only when it is ready.
    pub async fn next_batch(&mut self, max: usize) -> Vec<Completed<T, K>> {
        assert!(max > 0, "a batch has room for one at least");
        let Some(first) = self.next().await else {
            return Vec::new();
        };
        let mut batch = vec![first];
        batch.extend(self.drain_ready().take(max - 1));
        batch
    }

    /// The next completion, if it comes in time.
    ///
    /// # Errors
    ///
    /// The time has passed. The stream can be used on.
    ///
    /// # Panics
    ///
    /// Panics in a Tokio runtime without [time](tokio::runtime::Builder::enable_time), and outside of one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost, neither if the future is dropped nor when the time is over: a completion that has
    /// arrived is returned, also when the time has passed.
    pub async fn next_timeout(
        &mut self,
        time: Duration,
    ) -> Result<Option<Completed<T, K>>, Elapsed> {
        timeout(time, self.next()).await
    }

    /// The completions that have arrived, in their order, without waiting, and without limitation by the
    /// task's [budget](tokio::task::coop). What is not taken from the iterator stays in the stream.
    ///
    /// What arrives meanwhile may be among them, but the iterator ends, however fast jobs complete.
    pub fn drain_ready(&mut self) -> DrainReady<'_, T, K> {
        DrainReady {
            stream: self,
            fetched: false,
        }
    }

    /// Waits for room, to submit a future, or for the next completion, whichever comes first: for a task
    /// that both reads the stream and submits to it.
    ///
    /// If such a task awaited [`submit`](super::Submitter::submit) while the stream is full of what it has
    /// not read, it would wait for itself. Here it gets a completion instead, and its job back. As
    /// [`submit`](super::Submitter::submit), otherwise.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and future, if the stream is or becomes closed: it ends
    /// when the last [`Submitter`](super::Submitter) is dropped, whether or not this is used.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted, and is dropped. No completion
    /// is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    /// use throng::completion::NextOrSubmit;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().max_running(2).max_outstanding(2).build();
    /// let mut sum = 0;
    /// for n in 1..=100 {
    ///     let mut job = (n, async move { n });
    ///     while let NextOrSubmit::Next(completed, tag, future) = done.next_or_submit(job.0, job.1).await? {
    ///         sum += completed.outcome?;
    ///         job = (tag, future);
    ///     }
    /// }
    /// jobs.close();
    /// while let Some(completed) = done.next().await {
    ///     sum += completed.outcome?;
    /// }
    /// assert_eq!(sum, 5050);
    /// # Ok(()) }
    /// ```
    pub async fn next_or_submit<F>(
        &mut self,
        tag: K,
        future: F,
    ) -> Result<NextOrSubmit<T, K, F>, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        shared.tick().await;
        let mut placed = pin!(shared.place());
        let first = poll_fn(|cx| {
            if let Poll::Ready(place) = placed.as_mut().poll(cx) {
                return Poll::Ready(First::Place(place.ok()));
            }
            self.poll_next_unless_over(cx).map(First::Completed)
        });
        match first.await {
            First::Place(Some(place)) => start(place, tag, future).map(NextOrSubmit::Submitted),
            First::Completed(Some(next)) => Ok(NextOrSubmit::Next(next, tag, future)),
            First::Place(None) | First::Completed(None) => {
                Err(TrySpawnError::closed((tag, future)))
            }
        }
    }

    fn poll_next_unless_over(&mut self, cx: &mut Context<'_>) -> Poll<Option<Completed<T, K>>> {
        Pin::new(self).poll_next(cx)
    }

    /// A stream that ends at the first moment at which nothing is outstanding, although jobs could still be
    /// submitted: what [`JoinSet`](tokio::task::JoinSet) does.
    pub fn until_idle(self) -> UntilIdle<T, K> {
        UntilIdle::new(self)
    }

    /// A stream of the same jobs in the order in which they were submitted: of two that are submitted at the
    /// same time, in either order.
    ///
    /// What has finished before its turn counts as unread, and is bounded as that is: behind a job that
    /// takes long, `max_outstanding` others finish, and then the submitters wait. Of jobs that were read
    /// before this is called, none is waited for.
    pub fn ordered(self) -> Ordered<T, K> {
        Ordered::new(self)
    }

    /// Lets the jobs run on, and drops their outputs. No others are accepted. (Dropping the stream instead
    /// aborts them.)
    pub fn detach(mut self) {
        self.settle();
        // Nothing is left then for the drop of the stream to abort.
        drop(self.shared.forsake());
    }

    /// Closes the stream, aborts the jobs, waits for all of them, and returns how those ended that were not
    /// read, in order.
    ///
    /// Closures that have started run to their end; who holds a [`Slot`](super::Slot) is
    /// [told](super::Slot::aborted), and waited for; so is who polls a job that was
    /// [wrapped](super::Submitter::wrap). When this returns, nothing that was accepted runs any more.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the stream is: nobody waits for the jobs, and no items are returned.
    pub async fn shutdown(mut self) -> Vec<Completed<T, K>> {
        self.shared.close();
        self.shared.abort_all();
        let mut all = Vec::with_capacity(self.shared.len().0);
        while let Some(completed) = self.next().await {
            all.push(completed);
        }
        all
    }
}

/// What [`CompletionStream::next_or_submit`] has done.
#[derive(Debug)]
pub enum NextOrSubmit<T, K, F> {
    /// The job was submitted.
    Submitted(Id),
    /// There was no room: a completion instead, and tag and future of the job.
    Next(Completed<T, K>, K, F),
}

enum First<P, C> {
    /// `None`: the stream is closed.
    Place(Option<P>),
    Completed(Option<C>),
}

/// What has arrived: see [`CompletionStream::drain_ready`].
#[must_use = "iterators do nothing unless they are used"]
pub struct DrainReady<'a, T: Send + 'static, K: Send + 'static> {
    stream: &'a mut CompletionStream<T, K>,
    /// What has arrived was taken out of the inbox, and is all that is yielded.
    fetched: bool,
}

impl<T: Send + 'static, K: Send + 'static> Iterator for DrainReady<'_, T, K> {
    type Item = Completed<T, K>;

    fn next(&mut self) -> Option<Completed<T, K>> {
        if self.stream.has_yielded_all() {
            if self.fetched {
                return None;
            }
            self.fetched = true;
        }
        self.stream.take()
    }
}

impl<T: Send + 'static, K: Send + 'static> fmt::Debug for DrainReady<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainReady")
            .field("stream", &self.stream)
            .finish()
    }
}
