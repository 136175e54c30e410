//! [`Builder`]: the options of a new pool.

use std::io;
use std::time::Duration;

use tokio::runtime::Handle;

use super::options::{Growth, Hook, Options};
use super::overflow::Overflow;
use super::pool::BlockingPool;

/// Builds a [`BlockingPool`]: see [`BlockingPool::builder`].
///
/// The defaults are those of Tokio's pool: no core threads, at most 512 threads, a keep-alive of 10 seconds, an
/// unbounded queue.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::BlockingPool;
/// use throng::blocking::Overflow;
///
/// # fn main() -> std::io::Result<()> {
/// let pool = BlockingPool::builder()
///     .name("disk")
///     .core_threads(2)
///     .max_threads(16)
///     .queue_capacity(100)
///     .keep_alive(Duration::from_secs(30))
///     .grow_after(Duration::from_micros(200))
///     .overflow(Overflow::RunOnCaller)
///     .build()?;
/// assert_eq!(pool.metrics().threads, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    options: Options,
}

impl BlockingPool {
    /// Returns a builder with the default options.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let pool = throng::BlockingPool::builder().max_threads(4).queue_capacity(100).build()?;
    /// assert_eq!(pool.metrics().threads, 0);
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder {
            options: Options::default(),
        }
    }

    /// Creates a pool with the default options of [`Builder`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let pool = throng::BlockingPool::new();
    /// assert_eq!(pool.spawn_blocking(|| 7).await?, 7);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options {
            runtime: Handle::try_current().ok(),
            ..Options::default()
        })
    }
}

impl Default for BlockingPool {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Sets the name of the threads, to which a number is appended: `throng-blocking` by default. Most systems show
    /// the first 15 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().name("disk").build()?;
    /// let name = pool.spawn_blocking(|| std::thread::current().name().map(String::from));
    /// assert_eq!(name.await?.as_deref(), Some("disk-0"));
    /// # Ok(()) }
    /// ```
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.options.name = name.into();
        self
    }

    /// Sets the number of idle threads that never exit: 0 by default. They are created when they are first needed, or
    /// by [`prestart_core_threads`](BlockingPool::prestart_core_threads).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().core_threads(2).build()?;
    /// assert_eq!(pool.prestart_core_threads()?, 2);
    /// # Ok(()) }
    /// ```
    pub fn core_threads(&mut self, threads: usize) -> &mut Self {
        self.options.limits.core_threads = threads;
        self
    }

    /// Sets the maximum number of threads: 512 by default.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(2).build()?;
    /// for _ in 0..100 {
    ///     drop(pool.spawn_blocking(|| ()));
    /// }
    /// assert!(pool.metrics().largest <= 2);
    /// # Ok(()) }
    /// ```
    pub fn max_threads(&mut self, threads: usize) -> &mut Self {
        self.options.limits.max_threads = threads;
        self
    }

    /// Sets how many tasks may wait while all threads are busy: unbounded by default. With 0, a task is accepted
    /// only if a thread can take it at once.
    ///
    /// The pool accepts at most `max_threads + tasks` tasks that have not ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(1).queue_capacity(0).build()?;
    /// let (open, gate) = std::sync::mpsc::channel::<()>();
    /// let running = pool.spawn_blocking(move || gate.recv().is_ok());
    /// assert!(pool.try_spawn_blocking(|| ()).is_err_and(|error| error.is_full()));
    /// # drop(open);
    /// # running.blocking_join()?;
    /// # Ok(()) }
    /// ```
    pub fn queue_capacity(&mut self, tasks: usize) -> &mut Self {
        self.options.queue_capacity = Some(tasks);
        self
    }

    /// Sets how long a thread beyond the core threads waits for a task before it exits: 10 seconds by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut builder = throng::BlockingPool::builder();
    /// let pool = builder.keep_alive(Duration::from_millis(1)).build()?;
    /// pool.spawn_blocking(|| ()).await?;
    /// while pool.metrics().threads > 0 {
    ///     tokio::time::sleep(Duration::from_millis(1)).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn keep_alive(&mut self, time: Duration) -> &mut Self {
        self.options.limits.keep_alive = time;
        self
    }

    /// Sets whether idle core threads exit after the keep-alive, too: `false` by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder()
    ///     .core_threads(1)
    ///     .keep_alive(Duration::from_millis(1))
    ///     .allow_core_timeout(true)
    ///     .build()?;
    /// pool.prestart_core_threads()?;
    /// while pool.metrics().threads > 0 {
    ///     tokio::time::sleep(Duration::from_millis(1)).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn allow_core_timeout(&mut self, allow: bool) -> &mut Self {
        self.options.limits.core_timeout = allow;
        self
    }

    /// Sets for how long no task must have been taken from the queue before the pool creates more threads. The default
    /// is zero.
    ///
    /// The first [`core_threads`](Self::core_threads), at least one, are created as soon as tasks need them. Beyond
    /// these, the pool grows as follows:
    ///
    /// - With zero, whenever a task arrives that no idle thread will take. This suits tasks that block, and tasks that
    ///   wait for one another.
    /// - With a time, when no task has been taken from the queue for this long: it creates one thread, then two, then
    ///   four, until threads take tasks again. This avoids a burst of threads for tasks of a few microseconds, and yet
    ///   the pool grows if all its threads block. A fraction of a millisecond suits a server.
    /// - With [`Duration::MAX`], only when the queue is full, as the thread pools of Java do. Without a
    ///   [`queue_capacity`](Self::queue_capacity), there are never more than the core threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // A second thread only if the first takes no task for 200 microseconds.
    /// let pool = throng::BlockingPool::builder().grow_after(Duration::from_micros(200)).build()?;
    /// for n in 0..100 {
    ///     drop(pool.spawn_blocking(move || n * n));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn grow_after(&mut self, time: Duration) -> &mut Self {
        self.options.growth = Growth::after(time);
        self
    }

    /// Sets what happens to a task that finds the queue full: [`Overflow::Reject`] by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::blocking::Overflow;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder()
    ///     .max_threads(1)
    ///     .queue_capacity(1)
    ///     .overflow(Overflow::RunOnCaller)
    ///     .build()?;
    /// let sums = (0..10).map(|n| pool.spawn_blocking(move || n));
    /// // No task is rejected: this thread runs those that find the queue full.
    /// for (n, sum) in sums.enumerate() {
    ///     assert_eq!(sum.blocking_join()?, n);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn overflow(&mut self, overflow: Overflow) -> &mut Self {
        self.options.overflow = overflow;
        self
    }

    /// Sets a hook that each thread calls when it starts.
    ///
    /// Like all hooks, it should be short. A panic in a hook is reported by the panic hook of the process and has no
    /// other effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let pool = throng::BlockingPool::builder()
    ///     .on_thread_start(move || send.send("started").expect("the receiver exists"))
    ///     .build()?;
    /// pool.spawn_blocking(|| ()).await?;
    /// assert_eq!(receive.recv()?, "started");
    /// # Ok(()) }
    /// ```
    pub fn on_thread_start(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.on_thread_start = Hook::new(f);
        self
    }

    /// Sets a hook that each thread calls before it exits.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let pool = throng::BlockingPool::builder()
    ///     .on_thread_stop(move || send.send("stops").expect("the receiver exists"))
    ///     .build()?;
    /// pool.spawn_blocking(|| ()).await?;
    /// pool.close();
    /// assert_eq!(receive.recv()?, "stops");
    /// # Ok(()) }
    /// ```
    pub fn on_thread_stop(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.on_thread_stop = Hook::new(f);
        self
    }

    /// Sets a hook that is called before each task, on its thread.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (before, events) = std::sync::mpsc::channel();
    /// let after = before.clone();
    /// let pool = throng::BlockingPool::builder()
    ///     .before_task(move || _ = before.send("before"))
    ///     .after_task(move || _ = after.send("after"))
    ///     .build()?;
    /// pool.spawn_blocking(|| ()).await?;
    /// assert_eq!(events.try_iter().collect::<Vec<_>>(), ["before", "after"]);
    /// # Ok(()) }
    /// ```
    pub fn before_task(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.before_task = Hook::new(f);
        self
    }

    /// Sets a hook that is called after each task, on its thread, even if the task has panicked. It runs before the
    /// outcome of the task is visible.
    ///
    /// # Examples
    ///
    /// See [`before_task`](Self::before_task).
    pub fn after_task(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.after_task = Hook::new(f);
        self
    }

    /// Sets the stack size of the threads, in bytes: by default that of [`std::thread`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().thread_stack_size(256 * 1024).build()?;
    /// # drop(pool);
    /// # Ok(()) }
    /// ```
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.options.stack_size = Some(bytes);
        self
    }

    /// Runs all tasks in this runtime, so that `Handle::current()`, `tokio::spawn` and `Handle::block_on` in a task
    /// use it.
    ///
    /// By default a task runs in the runtime of its submitter. A task that is submitted outside of any runtime runs
    /// in the one that [`build`](Self::build) was called in, if any.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::runtime::Handle;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tokio::runtime::Runtime::new()?;
    /// let pool = throng::BlockingPool::builder().runtime(runtime.handle().clone()).build()?;
    /// let id = pool.spawn_blocking(|| Handle::current().id()).blocking_join()?;
    /// assert_eq!(id, runtime.handle().id());
    /// # Ok(()) }
    /// ```
    pub fn runtime(&mut self, runtime: Handle) -> &mut Self {
        self.options.runtime = Some(runtime);
        self.options.runtime_is_pinned = true;
        self
    }

    /// Creates the pool. Its threads are created when they are first needed.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidInput`](io::ErrorKind::InvalidInput) if [`max_threads`](Self::max_threads) is 0, if
    /// [`core_threads`](Self::core_threads) exceeds it, or if the [`name`](Self::name) contains a zero byte.
    ///
    /// # Examples
    ///
    /// ```
    /// let error = throng::BlockingPool::builder().max_threads(0).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    pub fn build(&self) -> io::Result<BlockingPool> {
        self.options.check()?;
        let mut options = self.options.clone();
        if options.runtime.is_none() {
            options.runtime = Handle::try_current().ok();
        }
        Ok(BlockingPool::with_options(options))
    }

    /// Makes a pool whose tasks run in no runtime.
    #[cfg(any(test, feature = "durable"))]
    pub(crate) fn build_outside(&self) -> BlockingPool {
        BlockingPool::with_options(Options {
            runtime_is_pinned: true,
            ..self.options.clone()
        })
    }
}
