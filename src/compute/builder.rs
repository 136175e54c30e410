//! [`Builder`]: the options of a new pool.

use std::any::Any;
use std::fmt;
use std::io;
// Pointers to traits are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;

use super::options::Options;
use super::pool::ComputePool;

/// Builds a [`ComputePool`].
///
/// # Examples
///
/// ```
/// use throng::ComputePool;
///
/// # fn main() -> std::io::Result<()> {
/// let pool = ComputePool::builder()
///     .name("thumbnails")
///     .threads(4)
///     .max_outstanding(10_000)
///     .build()?;
/// # drop(pool);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    options: Options,
}

impl ComputePool {
    /// Creates a pool with the default options: as many threads as can run at the same time, and no bound.
    ///
    /// # Panics
    ///
    /// Panics if the system does not create the threads. [`builder`](Self::builder) returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// assert_eq!(pool.spawn(|| 6 * 7).await?, 42);
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::builder()
            .build()
            .expect("the system creates the threads of the pool")
    }

    /// Returns a builder with the default options.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().threads(2).build()?;
    /// assert_eq!(pool.metrics().lanes.len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder {
            options: Options::new(),
        }
    }
}

impl Default for ComputePool {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Sets the prefix of the names of the threads, which an index follows. Most systems show about 15 bytes of a name.
    ///
    /// The default is `throng-compute`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().name("thumbnails").threads(1).build()?;
    /// let name = pool.spawn(|| std::thread::current().name().map(String::from));
    /// assert_eq!(name.await?.as_deref(), Some("thumbnails-0"));
    /// # Ok(()) }
    /// ```
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.options.name = name.into();
        self
    }

    /// Sets the number of threads, from 1 to 32,767.
    ///
    /// The default is the number that [can run at the same time](std::thread::available_parallelism).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().threads(3).build()?;
    /// assert_eq!(pool.metrics().lanes.len(), 3);
    /// # Ok(()) }
    /// ```
    pub fn threads(&mut self, threads: usize) -> &mut Self {
        self.options.threads = threads;
        self
    }

    /// Limits the number of tasks that are accepted and have not ended.
    ///
    /// By default there is no limit. A pool with a limit counts its tasks in one place, which has a cost with many threads.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let pool = throng::ComputePool::builder().threads(1).max_outstanding(1).build()?;
    /// let (open, gate) = std::sync::mpsc::channel::<()>();
    /// pool.execute(move || gate.recv().unwrap_or_default());
    /// assert!(pool.try_execute(|| ()).is_err_and(|error| error.is_full()));
    /// # drop(open);
    /// # Ok(()) }
    /// ```
    pub fn max_outstanding(&mut self, tasks: usize) -> &mut Self {
        self.options.max_outstanding = Some(tasks);
        self
    }

    /// Sets the size of the threads' stacks in bytes.
    ///
    /// The default is that of [`std::thread`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().thread_stack_size(8 << 20).build()?;
    /// # drop(pool);
    /// # Ok(()) }
    /// ```
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.options.stack_size = Some(bytes);
        self
    }

    /// Sets the runtime that the threads enter, so that `Handle::current()` and `tokio::spawn` work in tasks.
    ///
    /// By default there is none. A thread enters the runtime once, when it starts.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::runtime::Handle;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().runtime(Handle::current()).build()?;
    /// let id = pool.spawn(|| Handle::current().id()).await?;
    /// assert_eq!(id, Handle::current().id());
    /// # Ok(()) }
    /// ```
    pub fn runtime(&mut self, runtime: Handle) -> &mut Self {
        self.options.runtime = Some(runtime);
        self
    }

    /// Sets a function that receives the panic payload of a task of [`execute`](ComputePool::execute), which has no handle
    /// to report it. The function runs on the thread of the task.
    ///
    /// The panic hook has run before. The thread goes on, even if the function panics.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let pool = throng::ComputePool::builder()
    ///     .on_panic(move |payload| send.send(payload).expect("the receiver exists"))
    ///     .build()?;
    /// pool.execute(|| std::panic::resume_unwind(Box::new(7)));
    /// assert_eq!(receive.recv().expect("the task panics").downcast_ref(), Some(&7));
    /// # Ok(()) }
    /// ```
    pub fn on_panic<H>(&mut self, handler: H) -> &mut Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.options.on_panic = Some(StdArc::new(handler));
        self
    }

    /// Sets a function that each thread runs when it starts, with its index: to set a priority or an affinity, or to fill a
    /// thread-local.
    ///
    /// A panic of the function is contained.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let pool = throng::ComputePool::builder()
    ///     .threads(2)
    ///     .on_thread_start(move |index| send.send(index).expect("the receiver exists"))
    ///     .build()?;
    /// assert_eq!(receive.iter().take(2).sum::<usize>(), 1);
    /// # drop(pool);
    /// # Ok(()) }
    /// ```
    pub fn on_thread_start<H>(&mut self, hook: H) -> &mut Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.options.on_thread_start = Some(StdArc::new(hook));
        self
    }

    /// Sets a function that each thread runs before it exits, with its index.
    ///
    /// A panic of the function is contained. [`closed`](ComputePool::closed) waits for it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let pool = throng::ComputePool::builder()
    ///     .threads(1)
    ///     .on_thread_stop(move |index| send.send(index).expect("the receiver exists"))
    ///     .build()?;
    /// pool.close();
    /// assert_eq!(receive.recv()?, 0);
    /// # Ok(()) }
    /// ```
    pub fn on_thread_stop<H>(&mut self, hook: H) -> &mut Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.options.on_thread_stop = Some(StdArc::new(hook));
        self
    }

    /// Creates the pool and its threads.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if an option has an invalid value, which the message names; the
    /// system's error if it does not create the threads.
    ///
    /// # Examples
    ///
    /// ```
    /// let error = throng::ComputePool::builder().threads(0).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    pub fn build(&self) -> io::Result<ComputePool> {
        self.options.validate()?;
        ComputePool::with_options(self.options.clone())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.options.name)
            .field("threads", &self.options.threads)
            .field("max_outstanding", &self.options.max_outstanding)
            .finish_non_exhaustive()
    }
}
