//! [`Options`]: the settings of a pool.

use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::overflow::Overflow;
use crate::unwind::contain;

/// When a pool creates a thread: see [`Builder::grow_after`](super::Builder::grow_after).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Growth {
    /// Whenever a task arrives that no idle thread will take.
    #[default]
    Eager,
    /// When no task has been taken from the queue for this long: one, then two, then four.
    After(Duration),
    /// Only when the queue is full.
    WhenFull,
}

impl Growth {
    pub(super) fn after(time: Duration) -> Self {
        match time {
            Duration::ZERO => Self::Eager,
            Duration::MAX => Self::WhenFull,
            time => Self::After(time),
        }
    }
}

/// The settings of a pool.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) queue_capacity: Option<usize>,
    pub(super) growth: Growth,
    pub(super) overflow: Overflow,
    pub(super) stack_size: Option<usize>,
    /// The runtime of the pool. Its threads start in it.
    pub(super) runtime: Option<Handle>,
    /// All tasks run in `runtime`, whatever their submitter's is.
    pub(super) runtime_is_pinned: bool,
    pub(super) on_thread_start: Hook,
    pub(super) on_thread_stop: Hook,
    pub(super) before_task: Hook,
    pub(super) after_task: Hook,
}

/// The settings that can be changed while the pool works.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) core_threads: usize,
    pub(super) max_threads: usize,
    pub(super) keep_alive: Duration,
    pub(super) core_timeout: bool,
}

/// A closure of the user that any thread of the pool may call.
#[derive(Clone, Default)]
pub(super) struct Hook(Option<StdArc<dyn Fn() + Send + Sync>>);

impl Options {
    pub(super) fn check(&self) -> io::Result<()> {
        if self.name.contains('\0') {
            return Err(invalid(format!(
                "`name` is {:?}: remove the zero byte, which the name of a thread cannot contain",
                self.name
            )));
        }
        self.limits.check()
    }

    /// The runtime of the calling thread, if its tasks run in that and it is not the pool's.
    #[inline]
    pub(super) fn runtime_of_submitter(&self) -> Option<Handle> {
        if self.runtime_is_pinned {
            return None;
        }
        let submitter = Handle::try_current().ok()?;
        let own = self.runtime.as_ref();
        own.is_none_or(|own| own.id() != submitter.id())
            .then_some(submitter)
    }
}

impl Default for Options {
    /// Those of Tokio's pool.
    fn default() -> Self {
        Self {
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
            runtime_is_pinned: false,
            on_thread_start: Hook::default(),
            on_thread_stop: Hook::default(),
            before_task: Hook::default(),
            after_task: Hook::default(),
        }
    }
}

impl Limits {
    pub(super) fn check(&self) -> io::Result<()> {
        let Self {
            core_threads,
            max_threads,
            ..
        } = self;
        if *max_threads == 0 {
            return Err(invalid(
                "`max_threads` is 0: a pool needs at least one thread".into(),
            ));
        }
        if core_threads > max_threads {
            return Err(invalid(format!(
                "`core_threads` is {core_threads} and `max_threads` is {max_threads}: lower the first or raise the \
                 second"
            )));
        }
        Ok(())
    }
}

impl Hook {
    pub(super) fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
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
        f.write_str(if self.is_set() { "set" } else { "none" })
    }
}

// A panic of a hook is contained, and leaves nothing of the pool half changed.
impl UnwindSafe for Hook {}
impl RefUnwindSafe for Hook {}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
