//! Running a fixed number of futures: all of them, or until the first succeeds.

use std::error::Error;
use std::fmt;
use std::iter::Enumerate;

use super::stream::{Completed, CompletionStream};
use super::submitter::Submitter;
use crate::join::JoinError;

/// The maximum number of futures that run at the same time.
const MAX_RUNNING: usize = 1_024;

impl<T: Send + 'static> CompletionStream<T> {
    /// Runs futures on the current Tokio runtime, and returns the outcomes of all of them, in the order of the
    /// iterator.
    ///
    /// At most 1,024 run at a time. The next future is taken from the iterator when one has ended. For another limit,
    /// or to see the outcomes as they come, use a stream.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the futures are aborted, and their outputs are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let squares = CompletionStream::all((1..=3).map(|n| async move { n * n })).await;
    /// let squares: Vec<_> = squares.into_iter().collect::<Result<_, _>>()?;
    /// assert_eq!(squares, [1, 4, 9]);
    /// # Ok(()) }
    /// ```
    pub async fn all<I>(futures: I) -> Vec<Result<T, JoinError>>
    where
        I: IntoIterator<Item: Future<Output = T> + Send + 'static>,
    {
        let mut jobs = Fixed::new(futures);
        let mut ended = InOrder::default();
        while let Some(completed) = jobs.next().await {
            ended.put(completed.tag, completed.outcome);
        }
        ended.into_vec()
    }
}

impl<T: Send + 'static, E: Send + 'static> CompletionStream<Result<T, E>> {
    /// Runs futures on the current Tokio runtime, and returns the outputs of all of them, in the order of the
    /// iterator. If one fails, the others are aborted.
    ///
    /// At most 1,024 run at a time, as with [`all`](CompletionStream::all).
    ///
    /// # Errors
    ///
    /// The first error or panic of a future. The rest of the iterator is not started.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the futures are aborted, and their outputs are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() {
    /// let parse = |text: &'static str| async move { text.parse::<u32>() };
    /// let numbers = CompletionStream::all_or_abort(["1", "2"].map(parse)).await;
    /// assert_eq!(numbers.unwrap(), [1, 2]);
    ///
    /// let error = CompletionStream::all_or_abort(["1", "two"].map(parse)).await.unwrap_err();
    /// assert_eq!(error.to_string(), "invalid digit found in string");
    /// # }
    /// ```
    pub async fn all_or_abort<I>(futures: I) -> Result<Vec<T>, JobError<E>>
    where
        I: IntoIterator<Item: Future<Output = Result<T, E>> + Send + 'static>,
    {
        let mut jobs = Fixed::new(futures);
        let mut ended = InOrder::default();
        while let Some(completed) = jobs.next().await {
            ended.put(completed.tag, JobError::flatten(completed.outcome)?);
        }
        Ok(ended.into_vec())
    }

    /// Runs futures on the current Tokio runtime, and returns the output of the first that succeeds. The others are
    /// aborted.
    ///
    /// At most 1,024 run at a time, as with [`all`](CompletionStream::all).
    ///
    /// # Errors
    ///
    /// The errors of all futures, in the order in which they failed, if none succeeded. Empty if there were none.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the futures are aborted, and their outputs are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() {
    /// let ask = |mirror| async move { if mirror == 2 { Ok(mirror) } else { Err("down") } };
    /// assert_eq!(CompletionStream::first_ok((1..=3).map(ask)).await.unwrap(), 2);
    /// assert_eq!(CompletionStream::first_ok((4..=6).map(ask)).await.unwrap_err().len(), 3);
    /// # }
    /// ```
    pub async fn first_ok<I>(futures: I) -> Result<T, Vec<JobError<E>>>
    where
        I: IntoIterator<Item: Future<Output = Result<T, E>> + Send + 'static>,
    {
        let mut jobs = Fixed::new(futures);
        let mut failed = Vec::new();
        while let Some(completed) = jobs.next().await {
            match JobError::flatten(completed.outcome) {
                Ok(output) => return Ok(output),
                Err(error) => failed.push(error),
            }
        }
        Err(failed)
    }
}

/// The reason why a future did not succeed: it returned an error, or it did not return.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError<E> {
    /// The future returned an error.
    Failed(E),
    /// The future panicked, or did not run to its end.
    Ended(JoinError),
}

impl<E> JobError<E> {
    fn flatten<T>(outcome: Result<Result<T, E>, JoinError>) -> Result<T, Self> {
        outcome.map_err(Self::Ended)?.map_err(Self::Failed)
    }
}

impl<E: fmt::Display> fmt::Display for JobError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Ended(error) => error.fmt(f),
        }
    }
}

/// Displays as the inner error, so the source is the inner error's source.
impl<E: Error> Error for JobError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Ended(error) => error.source(),
        }
    }
}

/// The futures of an iterator, which are submitted as others end.
struct Fixed<T: Send + 'static, I: Iterator> {
    /// `None` once all were submitted.
    jobs: Option<Submitter<T, usize>>,
    done: CompletionStream<T, usize>,
    futures: Enumerate<I>,
}

impl<T, I> Fixed<T, I>
where
    T: Send + 'static,
    I: Iterator<Item: Future<Output = T> + Send + 'static>,
{
    fn new(futures: impl IntoIterator<IntoIter = I>) -> Self {
        let (jobs, done) = CompletionStream::unbounded();
        Self {
            jobs: Some(jobs),
            done,
            futures: futures.into_iter().enumerate(),
        }
    }

    async fn next(&mut self) -> Option<Completed<T, usize>> {
        self.fill();
        self.done.next().await
    }

    /// Submits futures until the maximum runs. Nothing else submits to the stream.
    fn fill(&mut self) {
        while let Some(jobs) = &self.jobs
            && jobs.in_flight() < MAX_RUNNING
        {
            match self.futures.next() {
                Some((index, future)) => drop(jobs.try_submit(index, future)),
                None => self.jobs = None,
            }
        }
    }
}

/// Collects values that come out of order.
struct InOrder<T>(Vec<Option<T>>);

impl<T> InOrder<T> {
    fn put(&mut self, index: usize, value: T) {
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(value);
    }

    fn into_vec(self) -> Vec<T> {
        self.0.into_iter().flatten().collect()
    }
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
