//! How a stream of completions is made.

use std::fmt;
use std::marker::PhantomData;

use super::{CompletionStream, Submitter};

/// Makes a [`CompletionStream`] and its [`Submitter`]: see [`CompletionStream::builder`].
pub struct Builder<T, K = ()> {
    max_running: usize,
    max_outstanding: Option<usize>,
    jobs: PhantomData<fn() -> (T, K)>,
}

impl<T: Send + 'static, K: Send + 'static> Builder<T, K> {
    pub(super) fn new() -> Self {
        Self {
            max_running: 1_024,
            max_outstanding: None,
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

    /// Makes the two ends.
    pub fn build(&self) -> (Submitter<T, K>, CompletionStream<T, K>) {
        let max_outstanding = self
            .max_outstanding
            .unwrap_or_else(|| self.max_running.saturating_mul(4));
        CompletionStream::with_bounds(self.max_running, max_outstanding)
    }
}

impl<T, K> fmt::Debug for Builder<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("max_running", &self.max_running)
            .field("max_outstanding", &self.max_outstanding)
            .finish()
    }
}
