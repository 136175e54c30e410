//! A future that tries another one again.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep};

use super::Retry;

impl Retry {
    /// Runs a future, and runs another one if it returns an error, until one succeeds, no attempt is left, or the next
    /// attempt would begin after the [total time](Self::max_elapsed). Returns the output of the last.
    ///
    /// `make` makes the futures. It is called with the attempt number, starting at 1. All attempts are one future, so
    /// they are one job wherever that is submitted: a [`CompletionStream`](crate::CompletionStream), a Tokio task, a
    /// [`SerialExecutor`](crate::SerialExecutor). Aborting the job ends it, even while it waits for the next attempt.
    /// A panic of a future is not tried again: see [`run_if`](Self::run_if).
    ///
    /// In a [`CompletionStream`](crate::CompletionStream), the job counts as running while it waits for the next
    /// attempt. So if everything fails, the submitters are slowed down. If the waits are to be long, submit a failed
    /// job again when its item comes.
    ///
    /// # Panics
    ///
    /// The future panics at its first wait outside of a Tokio runtime with
    /// [time](tokio::runtime::Builder::enable_time).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the attempt that runs, and no other follows.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::{CompletionStream, Retry};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let retry = Retry::exponential().attempts(5).base(Duration::from_millis(1));
    /// let fetch = |attempt| async move {
    ///     if attempt < 3 { Err("busy") } else { Ok(("page", attempt)) }
    /// };
    /// jobs.submit("url", retry.run(fetch)).await.ok();
    ///
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert_eq!(completed.outcome?, Ok(("page", 3)));
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, M, F>(self, make: M) -> Result<T, E>
    where
        M: FnMut(u32) -> F,
        F: Future<Output = Result<T, E>>,
    {
        self.run_if(make, |tried| tried.is_ok_and(Result::is_err))
            .await
    }

    /// As [`run`](Self::run), for outputs of any type: `should_retry` decides after each attempt whether to make
    /// another. It is called only if an attempt is left and would begin within the [total time](Self::max_elapsed).
    ///
    /// Its argument is an `Err` with the panic's payload if the future, or `make`, panicked. If it returns `false`, or
    /// if no further attempt is allowed, the panic propagates.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and if the last attempt panics.
    ///
    /// # Cancel safety
    ///
    /// As that of [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::Retry;
    ///
    /// # #[tokio::main] async fn main() {
    /// let retry = Retry::exponential().attempts(2).base(Duration::from_millis(1));
    /// let poll = |attempt| async move { if attempt == 1 { panic!("not yet") } else { 200 } };
    /// let status = retry.run_if(poll, |status| *status.unwrap_or(&500) >= 500).await;
    /// assert_eq!(status, 200);
    /// # }
    /// ```
    pub async fn run_if<T, M, F, P>(self, mut make: M, mut should_retry: P) -> T
    where
        M: FnMut(u32) -> F,
        F: Future<Output = T>,
        P: FnMut(Result<&T, &(dyn Any + Send)>) -> bool,
    {
        let (mut attempt, mut first_failure) = (1, None);
        loop {
            let tried = catch_panic(|| make(attempt)).await;
            let elapsed = first_failure.get_or_insert_with(Instant::now).elapsed();
            let wait = self
                .delay(attempt)
                .filter(|&wait| self.allows(wait, elapsed))
                .filter(|_| should_retry(tried.as_ref().map_err(Box::as_ref)));
            let Some(wait) = wait else {
                // Not reported to the panic hook a second time.
                return tried.unwrap_or_else(|payload| resume_unwind(payload));
            };
            // Not kept during the wait.
            drop(tried);
            sleep(wait).await;
            attempt += 1;
        }
    }
}

/// Runs a future, and returns its output or the payload of its panic.
async fn catch_panic<F: Future>(
    make: impl FnOnce() -> F,
) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(catch_unwind(AssertUnwindSafe(make))?);
    poll_fn(|cx| {
        let poll = || future.as_mut().poll(cx);
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    })
    .await
}
