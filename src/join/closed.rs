#![allow(dead_code, reason = "the parts adopt it one after the other")]
//! [`Closed`]: the error of operations that fail for one reason only.

use std::error::Error;
use std::fmt;

use crate::sync::Unshared;

/// The executor is closed. Carries what it did not accept.
///
/// It is `Send` and `Sync` whenever `T` is `Send`, so `?` converts it into `anyhow::Error` or
/// `Box<dyn Error + Send + Sync>` even if it carries a closure that is not `Sync`.
///
/// # Examples
///
/// ```
/// use throng::BlockingPool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(1).queue_capacity(1).build()?;
/// pool.close();
/// assert!(pool.reserve().await.is_err());
/// # Ok(()) }
/// ```
pub struct Closed<T = ()>(Unshared<T>);

impl<T> Closed<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Unshared::new(value))
    }

    /// Returns what was not accepted.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, done) = throng::CompletionStream::<()>::builder().build()?;
    /// drop(done);
    /// let refused = jobs.slot(()).await.unwrap_err();
    /// let () = refused.into_inner();
    /// # Ok(()) }
    /// ```
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Replaces what was not accepted.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Closed<U> {
        Closed::new(f(self.into_inner()))
    }
}

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the executor is closed")
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<T> Error for Closed<T> {}
