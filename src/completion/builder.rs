//! How a stream of completions is made.

use std::fmt;
use std::marker::PhantomData;

use super::shared::Shared;
use super::{CompletionStream, Submitter};

/// How many completions stay in their cells, however long nobody reads them.
const KEPT: usize = 1_024;

/// Makes a [`CompletionStream`] and its [`Submitter`]: see [`CompletionStream::builder`].
pub struct Builder<T, K = ()> {
    max_running: usize,
    max_outstanding: Option<usize>,
    poll_in_place: bool,
    jobs: PhantomData<fn() -> (T, K)>,
}

impl<T: Send + 'static, K: Send + 'static> Builder<T, K> {
    pub(super) fn new() -> Self {
        Self {
            max_running: 1_024,
            max_outstanding: None,
            poll_in_place: false,
            jobs: PhantomData,
        }
    }

    /// How many jobs may be submitted and not finished: 1,024 by default. An open slot counts.
    ///
    /// # Panics
    ///
    /// Panics if it is 0: no job could ever run.
    #[track_caller]
    pub fn max_running(&mut self, jobs: usize) -> &mut Self {
        assert!(jobs > 0, "at least one job must be allowed to run");
        self.max_running = jobs;
        self
    }

    /// How many jobs may be submitted and not yet read from the stream: by default, four times
    /// `max_running`. It is the back-pressure of a slow reader.
    ///
    /// # Panics
    ///
    /// Panics if it is 0: no job could ever be submitted.
    #[track_caller]
    pub fn max_outstanding(&mut self, jobs: usize) -> &mut Self {
        assert!(
            jobs > 0,
            "at least one job must be allowed to be outstanding"
        );
        self.max_outstanding = Some(jobs);
        self
    }

    /// Whether a future that is [submitted](Submitter::submit) is polled once where it is submitted, by the
    /// task that does, and not by one of those that the stream has for it: off by default.
    ///
    /// A job that is ready at once, an answer from a cache for instance, then has finished when `submit`
    /// returns, and costs less still. One that is pending becomes a task of its own.
    ///
    /// - The first poll is a part of the task that submits: its thread, its `task_local!` values, its
    ///   share of Tokio's budget. What a job does before it first waits, no other thread does meanwhile,
    ///   and one that blocks there blocks the task that submits: leave this off for jobs that compute.
    /// - A job may be polled without having been woken, which every future must bear. The waker of its
    ///   first poll does nothing: from the second on, it gets that of its own task, and must use it.
    /// - A loop that submits ready jobs yields to other tasks now and then, as other Tokio operations do.
    /// - A job that is submitted while another is polled in place on the same thread is spawned.
    /// - Panics are caught, as elsewhere. Without a runtime, jobs that are ready at once succeed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use throng::CompletionStream;
    ///
    /// let (jobs, mut done) = CompletionStream::builder().poll_in_place(true).build();
    /// jobs.submit("cached", async { 7 }).await?;
    /// // It has finished already.
    /// let first = done.next().await.expect("one is outstanding");
    /// assert_eq!((first.tag, first.outcome?), ("cached", 7));
    /// # Ok(()) }
    /// ```
    pub fn poll_in_place(&mut self, yes: bool) -> &mut Self {
        self.poll_in_place = yes;
        self
    }

    /// Makes the two ends.
    pub fn build(&self) -> (Submitter<T, K>, CompletionStream<T, K>) {
        let max_outstanding = self
            .max_outstanding
            .unwrap_or_else(|| self.max_running.saturating_mul(4));
        CompletionStream::with_ledger(
            Shared::new(self.max_running, max_outstanding, KEPT)
                .polling_in_place(self.poll_in_place),
        )
    }
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
