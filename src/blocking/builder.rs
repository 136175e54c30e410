//! [`Builder`]: how a pool is made.

use std::io;
use std::time::Duration;

use tokio::runtime::Handle;

use super::options::{Growth, Hook, Options};
use super::overflow::Overflow;
use super::pool::BlockingPool;

/// Makes a [`BlockingPool`]: see [`BlockingPool::builder`].
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
#[must_use = "a builder makes nothing until `build` is called"]
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

    /// Makes a pool with the default options of [`Builder`].
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
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.options.name = name.into();
        self
    }

    /// Sets how many idle threads never exit: 0 by default. They are created when they are first needed, as all
    /// others, or by [`prestart_core_threads`](BlockingPool::prestart_core_threads).
    pub fn core_threads(&mut self, threads: usize) -> &mut Self {
        self.options.limits.core_threads = threads;
        self
    }

    /// Sets the maximum number of threads: 512 by default.
    pub fn max_threads(&mut self, threads: usize) -> &mut Self {
        self.options.limits.max_threads = threads;
        self
    }

    /// Sets how many tasks may wait while all threads are busy: unbounded by default. With 0, a task is accepted
    /// only if a thread can take it at once.
    ///
    /// The pool accepts at most `max_threads + tasks` tasks that have not ended.
    pub fn queue_capacity(&mut self, tasks: usize) -> &mut Self {
        self.options.queue_capacity = Some(tasks);
        self
    }

    /// Sets how long a thread beyond the core threads waits for a task before it exits: 10 seconds by default.
    pub fn keep_alive(&mut self, time: Duration) -> &mut Self {
        self.options.limits.keep_alive = time;
        self
    }

    /// Sets whether idle core threads exit after the keep-alive, too: `false` by default.
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
    pub fn grow_after(&mut self, time: Duration) -> &mut Self {
        self.options.growth = Growth::after(time);
        self
    }

    /// Sets what happens to a task that finds the queue full: [`Overflow::Reject`] by default.
    pub fn overflow(&mut self, overflow: Overflow) -> &mut Self {
        self.options.overflow = overflow;
        self
    }

    /// Sets a hook that each thread calls when it starts.
    ///
    /// As all hooks, it should be short. A panic in a hook is reported by the panic hook of the process and has no
    /// other effect.
    pub fn on_thread_start(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.on_thread_start = Hook::new(f);
        self
    }

    /// Sets a hook that each thread calls before it exits.
    pub fn on_thread_stop(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.on_thread_stop = Hook::new(f);
        self
    }

    /// Sets a hook that is called before each task, on its thread.
    pub fn before_task(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.before_task = Hook::new(f);
        self
    }

    /// Sets a hook that is called after each task, on its thread, even if the task has panicked. It runs before the
    /// outcome of the task is visible.
    pub fn after_task(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.after_task = Hook::new(f);
        self
    }

    /// Sets the stack size of the threads, in bytes: by default that of [`std::thread`].
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

    /// Makes the pool. No thread is created before it is needed.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidInput`](io::ErrorKind::InvalidInput) if [`max_threads`](Self::max_threads) is 0, if
    /// [`core_threads`](Self::core_threads) exceeds it, or if the [`name`](Self::name) contains a zero byte.
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
