//! The methods that read a stream, besides polling it.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_core::Stream;
use tokio::time::{Instant, timeout_at};

use super::stream::{Completed, CompletionStream};

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Waits for the next completion. Returns `None` when the stream is closed and everything has been read.
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
    /// jobs.submit("tag", async { 7 }).await?;
    /// jobs.close();
    /// while let Some(completed) = done.next().await {
    ///     assert_eq!((completed.tag, completed.outcome?), ("tag", 7));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the next completion. Returns `None` as soon as no job is outstanding, even if jobs can still be
    /// submitted, as [`JoinSet`](tokio::task::JoinSet) does.
    ///
    /// The stream remains usable, for instance for the next phase of work.
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
    /// for phase in 0..2 {
    ///     for n in 0..10 {
    ///         jobs.submit(n, async move { n + phase }).await?;
    ///     }
    ///     let mut items = 0;
    ///     while done.next_until_idle().await.is_some() {
    ///         items += 1;
    ///     }
    ///     assert_eq!(items, 10);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next_until_idle(&mut self) -> Option<Completed<T, K>> {
        poll_fn(|cx| self.poll_until_idle(cx)).await
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
        // Once: jobs that finish while the batch is read belong to the next one, or it might never end.
        let mut may_fetch = true;
        while batch.len() < max {
            if self.has_yielded_all() && !mem::take(&mut may_fetch) {
                break;
            }
            let Some(completed) = self.take() else { break };
            batch.push(completed);
        }
        batch
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

    /// Closes the stream and aborts its jobs. Returns the number of jobs that had not ended.
    ///
    /// This method does not wait: the stream still yields the remaining completions, and then ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::<(), _>::builder().build()?;
    /// jobs.submit("endless", std::future::pending()).await?;
    /// assert_eq!(done.shutdown_now(), 1);
    /// while let Some(completed) = done.next().await {
    ///     assert!(completed.outcome.unwrap_err().is_cancelled());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn shutdown_now(&self) -> usize {
        self.shared.close();
        self.shared.abort_all()
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
