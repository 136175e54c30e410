//! [`Options`]: the configuration of a pool.

use std::any::Any;
use std::io;
// Pointers to traits are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;

use crate::join::PanicHandler;
use crate::sync::{MODEL, thread};
use crate::unwind::contain;

/// The most threads of a pool.
pub(super) const MAX_THREADS: usize = (1 << 15) - 1;

/// Called with the index of a thread.
pub(super) type ThreadHook = StdArc<dyn Fn(usize) + Send + Sync>;

#[derive(Clone)]
pub(super) struct Options {
    pub(super) name: String,
    pub(super) threads: usize,
    pub(super) max_outstanding: Option<usize>,
    pub(super) stack_size: Option<usize>,
    /// The runtime that the threads enter.
    pub(super) runtime: Option<Handle>,
    pub(super) on_panic: Option<PanicHandler>,
    pub(super) on_thread_start: Option<ThreadHook>,
    pub(super) on_thread_stop: Option<ThreadHook>,
    /// A thread spins before it sleeps: there are processors to spare.
    spins: bool,
}

impl Options {
    pub(super) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            name: String::from("throng-compute"),
            threads: cores.min(MAX_THREADS),
            max_outstanding: None,
            stack_size: None,
            runtime: None,
            on_panic: None,
            on_thread_start: None,
            on_thread_stop: None,
            spins: cores > 2 && !MODEL,
        }
    }

    #[cfg(all(test, throng_loom))]
    pub(super) fn of_threads(threads: usize) -> Self {
        Self {
            threads,
            ..Self::new()
        }
    }

    /// Returns an error that names the option, the value and the remedy.
    pub(super) fn validate(&self) -> io::Result<()> {
        let problem = if self.name.contains('\0') {
            format!("`name` is {:?}; remove the zero byte", self.name)
        } else if self.threads == 0 {
            String::from("`threads` is 0; a pool needs at least 1")
        } else if self.threads > MAX_THREADS {
            format!("`threads` is {}; use at most {MAX_THREADS}", self.threads)
        } else {
            return Ok(());
        };
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("compute pool: {problem}"),
        ))
    }

    /// Reports the panics of tasks without a handle: to `tracing`, and to the user's handler.
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

    /// Returns `spins`, or 0 where spinning takes processor time from others.
    pub(super) fn spins(&self, spins: usize) -> usize {
        if self.spins { spins } else { 0 }
    }
}

#[cfg(feature = "tracing")]
fn report(pool: &str, payload: &(dyn Any + Send)) {
    let message = crate::unwind::message(payload);
    tracing::error!(pool, message, "a task without a handle has panicked");
}

#[cfg(not(feature = "tracing"))]
fn report(_: &str, _: &(dyn Any + Send)) {}
