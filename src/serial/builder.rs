//! The builder of an executor.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::executor::SerialExecutor;
use super::options::Options;
use crate::join::Spawn;

/// Builds a [`SerialExecutor`]. See [`SerialExecutor::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<S> {
    options: Options,
    state: PhantomData<fn(S)>,
}

impl<S> SerialExecutor<S> {
    /// Returns a builder with the default options.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// type Log = SerialExecutor<Vec<String>>;
    /// let log = Log::builder()
    ///     .queue_capacity(1_000)
    ///     .poison_on_panic(false)
    ///     .build(Vec::new())?;
    /// # drop(log);
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder<S> {
        Builder {
            options: Options::default(),
            state: PhantomData,
        }
    }
}

impl<S> Builder<S> {
    /// Sets how many jobs may wait in the queue. The queue is unbounded by default.
    ///
    /// A full queue rejects jobs; [`reserve`](SerialExecutor::reserve) waits instead. Not counted are a job that
    /// runs at once, a job that is submitted from inside a job of the same executor (it must not wait for
    /// itself), and a job of [`blocking_run`](SerialExecutor::blocking_run), whose thread waits for it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use throng::SerialExecutor;
    ///
    /// let counter = SerialExecutor::builder().queue_capacity(1).build(0)?;
    /// let handle = counter.clone();
    /// counter
    ///     .try_run(|_| {
    ///         // The executor is busy, so what another thread submits is queued.
    ///         std::thread::scope(|scope| {
    ///             scope.spawn(|| {
    ///                 assert!(handle.try_submit(|n| *n += 1).is_ok());
    ///                 assert!(handle.try_submit(|n| *n += 1).unwrap_err().is_full());
    ///             });
    ///         });
    ///     })
    ///     .expect("it was idle");
    /// # Ok(()) }
    /// ```
    pub fn queue_capacity(&mut self, jobs: usize) -> &mut Self {
        self.options.queue_capacity = Some(jobs);
        self
    }

    /// Sets whether an idle executor runs a job at once, on the thread that submits it. The default is `true`.
    ///
    /// With `false`, [`submit`](SerialExecutor::submit) queues the job as [`post`](SerialExecutor::post) does, and
    /// [`capture_jobs`](Self::capture_jobs) is 0. This is for submitters that hold locks which jobs take, or that
    /// must not be delayed by long jobs.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let log = throng::SerialExecutor::builder().inline(false).build(Vec::new())?;
    /// // A Tokio task runs the job, not this one.
    /// log.submit(|log| log.push("entry")).await?;
    /// assert_eq!(log.metrics().inline, 0);
    /// # Ok(()) }
    /// ```
    pub fn inline(&mut self, inline: bool) -> &mut Self {
        self.options.inline = inline;
        self
    }

    /// Sets how many queued jobs a submitting thread runs after its own job, before it hands the rest over. The
    /// default is 16.
    ///
    /// Without a Tokio runtime on that thread, and without [`drain_on`](Self::drain_on), nothing can take the rest,
    /// so the thread runs all of them. Inside a job of another executor, the thread hands the queue over at once if
    /// it can, because a captured job may wait for that other executor.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // A submitting thread runs its own job only.
    /// let log = throng::SerialExecutor::builder().capture_jobs(0).build(Vec::new())?;
    /// log.submit(|log| log.push("entry")).await?;
    /// assert_eq!(log.metrics().captured, 0);
    /// # Ok(()) }
    /// ```
    pub fn capture_jobs(&mut self, jobs: usize) -> &mut Self {
        self.options.capture_jobs = jobs;
        self
    }

    /// Sets for about how long a submitting thread runs queued jobs of others. The default is 20 microseconds.
    ///
    /// The clock is read before the first job and after every fourth.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let log = throng::SerialExecutor::builder()
    ///     .capture_jobs(100)
    ///     .capture_time(Duration::from_micros(50))
    ///     .build(Vec::new())?;
    /// log.submit(|log| log.push("entry")).await?;
    /// # Ok(()) }
    /// ```
    pub fn capture_time(&mut self, time: Duration) -> &mut Self {
        self.options.capture_time = time;
        self
    }

    /// Sets whether a job that panics poisons the state. The default is `true`.
    ///
    /// A poisoned executor is like a poisoned [`std::sync::Mutex`]: queued and later jobs end with
    /// [`is_poisoned`](crate::JoinError::is_poisoned), until [`clear_poison`](SerialExecutor::clear_poison) or
    /// [`reset`](SerialExecutor::reset). With `false`, later jobs run on the state as the panic left it, as with
    /// [`tokio::sync::Mutex`]. A [transaction](SerialExecutor::transact) that panics is rolled back in either case.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::builder().poison_on_panic(false).build(1)?;
    /// let failed: Result<(), _> = count.submit(|_| panic!("harmless")).await;
    /// assert!(failed.is_err_and(|error| error.is_panic()));
    /// assert_eq!(count.submit(|n| *n).await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn poison_on_panic(&mut self, poison: bool) -> &mut Self {
        self.options.poison_on_panic = poison;
        self
    }

    /// Sets the runtime or the pool that queues are handed over to. The default is the Tokio runtime of the thread
    /// that hands the queue over.
    ///
    /// If tasks of a pool wait for jobs of this executor, they occupy threads that the queue needs. Use another
    /// pool where such tasks may occupy all threads: this deadlock is not detected.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::{BlockingPool, SerialExecutor};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = BlockingPool::builder().max_threads(1).build()?;
    /// let index = SerialExecutor::builder().drain_on(pool).build(Vec::new())?;
    /// // No Tokio runtime is needed: the job runs on the pool.
    /// let length = index.post(|index| {
    ///     index.push("entry");
    ///     index.len()
    /// });
    /// assert_eq!(length.blocking_join()?, 1);
    /// # Ok(()) }
    /// ```
    pub fn drain_on(&mut self, spawn: impl Spawn) -> &mut Self {
        self.options.drain_on = Some(Arc::new(spawn));
        self
    }
}

impl<S: Send + 'static> Builder<S> {
    /// Builds the executor around its state.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the options would reject every job:
    /// [`queue_capacity(0)`](Self::queue_capacity) together with [`inline(false)`](Self::inline).
    ///
    /// # Examples
    ///
    /// ```
    /// let error = throng::SerialExecutor::builder().inline(false).queue_capacity(0).build(()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    pub fn build(&self, state: S) -> io::Result<SerialExecutor<S>> {
        let options = self.options.clone().validated()?;
        Ok(SerialExecutor::with_options(state, options))
    }
}

impl<S> fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("queue_capacity", &self.options.queue_capacity)
            .field("inline", &self.options.inline)
            .field("capture_jobs", &self.options.capture_jobs)
            .field("capture_time", &self.options.capture_time)
            .field("poison_on_panic", &self.options.poison_on_panic)
            .field("drain_on", &self.options.drain_on.is_some())
            .finish()
    }
}
