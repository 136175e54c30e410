//! The methods that read a stream, besides polling it.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::start::start;
use super::stream::{Completed, CompletionStream};
use crate::join::{Closed, Id};
use crate::sync::Arc;

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Waits for the next completion. Returns `None` when the stream is closed and everything has been read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`CompletionStream`].
    pub async fn next(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns the next completion if one has arrived. Does not wait, and is not limited by the task's
    /// [budget](tokio::task::coop).
    ///
    /// `None` also means the end: the [`size_hint`](Stream::size_hint) is then `(0, Some(0))`. A task that waits for
    /// the stream is still woken by the next completion.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// assert!(done.try_next().is_none());
    /// jobs.slot("tag").await?.complete(7);
    /// assert_eq!(done.try_next().expect("it has arrived").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub fn try_next(&mut self) -> Option<Completed<T, K>> {
        self.take()
    }

    /// Waits for a completion, and returns it with those that have arrived by then, in order, at most `max`. Returns an
    /// empty vector when the stream has ended.
    ///
    /// # Panics
    ///
    /// Panics if `max` is 0, because an empty batch means the end.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// for n in 0..3 {
    ///     jobs.slot(n).await?.complete("done");
    /// }
    /// assert_eq!(done.next_batch(2).await.len(), 2);
    /// assert_eq!(done.next_batch(2).await.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn next_batch(&mut self, max: usize) -> Vec<Completed<T, K>> {
        assert!(
            max > 0,
            "a batch of 0 would mean the end of the stream: let `max` be 1 or more"
        );
        let Some(first) = self.next().await else {
            return Vec::new();
        };
        let mut batch = vec![first];
        batch.extend(self.drain_ready().take(max - 1));
        batch
    }

    /// Waits for the next completion, at most for `time`.
    ///
    /// # Errors
    ///
    /// The time has passed. The stream remains usable.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime with [time](tokio::runtime::Builder::enable_time).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost, neither if the future is dropped nor when the time has passed. A completion that has arrived
    /// is returned even then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let slot = jobs.slot(()).await?;
    /// assert!(done.next_timeout(Duration::from_millis(1)).await.is_err());
    /// slot.complete(7);
    /// assert!(done.next_timeout(Duration::from_secs(60)).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn next_timeout(
        &mut self,
        time: Duration,
    ) -> Result<Option<Completed<T, K>>, Elapsed> {
        timeout(time, self.next()).await
    }

    /// Returns an iterator over the completions that have arrived, in order. It does not wait, and is not limited by
    /// the task's [budget](tokio::task::coop).
    ///
    /// Completions that are not taken from the iterator stay in the stream. The iterator may yield some that arrive
    /// meanwhile, but it ends, however fast jobs complete.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// for n in 0..3 {
    ///     jobs.slot(n).await?.complete(());
    /// }
    /// let tags: Vec<_> = done.drain_ready().map(|completed| completed.tag).collect();
    /// assert_eq!(tags, [0, 1, 2]);
    /// # Ok(()) }
    /// ```
    pub fn drain_ready(&mut self) -> DrainReady<'_, T, K> {
        DrainReady {
            stream: self,
            fetched: false,
        }
    }

    /// Waits until a future is submitted or a completion comes, whichever is first: for a task that both reads the
    /// stream and submits to it.
    ///
    /// Such a task must not await [`submit`](super::Submitter::submit): if the stream is full of completions that it
    /// has not read, it would wait for itself. This method then returns a completion, and the job.
    ///
    /// # Errors
    ///
    /// [`Closed`] with tag and future, if the stream is or becomes closed. That happens when the last
    /// [`Submitter`](super::Submitter) is dropped, even while this method is used.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted and is dropped. No completion is lost.
    /// In `select!`, use [`reserve`](super::Submitter::reserve), which loses neither.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    /// use throng::completion::NextOrSubmit;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().max_running(2).max_outstanding(2).build()?;
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
    ) -> Result<NextOrSubmit<T, K, F>, Closed<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        shared.charge().await;
        let mut reserving = pin!(shared.reserve());
        let first = poll_fn(|cx| {
            if let Poll::Ready(reservation) = reserving.as_mut().poll(cx) {
                return Poll::Ready(First::Reserved(reservation.ok()));
            }
            self.poll_completed(cx).map(First::Completed)
        });
        match first.await {
            First::Reserved(Some(room)) => start(room, tag, future).map(NextOrSubmit::Submitted),
            First::Completed(Some(next)) => Ok(NextOrSubmit::Next(next, tag, future)),
            First::Reserved(None) | First::Completed(None) => Err(Closed::new((tag, future))),
        }
    }

    fn poll_completed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Completed<T, K>>> {
        Pin::new(self).poll_next(cx)
    }

    /// Closes the stream, waits for its jobs, and returns the completions that were not read, in order. The jobs that
    /// have not ended after `timeout` are aborted.
    ///
    /// Nothing that was accepted runs any more when this returns. So it also waits, without a limit, for jobs that an
    /// abort does not end: closures that have started, [slots](super::Slot) until they are completed or dropped, and
    /// jobs that were [wrapped](super::Submitter::wrap) until they are polled. For a bound on the whole, use
    /// [`tokio::time::timeout`].
    ///
    /// With a `timeout` of zero, the jobs are aborted at once, and the runtime needs no time.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime with [time](tokio::runtime::Builder::enable_time), unless `timeout` is zero.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the stream is dropped: the jobs are aborted, and no completions are returned.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, done) = CompletionStream::builder().build()?;
    /// jobs.submit("fast", async {}).await?;
    /// jobs.submit("endless", std::future::pending()).await.ok();
    ///
    /// let unread = done.shutdown(Duration::from_millis(50)).await;
    /// assert!(unread[0].tag == "fast" && unread[0].outcome.is_ok());
    /// assert!(unread[1].tag == "endless" && unread[1].outcome.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(mut self, timeout: Duration) -> Vec<Completed<T, K>> {
        self.shared.close();
        let mut unread = Vec::with_capacity(self.shared.len().0);
        if !timeout.is_zero() && self.read_until_timeout(timeout, &mut unread).await {
            return unread;
        }
        self.shared.abort_all();
        while let Some(completed) = self.next().await {
            unread.push(completed);
        }
        unread
    }

    /// Reads until the end, and returns `true`, or until the timeout is over.
    async fn read_until_timeout(
        &mut self,
        timeout: Duration,
        read: &mut Vec<Completed<T, K>>,
    ) -> bool {
        let mut reading = pin!(async {
            while let Some(completed) = self.next().await {
                read.push(completed);
            }
        });
        match Instant::now().checked_add(timeout) {
            Some(end) => timeout_at(end, reading).await.is_ok(),
            None => {
                reading.as_mut().await;
                true
            }
        }
    }
}

/// What [`CompletionStream::next_or_submit`] did.
#[derive(Debug)]
pub enum NextOrSubmit<T, K, F> {
    /// The job was submitted.
    Submitted(Id),
    /// There was no room, and a completion came. Contains it, and tag and future of the job.
    Next(Completed<T, K>, K, F),
}

enum First<R, C> {
    /// `None` if the stream is closed.
    Reserved(Option<R>),
    Completed(Option<C>),
}

/// The completions that have arrived: see [`CompletionStream::drain_ready`].
#[must_use = "iterators do nothing unless they are used"]
pub struct DrainReady<'a, T: Send + 'static, K: Send + 'static> {
    stream: &'a mut CompletionStream<T, K>,
    /// `true` once the completions that have arrived were taken from the queue: the iterator ends after these.
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
