//! How a pool is made.

use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::state::Limits;
use super::{BlockingPool, Overflow};
use crate::unwind::contain;

/// When a pool creates a thread.
///
/// In each case, the first `core_threads` (at least one) are created as with `Eager`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Growth {
    /// Scale first: whenever a task comes that no idle thread will take, up to the maximum. Only then
    /// do tasks queue. For tasks that block, and that may wait for one another.
    #[default]
    Eager,
    /// Tasks queue, and when none was taken from the queue for this time, threads are created: one, then
    /// two, then four, until threads come back and take tasks again. No storm of threads for tasks of some microseconds,
    /// and yet a pool grows whose threads all block. A fraction of a millisecond is a good choice for a
    /// server; a burst of tasks that block waits for it a few times.
    After(Duration),
    /// Queue first: only when the queue is full, as in Java's pools. Without a
    /// [`queue_capacity`](Builder::queue_capacity) there are never more than the core threads.
    WhenFull,
}

/// Makes a [`BlockingPool`]: see [`BlockingPool::builder`].
///
/// The defaults are those of a drop-in for Tokio's pool: no core threads, at most 512, a keep-alive
/// of 10 seconds, an unbounded queue.
#[derive(Clone, Debug)]
pub struct Builder {
    options: Options,
}

/// What a builder has been told.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) queue_capacity: Option<usize>,
    pub(super) growth: Growth,
    pub(super) overflow: Overflow,
    pub(super) stack_size: Option<usize>,
    /// What the threads enter.
    pub(super) runtime: Option<Handle>,
    pub(super) on_thread_start: Hook,
    pub(super) on_thread_stop: Hook,
    pub(super) before_task: Hook,
    pub(super) after_task: Hook,
}

/// A closure of the user's, which may be called on any thread of the pool.
#[derive(Clone, Default)]
pub(super) struct Hook(Option<StdArc<dyn Fn() + Send + Sync>>);

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            options: Options {
                name: String::from("throng-blocking"),
                limits: Limits {
                    core_threads: 0,
                    max_threads: 512,
                    keep_alive: Duration::from_secs(10),
                    core_timeout: false,
                },
                queue_capacity: None,
                growth: Growth::default(),
                overflow: Overflow::default(),
                stack_size: None,
                runtime: None,
                on_thread_start: Hook::default(),
                on_thread_stop: Hook::default(),
                before_task: Hook::default(),
                after_task: Hook::default(),
            },
        }
    }

    /// What the threads are called: this and a number. Systems show the first 15 bytes or so.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.options.name = name.into();
        self
    }

    /// How many idle threads stay for ever: 0 by default. They are created when they are first
    /// needed, as all others, or by [`prestart_core_threads`](BlockingPool::prestart_core_threads).
    pub fn core_threads(&mut self, threads: usize) -> &mut Self {
        self.options.limits.core_threads = threads;
        self
    }

    /// How many threads there may be: 512 by default.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    #[track_caller]
    pub fn max_threads(&mut self, threads: usize) -> &mut Self {
        assert!(threads > 0, "a pool needs at least one thread");
        self.options.limits.max_threads = threads;
        self
    }

    /// How many tasks may wait while all threads are busy: by default, any number. With 0, a task is
    /// accepted only if a thread can take it at once.
    ///
    /// Together with those that run, at most `max_threads + tasks` are accepted and not finished.
    pub fn queue_capacity(&mut self, tasks: usize) -> &mut Self {
        self.options.queue_capacity = Some(tasks);
        self
    }

    /// How long a thread beyond the core threads waits for a task before it ends: 10 seconds by
    /// default.
    pub fn keep_alive(&mut self, time: Duration) -> &mut Self {
        self.options.limits.keep_alive = time;
        self
    }

    /// Whether idle core threads end after the keep-alive, too: not by default.
    pub fn allow_core_timeout(&mut self, allow: bool) -> &mut Self {
        self.options.limits.core_timeout = allow;
        self
    }

    /// When a thread is created: [`Growth::Eager`] by default.
    pub fn growth(&mut self, growth: Growth) -> &mut Self {
        self.options.growth = growth;
        self
    }

    /// What becomes of a task for which there is no room: [`Overflow::Reject`] by default.
    pub fn overflow(&mut self, overflow: Overflow) -> &mut Self {
        self.options.overflow = overflow;
        self
    }

    /// Called on each thread when it starts. As all hooks, it should be short; a panic of it is
    /// reported by the panic hook, and has no other consequence.
    pub fn on_thread_start(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.on_thread_start = Hook::new(f);
        self
    }

    /// Called on each thread before it ends.
    pub fn on_thread_stop(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.on_thread_stop = Hook::new(f);
        self
    }

    /// Called before each task, on its thread.
    pub fn before_task(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.before_task = Hook::new(f);
        self
    }

    /// Called after each task, on its thread, also if it has panicked; before its outcome can be seen.
    pub fn after_task(&mut self, f: impl Fn() + Send + Sync + 'static) -> &mut Self {
        self.options.after_task = Hook::new(f);
        self
    }

    /// The size of the threads' stacks, in bytes: by default that of [`std::thread`].
    pub fn thread_stack_size(&mut self, bytes: usize) -> &mut Self {
        self.options.stack_size = Some(bytes);
        self
    }

    /// The runtime that the threads enter, so that `Handle::current()`, `tokio::spawn` and
    /// `Handle::block_on` work in tasks. By default the one that [`build`](Self::build) is called
    /// in, if any.
    pub fn runtime(&mut self, runtime: Handle) -> &mut Self {
        self.options.runtime = Some(runtime);
        self
    }

    /// Makes the pool. No thread is created before it is needed.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there are to be more core threads than
    /// threads, or if the name holds a zero byte.
    pub fn build(&self) -> io::Result<BlockingPool> {
        let mut options = self.options.clone();
        if options.runtime.is_none() {
            options.runtime = Handle::try_current().ok();
        }
        check(&options)?;
        Ok(BlockingPool::with_options(options))
    }

    /// Makes a pool whose threads enter no runtime.
    pub(crate) fn build_outside(&self) -> BlockingPool {
        BlockingPool::with_options(self.options.clone())
    }
}

impl Hook {
    fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(StdArc::new(f)))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(super) fn call(&self) {
        if let Some(hook) = &self.0 {
            contain(|| hook());
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "none" })
    }
}

// A panic of theirs is contained, and they change nothing of ours.
impl UnwindSafe for Hook {}
impl RefUnwindSafe for Hook {}

fn check(options: &Options) -> io::Result<()> {
    if options.name.contains('\0') {
        let wrong = "the name of a thread cannot hold a zero byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
    }
    options.limits.check()
}
