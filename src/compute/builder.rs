//! How a pool is made.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;

use super::ComputePool;
use crate::join::PanicHandler;
use crate::sync::{MODEL, thread};
use crate::unwind::contain;

/// Makes a [`ComputePool`]: see [`ComputePool::builder`].
#[derive(Clone)]
pub struct Builder {
    options: Options,
}

/// What a builder has been told.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) name: String,
    pub(super) threads: usize,
    pub(super) capacity: Option<usize>,
    pub(super) stack_size: Option<usize>,
    /// What the threads enter.
    pub(super) runtime: Option<Handle>,
    on_panic: Option<PanicHandler>,
    /// Whether there are processors to spare for a look before a rest.
    many_cores: bool,
}

impl Builder {
    pub(super) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            options: Options {
                name: String::from("throng-compute"),
                threads: cores,
                capacity: None,
                stack_size: None,
                runtime: None,
                on_panic: None,
                many_cores: cores > 2 && !MODEL,
            },
        }
    }

    /// What the threads are called: this and a number. Systems show the first 15 bytes or so.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.options.name = name.into();
        self
    }

    /// How many threads there are: by default, as many as
    /// [can run at the same time](std::thread::available_parallelism).
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    #[track_caller]
    pub fn threads(&mut self, threads: usize) -> &mut Self {
        assert!(threads > 0, "a pool needs at least one thread");
        self.options.threads = threads;
        self
    }

    /// How many tasks may be accepted and not finished: by default, any number.
    ///
    /// A pool with a bound counts its tasks at one place, which costs something with many threads.
    pub fn capacity(&mut self, tasks: usize) -> &mut Self {
        self.options.capacity = Some(tasks);
        self
    }

    /// The size of the threads' stacks, in bytes: by default that of [`std::thread`].
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.options.stack_size = Some(bytes);
        self
    }

    /// The runtime that the threads enter, so that `Handle::current()` and `tokio::spawn` work in
    /// tasks: by default, none.
    pub fn runtime(&mut self, runtime: Handle) -> &mut Self {
        self.options.runtime = Some(runtime);
        self
    }

    /// What is told of the panic of a task of [`execute`](ComputePool::execute), which nobody waits for:
    /// on the thread of the task, with the panic's payload.
    ///
    /// The panic hook has been called before, and the thread goes on, also if this panics.
    pub fn on_panic<H>(&mut self, handler: H) -> &mut Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.options.on_panic = Some(StdArc::new(handler));
        self
    }

    /// Makes the pool, and its threads.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the name holds a zero byte; the system's error
    /// if it does not give that many threads.
    pub fn build(&self) -> io::Result<ComputePool> {
        if self.options.name.contains('\0') {
            let why = "the name of a pool must not hold a zero byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        ComputePool::with_options(self.options.clone())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.options.name)
            .field("threads", &self.options.threads)
            .field("capacity", &self.options.capacity)
            .finish_non_exhaustive()
    }
}

impl Options {
    #[cfg(all(test, throng_loom))]
    pub(super) fn of_threads(threads: usize) -> Self {
        let mut builder = Builder::new();
        builder.threads(threads);
        builder.options
    }

    /// What a worker does with a panic that nobody hears of.
    pub(super) fn panic_handler(&self) -> PanicHandler {
        let (pool, handler) = (self.name.clone(), self.on_panic.clone());
        StdArc::new(move |payload| {
            report(&pool, &*payload);
            match &handler {
                Some(handler) => handler(payload),
                None => contain(|| drop(payload)),
            }
        })
    }

    /// So many looks, where looking takes nothing from others.
    pub(super) fn looks(&self, looks: usize) -> usize {
        if self.many_cores { looks } else { 0 }
    }
}

#[cfg(feature = "tracing")]
fn report(pool: &str, payload: &(dyn Any + Send)) {
    let message = crate::unwind::message(payload);
    tracing::error!(pool, message, "a task that nobody waits for has panicked");
}

#[cfg(not(feature = "tracing"))]
fn report(_: &str, _: &(dyn Any + Send)) {}
