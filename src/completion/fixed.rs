//! All of a given number of futures, or the first of them.

use std::error::Error;
use std::fmt;
use std::iter::Enumerate;

use super::{Completed, CompletionStream, Submitter};
use crate::join::JoinError;

/// How many futures run at the same time, at most.
const RUNNING: usize = 1_024;

impl<T: Send + 'static> CompletionStream<T> {
    /// Runs futures as tasks of the current Tokio runtime, and returns how all of them have ended, in the
    /// order of the iterator.
    ///
    /// At most 1,024 run at a time; the next is taken from the iterator when one has ended. For other
    /// bounds, and to see the outcomes as they come, use a stream.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so are the futures, and what they returned.
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
    /// Runs futures as tasks of the current Tokio runtime, and returns what all of them returned, in the
    /// order of the iterator; or how the first failed, at once, and the others are aborted.
    ///
    /// At most 1,024 run at a time, as with [`all`](CompletionStream::all).
    ///
    /// # Errors
    ///
    /// One of them returned an error, or panicked. Of the rest of the iterator, none was started.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so are the futures, and what they returned.
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

    /// Runs futures as tasks of the current Tokio runtime, and returns what the first of them returned that
    /// does not fail, as soon as it has; the others are aborted.
    ///
    /// At most 1,024 run at a time, as with [`all`](CompletionStream::all).
    ///
    /// # Errors
    ///
    /// All have failed: how, in the order in which they did. Nothing is there if there were none.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so are the futures, and what they returned.
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

/// Why a future has no result: it returned an error itself, or did not return.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError<E> {
    /// It returned an error.
    Failed(E),
    /// It panicked, or was not run to its end.
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

/// The same text is printed once: the source is that of the error.
impl<E: Error> Error for JobError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Ended(error) => error.source(),
        }
    }
}

/// Futures of an iterator, submitted as others end.
struct Fixed<T: Send + 'static, I: Iterator> {
    /// `None`: all were submitted.
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
        let (jobs, done) = CompletionStream::builder().max_running(RUNNING).build();
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

    /// Submits what there is room for. Nobody else submits.
    fn fill(&mut self) {
        while let Some(jobs) = &self.jobs
            && jobs.in_flight() < RUNNING
        {
            match self.futures.next() {
                Some((index, future)) => drop(jobs.try_submit(index, future)),
                None => self.jobs = None,
            }
        }
    }
}

/// Values that come out of order.
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
