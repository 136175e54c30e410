//! Reserving room for one job, before the job is made.

use super::shared::Reservation;
use super::slot::Slot;
use super::start::{start, start_blocking};
use super::submitter::Submitter;
use crate::join::{Bounded, Closed, Id, Permit, Spawn, sealed};

impl<T: Send + 'static, K: Send + 'static> Submitter<T, K> {
    /// Waits for room for one job.
    ///
    /// The returned permit submits the job later, without waiting. Use it where a job must not be lost when the wait
    /// is cancelled, such as in `select!`, or where the job is expensive to make.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is reserved. A future that is kept without being polled may hold up other
    /// submitters.
    ///
    /// # Examples
    ///
    /// A task that both reads and submits. No job is lost when a completion comes first.
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().max_running(2).max_outstanding(2).build()?;
    /// let mut left = (1..=10).peekable();
    /// let mut sum = 0;
    /// while left.peek().is_some() || jobs.in_flight() > 0 {
    ///     tokio::select! {
    ///         permit = jobs.reserve(), if left.peek().is_some() => {
    ///             let n = left.next().expect("there is one");
    ///             permit?.submit(n, async move { n * n })?;
    ///         }
    ///         Some(completed) = done.next() => sum += completed.outcome?,
    ///     }
    /// }
    /// assert_eq!(sum, 385);
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, Self>, Closed> {
        self.shared().consume_budget().await;
        Permit::reserve(self).await
    }
}

impl<T, K> sealed::Sealed for Submitter<T, K> {}

impl<T: Send + 'static, K: Send + 'static> Bounded for Submitter<T, K> {
    async fn acquire_permit(&self) -> Result<(), Closed> {
        match self.shared().reserve().await {
            Ok(reservation) => {
                reservation.keep();
                Ok(())
            }
            Err(_) => Err(Closed::new(())),
        }
    }

    fn release_permit(&self) {
        drop(Reservation::kept(self.shared()));
    }
}

impl<T: Send + 'static, K: Send + 'static> Permit<'_, Submitter<T, K>> {
    /// Runs a future on the current Tokio runtime, as [`Submitter::submit`] does.
    ///
    /// # Errors
    ///
    /// [`Closed`] with tag and future, if the stream was closed since the permit was reserved.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let permit = jobs.reserve().await?;
    /// permit.submit("future", async { 7 })?;
    /// assert_eq!(done.next().await.expect("one is outstanding").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub fn submit<F>(self, tag: K, future: F) -> Result<Id, Closed<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        start(Reservation::kept(self.consume().shared()), tag, future)
    }

    /// Runs a closure on a pool, as [`Submitter::submit_blocking`] does.
    ///
    /// # Errors
    ///
    /// [`Closed`] with tag and closure, if the stream was closed since the permit was reserved.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::BlockingPool;
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = BlockingPool::builder().max_threads(2).build()?;
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// jobs.reserve().await?.submit_blocking(&pool, "closure", || 7)?;
    /// assert_eq!(done.next().await.expect("one is outstanding").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub fn submit_blocking<F>(self, pool: &impl Spawn, tag: K, f: F) -> Result<Id, Closed<(K, F)>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        start_blocking(Reservation::kept(self.consume().shared()), pool, tag, f)
    }

    /// Promises a completion that comes from elsewhere, as [`Submitter::slot`] does.
    ///
    /// # Errors
    ///
    /// [`Closed`] with the tag, if the stream was closed since the permit was reserved.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// jobs.reserve().await?.slot("callback")?.complete(7);
    /// assert_eq!(done.next().await.expect("one is outstanding").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub fn slot(self, tag: K) -> Result<Slot<T, K>, Closed<K>> {
        let submitter = self.consume();
        let reservation = Reservation::kept(submitter.shared());
        reservation.slot(tag).map_err(Closed::new)
    }
}
