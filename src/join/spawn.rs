//! [`Spawn`]: how one part of the crate runs its tasks on another.

use tokio::runtime::Handle;

use super::sealed::Sealed;
use super::work::Work;

/// Runs [`Work`]: a Tokio runtime, or a pool of this crate.
///
/// A [`SerialExecutor`](crate::SerialExecutor) drains its queue on one, and a
/// [`CompletionStream`](crate::CompletionStream) runs its jobs on one. The trait is sealed: this crate implements
/// it for [`tokio::runtime::Handle`] and for its pools.
///
/// # Examples
///
/// ```
/// use throng::{BlockingPool, CompletionStream, Spawn};
/// use tokio::runtime::Handle;
///
/// /// Runs a job on any executor.
/// async fn answer(executor: &impl Spawn) -> Result<u32, Box<dyn std::error::Error>> {
///     let (jobs, mut done) = CompletionStream::builder().build()?;
///     jobs.submit_blocking(executor, (), || 42).await?;
///     let completed = done.next().await.expect("one job is in flight");
///     Ok(completed.outcome?)
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// assert_eq!(answer(&Handle::current()).await?, 42);
/// assert_eq!(answer(&BlockingPool::builder().build()?).await?, 42);
/// # Ok(()) }
/// ```
// No method has the name of an inherent method of an implementor, which would win over it.
pub trait Spawn: Sealed + Send + Sync + 'static {
    /// Runs the work later, and not on this thread.
    ///
    /// # Errors
    ///
    /// Returns the work if it is not accepted. Dropping the work cancels its task.
    fn spawn_work(&self, work: Work) -> Result<(), Work>;
}

impl Sealed for Handle {}

/// Work that blocks runs on the runtime's blocking threads, all other work on its workers.
impl Spawn for Handle {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        if work.is_blocking() {
            drop(self.spawn_blocking(move || work.run()));
        } else {
            drop(self.spawn(work));
        }
        Ok(())
    }
}
