//! How a pool is made.

use std::io;
use std::time::Duration;

use tokio::runtime::Handle;

use super::BlockingPool;

/// When a pool creates a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Growth {
    /// Scale first: whenever a task comes that no idle thread will take, up to the maximum. Only then
    /// do tasks queue.
    #[default]
    Eager,
}

/// What becomes of a task for which there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// It is handed back (`try_spawn_blocking`), or its handle ends with
    /// [`is_rejected`](crate::JoinError::is_rejected) (`spawn_blocking`).
    #[default]
    Reject,
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
    pub(super) core_threads: usize,
    pub(super) max_threads: usize,
    pub(super) queue_capacity: Option<usize>,
    pub(super) keep_alive: Duration,
    pub(super) stack_size: Option<usize>,
    /// What the threads enter.
    pub(super) runtime: Option<Handle>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            options: Options {
                name: String::from("throng-blocking"),
                core_threads: 0,
                max_threads: 512,
                queue_capacity: None,
                keep_alive: Duration::from_secs(10),
                stack_size: None,
                runtime: None,
            },
        }
    }

    /// What the threads are called: this and a number. Systems show the first 15 bytes or so.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.options.name = name.into();
        self
    }

    /// How many idle threads stay for ever: 0 by default. They are created when they are first
    /// needed, as all others.
    pub fn core_threads(&mut self, threads: usize) -> &mut Self {
        self.options.core_threads = threads;
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
        self.options.max_threads = threads;
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
        self.options.keep_alive = time;
        self
    }

    /// When a thread is created: [`Growth::Eager`] by default.
    pub fn growth(&mut self, growth: Growth) -> &mut Self {
        match growth {
            Growth::Eager => self,
        }
    }

    /// What becomes of a task for which there is no room: [`Overflow::Reject`] by default.
    pub fn overflow(&mut self, overflow: Overflow) -> &mut Self {
        match overflow {
            Overflow::Reject => self,
        }
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
    pub(super) fn build_outside(&self) -> BlockingPool {
        BlockingPool::with_options(self.options.clone())
    }
}

fn check(options: &Options) -> io::Result<()> {
    let wrong = if options.core_threads > options.max_threads {
        "`core_threads` is larger than `max_threads`: raise the one or lower the other"
    } else if options.name.contains('\0') {
        "the name of a thread cannot hold a zero byte"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
}
