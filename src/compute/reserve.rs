//! Permits of a pool.

use super::pool::ComputePool;
use crate::join::{Bounded, Closed, JoinHandle, Permit};

impl ComputePool {
    /// Waits until the pool has fewer than [`max_outstanding`](super::Builder::max_outstanding) tasks, and reserves a
    /// permit for one more: back-pressure that blocks no thread. In a pool without a bound, this returns at once.
    ///
    /// Waiting callers are woken in the order of arrival, but a newcomer may be faster. A caller that was overtaken twice
    /// gets the next permit.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the pool is closed, or is closed while this waits.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has acquired no permit, and loses its place in the order. A future that is kept without being
    /// polled may hold up others that wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().threads(2).max_outstanding(10).build()?;
    /// for n in 0..1_000 {
    ///     drop(pool.reserve().await?.spawn(move || n * n));
    /// }
    /// assert_eq!(pool.metrics().rejected, 0);
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, Self>, Closed> {
        Permit::reserve(self).await
    }
}

impl Bounded for ComputePool {
    async fn acquire_permit(&self) -> Result<(), Closed> {
        match &self.shared().semaphore {
            Some(semaphore) => semaphore.acquire().await.map_err(|_| Closed::new(())),
            None if self.is_closed() => Err(Closed::new(())),
            None => Ok(()),
        }
    }

    fn release_permit(&self) {
        self.shared().release_permit();
    }
}

impl Permit<'_, ComputePool> {
    /// Runs a closure on a thread of the pool, without a handle.
    ///
    /// # Errors
    ///
    /// [`Closed`], with the closure, if the pool is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().max_outstanding(1).build()?;
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let permit = pool.reserve().await?;
    /// permit.execute(move || send.send(7).expect("the receiver exists"))?;
    /// assert_eq!(receive.recv()?, 7);
    /// # Ok(()) }
    /// ```
    pub fn execute<F>(self, f: F) -> Result<(), Closed<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.consume().execute_with_permit(f).map_err(Closed::new)
    }

    /// Runs a closure on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`ComputePool::spawn`], but the pool is never full.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().max_outstanding(1).build()?;
    /// assert_eq!(pool.reserve().await?.spawn(|| 7).await?, 7);
    /// # Ok(()) }
    /// ```
    pub fn spawn<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.consume().spawn_with_permit(f)
    }
}
