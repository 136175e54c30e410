//! [`Metrics`]: a snapshot of the jobs of a stream.

use super::shared::Shared;
use super::stream::CompletionStream;
use super::submitter::Submitter;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use crate::weak_part::{ReadPart, WeakPart};

/// A snapshot of the jobs of a [`CompletionStream`].
///
/// The numbers are read one after the other while jobs come and go, so they need not add up.
///
/// # Examples
///
/// ```
/// use throng::CompletionStream;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (jobs, mut done) = CompletionStream::builder().build()?;
/// jobs.submit("good", async { 7 }).await?;
/// jobs.submit("bad", async { panic!("harmless") }).await?;
/// done.next().await;
/// done.next().await;
/// let metrics = done.metrics();
/// assert_eq!((metrics.submitted, metrics.read), (2, 2));
/// assert_eq!((metrics.completed, metrics.panicked), (1, 1));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Jobs that have not finished, open [slots](super::Slot) included. The jobs that are being submitted are counted, too.
    pub running: u64,
    /// Jobs that were submitted and not read.
    pub in_flight: u64,
    /// Of these, jobs that have finished.
    pub ready: u64,
    /// Jobs submitted so far.
    pub submitted: u64,
    /// Jobs read so far.
    pub read: u64,
    /// Jobs read so far that have returned an output.
    pub completed: u64,
    /// Jobs read so far that have panicked.
    pub panicked: u64,
    /// Jobs read so far that were aborted, lost, or refused by a pool.
    pub cancelled: u64,
    /// Calls for a job, a slot or a permit that were refused so far because the stream was full or closed.
    pub rejected: u64,
}

impl<T, K> Shared<T, K> {
    fn metrics(&self) -> Metrics {
        let running = self.queue.running.count() as u64;
        let jobs = self.counts();
        Metrics {
            running,
            in_flight: jobs.in_flight,
            ready: jobs.in_flight.saturating_sub(running),
            submitted: jobs.submitted,
            read: jobs.read,
            completed: jobs.completed,
            panicked: jobs.panicked,
            cancelled: jobs.cancelled,
            rejected: jobs.rejected,
        }
    }
}

impl<T: Send + 'static, K: Send + 'static> Submitter<T, K> {
    /// Returns a snapshot of the jobs of the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, _done) = CompletionStream::builder().build()?;
    /// jobs.slot(()).await?.complete(7);
    /// let metrics = jobs.metrics();
    /// assert_eq!((metrics.submitted, metrics.running, metrics.ready), (1, 0, 1));
    /// # Ok(()) }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.shared().metrics()
    }

    #[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
    pub(crate) fn weak_part(&self) -> impl ReadPart<Metrics> + use<T, K> {
        WeakPart::new(self.shared(), Shared::metrics)
    }
}

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Returns a snapshot of the jobs of the stream.
    ///
    /// # Examples
    ///
    /// See [`Metrics`].
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    #[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
    pub(crate) fn weak_part(&self) -> impl ReadPart<Metrics> + use<T, K> {
        WeakPart::new(&self.shared, Shared::metrics)
    }
}
