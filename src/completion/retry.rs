//! Jobs that are tried again when they fail.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::sleep;

use super::Submitter;
use super::start::spawn_here;
use crate::join::{Id, JoinError, TrySpawnError};
use crate::retry::Retry;
use crate::sync::Arc;
use crate::task::Fault;

impl<T, E, K> Submitter<Result<T, E>, K>
where
    T: Send + 'static,
    E: Send + 'static,
    K: Send + 'static,
{
    /// Waits for room, and runs a future on the current Tokio runtime; if it returns an error,
    /// then another one, as often as `retry` says, and as late.
    ///
    /// `make` makes the futures: it is called with 1 for the first, 2 for the second, and so on. All are one
    /// job, with one [`Id`] and one item, which has the outcome of the last, and in
    /// [`attempts`](super::Completed::attempts) how many there were. A future that panics, or is aborted, is
    /// the last one: for other rules, see [`submit_retry_if`](Self::submit_retry_if).
    ///
    /// The job keeps its place among those that run while it waits to be tried again. So it is as sure to be
    /// tried as if it had run all the time; and where everything fails, the submitters are slowed down
    /// instead of adding to it. Waits count towards what `max_running` is chosen for: if they are to be
    /// long, submit what has failed anew when its item comes.
    ///
    /// [Closing](Self::close) the stream leaves the job its attempts; aborting it, and dropping the stream,
    /// ends it, also while it waits.
    ///
    /// The runtime needs [time](tokio::runtime::Builder::enable_time): without, the first wait is a panic
    /// of the job.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and `make`, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// As that of [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::{CompletionStream, Retry};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build();
    /// let retry = Retry::exponential().attempts(5).base(Duration::from_millis(1));
    /// let fetch = |attempt| async move {
    ///     if attempt < 3 { Err("busy") } else { Ok("page") }
    /// };
    /// jobs.submit_retry("url", retry, fetch).await.ok();
    ///
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert_eq!((completed.outcome?, completed.attempts), (Ok("page"), 3));
    /// # Ok(()) }
    /// ```
    pub async fn submit_retry<M, F>(
        &self,
        tag: K,
        retry: Retry,
        make: M,
    ) -> Result<Id, TrySpawnError<(K, M)>>
    where
        M: FnMut(u32) -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let failed = |outcome: Result<&Result<T, E>, &JoinError>| outcome.is_ok_and(Result::is_err);
        self.submit_retry_if(tag, retry, make, failed).await
    }
}

impl<T: Send + 'static, K: Send + 'static> Submitter<T, K> {
    /// As [`submit_retry`](Self::submit_retry), for outputs of any type: `again` says of each outcome
    /// whether it is worth another attempt. It is asked only if there is one left.
    ///
    /// The outcome of a future that panicked, or of a `make` that did, is an error that
    /// [`is_panic`](JoinError::is_panic). Jobs that are aborted are never tried again, and `again` is not
    /// asked; if it panics itself, that is the item.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) with tag and `make`, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// As that of [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::{CompletionStream, Retry};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build();
    /// let retry = Retry::exponential().attempts(2).base(Duration::from_millis(1));
    /// let poll = |attempt| async move { if attempt == 1 { panic!("not yet") } else { 200 } };
    /// jobs.submit_retry_if((), retry, poll, |status| *status.unwrap_or(&500) >= 500).await.ok();
    ///
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert_eq!((completed.outcome?, completed.attempts), (200, 2));
    /// # Ok(()) }
    /// ```
    pub async fn submit_retry_if<M, F, P>(
        &self,
        tag: K,
        retry: Retry,
        make: M,
        again: P,
    ) -> Result<Id, TrySpawnError<(K, M)>>
    where
        M: FnMut(u32) -> F + Send + 'static,
        F: Future<Output = T> + Send + 'static,
        P: FnMut(Result<&T, &JoinError>) -> bool + Send + 'static,
    {
        let Some(place) = self.place().await else {
            return Err(TrySpawnError::closed((tag, make)));
        };
        let shared = Arc::clone(self.shared());
        let job = place
            .wrap_of(tag, (make, again), |(make, again), id, key| {
                let counted = move |attempts| shared.note_attempts(key, attempts);
                try_until(retry, make, again, id, counted)
            })
            .map_err(|(tag, (make, _))| TrySpawnError::closed((tag, make)))?;
        let id = job.id();
        spawn_here(job);
        Ok(id)
    }
}

/// Makes attempts until one is good enough, or none is left.
async fn try_until<T, M, F, P>(
    retry: Retry,
    mut make: M,
    mut again: P,
    id: Id,
    counted: impl Fn(u32),
) -> T
where
    M: FnMut(u32) -> F,
    F: Future<Output = T>,
    P: FnMut(Result<&T, &JoinError>) -> bool,
{
    let mut attempts = 1;
    loop {
        let tried = try_once(|| make(attempts)).await;
        let outcome = tried.map_err(|payload| JoinError::new(id, Fault::panicked(payload)));
        let wait = retry.delay(attempts).filter(|_| again(outcome.as_ref()));
        let Some(wait) = wait else {
            // A panic is caught again where the job is run, which reports it, and not twice to the hook.
            return outcome.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        };
        // Not kept while it waits.
        drop(outcome);
        sleep(wait).await;
        attempts += 1;
        counted(attempts);
    }
}

/// What the future returned, or what it panicked with.
async fn try_once<F: Future>(make: impl FnOnce() -> F) -> Result<F::Output, Box<dyn Any + Send>> {
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
