//! [`Builder`]: the options of a new stream.

use std::fmt;
use std::io;
use std::marker::PhantomData;

use super::shared::Shared;
use super::stream::CompletionStream;
use super::submitter::Submitter;

/// The number of completions that stay in their cells, however long they are unread.
const SPILL_THRESHOLD: usize = 1_024;

const DEFAULT_MAX_RUNNING: usize = 1_024;

impl<T: Send + 'static, K: Send + 'static> CompletionStream<T, K> {
    /// Returns the options of a new stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().max_running(64).build()?;
    /// jobs.submit("tag", async { 7 }).await?;
    /// assert_eq!(done.next().await.expect("one is outstanding").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder<T, K> {
        Builder {
            max_running: DEFAULT_MAX_RUNNING,
            max_outstanding: None,
            poll_in_place: false,
            jobs: PhantomData,
        }
    }
}

impl<T, K> CompletionStream<T, K> {
    /// The two ends of a stream without limits, for owners that submit without waiting.
    pub(super) fn unbounded() -> (Submitter<T, K>, Self) {
        Self::new(Shared::new(usize::MAX, usize::MAX, SPILL_THRESHOLD))
    }
}

/// Builds a [`CompletionStream`] and its [`Submitter`]: see [`CompletionStream::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<T, K = ()> {
    max_running: usize,
    max_outstanding: Option<usize>,
    poll_in_place: bool,
    jobs: PhantomData<fn() -> (T, K)>,
}

impl<T: Send + 'static, K: Send + 'static> Builder<T, K> {
    /// Limits the jobs that were submitted and have not finished, open slots included. The default is 1,024.
    pub fn max_running(&mut self, jobs: usize) -> &mut Self {
        self.max_running = jobs;
        self
    }

    /// Limits the jobs that were submitted and have not been read from the stream. The default is four times
    /// `max_running`.
    ///
    /// This is the back-pressure of a slow reader: at the limit, submitters wait until a completion is read.
    pub fn max_outstanding(&mut self, jobs: usize) -> &mut Self {
        self.max_outstanding = Some(jobs);
        self
    }

    /// Polls each [submitted](Submitter::submit) future once where it is submitted, by the task that submits it. Off
    /// by default: the first poll is then done by one of the stream's own tasks.
    ///
    /// A job that is ready at once, such as an answer from a cache, then has finished when `submit` returns, and costs
    /// less. A job that is pending becomes a task of its own.
    ///
    /// - The first poll is a part of the submitting task: it has its thread, its `task_local!` values, and its share
    ///   of Tokio's budget. A job that computes or blocks before it first waits holds up the submitting task: leave
    ///   this off for such jobs.
    /// - A job may be polled without having been woken, which every future must allow. The waker of its first poll
    ///   does nothing. From the second poll on, it gets the waker of its own task, and must use that.
    /// - A loop that submits ready jobs yields to other tasks now and then, as other Tokio operations do.
    /// - A job that is submitted while another job is polled in place on the same thread is spawned.
    /// - Panics are caught, as elsewhere. Without a runtime, jobs that are ready at once succeed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::CompletionStream;
    ///
    /// let (jobs, mut done) = CompletionStream::builder().poll_in_place(true).build()?;
    /// jobs.submit("cached", async { 7 }).await?;
    /// // It has finished already.
    /// let first = done.try_next().expect("it has finished");
    /// assert_eq!((first.tag, first.outcome?), ("cached", 7));
    /// # Ok(()) }
    /// ```
    pub fn poll_in_place(&mut self, yes: bool) -> &mut Self {
        self.poll_in_place = yes;
        self
    }

    /// Builds the two ends of a stream.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if an option has a value with which no job could run.
    pub fn build(&self) -> io::Result<(Submitter<T, K>, CompletionStream<T, K>)> {
        let max_running = at_least_one("max_running", self.max_running)?;
        let max_outstanding = match self.max_outstanding {
            Some(jobs) => at_least_one("max_outstanding", jobs)?,
            None => max_running.saturating_mul(4),
        };
        let shared = Shared::new(max_running, max_outstanding, SPILL_THRESHOLD);
        Ok(CompletionStream::new(
            shared.polling_in_place(self.poll_in_place),
        ))
    }
}

fn at_least_one(option: &str, value: usize) -> io::Result<usize> {
    if value == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{option}` is 0, so no job could ever run: set it to 1 or more"),
        ));
    }
    Ok(value)
}

impl<T, K> fmt::Debug for Builder<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("max_running", &self.max_running)
            .field("max_outstanding", &self.max_outstanding)
            .field("poll_in_place", &self.poll_in_place)
            .finish()
    }
}
