//! How an executor is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::SerialExecutor;
use crate::join::Spawn;

/// What becomes of the state when a job panics while it changes it, and is not a
/// [transaction](SerialExecutor::transact), which is rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// Later jobs are refused, and queued ones end with
    /// [`is_poisoned`](crate::JoinError::is_poisoned), until
    /// [`clear_poison`](SerialExecutor::clear_poison): as [`std::sync::Mutex`] does.
    #[default]
    Poison,
    /// Later jobs run on the state as the panic left it: as [`tokio::sync::Mutex`] does.
    Continue,
}

/// Makes a [`SerialExecutor`]: see [`SerialExecutor::builder`].
pub struct Builder {
    options: Options,
}

/// Where queues are handed over to. Not the `Arc` of `sync`: loom's cannot hold a trait object.
pub(super) type DrainOn = Arc<dyn Spawn>;

/// What a builder has been told.
#[derive(Clone)]
pub(super) struct Options {
    /// Whether an idle executor runs a job on its submitter.
    pub(super) inline: bool,
    pub(super) capacity: Option<usize>,
    pub(super) capture_jobs: usize,
    pub(super) capture_time: Duration,
    pub(super) on_panic: OnPanic,
    pub(super) drain_on: Option<DrainOn>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            options: Options {
                inline: true,
                capacity: None,
                capture_jobs: 16,
                capture_time: Duration::from_micros(20),
                on_panic: OnPanic::default(),
                drain_on: None,
            },
        }
    }

    /// How many jobs may be queued: any number by default. What runs at once needs no place, and what
    /// a job submits to its own executor is never refused: it would wait for itself.
    ///
    /// Jobs of [`blocking_run`](SerialExecutor::blocking_run), whose threads wait, need no room.
    ///
    /// See [`try_submit`](SerialExecutor::try_submit) and [`reserve`](SerialExecutor::reserve).
    pub fn capacity(&mut self, jobs: usize) -> &mut Self {
        self.options.capacity = Some(jobs);
        self
    }

    /// Whether an idle executor runs a job at once, on the thread that submits it: `true` by default.
    /// With `false`, [`submit`](SerialExecutor::submit) does what [`post`](SerialExecutor::post) does,
    /// and no job of others ever runs on a submitter, whatever the [limit](Self::capture_jobs), as long
    /// as there is a runtime or a pool to hand over to.
    ///
    /// For submitters that hold locks which jobs take, or that must not be held up by jobs that are long.
    pub fn inline(&mut self, inline: bool) -> &mut Self {
        self.options.inline = inline;
        self
    }

    /// How many jobs of others a submitting thread runs behind its own before it hands the rest
    /// over: 16 by default. With 0 it runs only its own, as long as there is a runtime or a pool that takes
    /// the rest. Inside a job of another executor it hands them over at once, if there is somebody to take
    /// them: one of them may wait for that executor.
    pub fn capture_jobs(&mut self, jobs: usize) -> &mut Self {
        self.options.capture_jobs = jobs;
        self
    }

    /// For how long a submitting thread runs the jobs of others, roughly: 20 microseconds by
    /// default. The clock is read before the first and after every fourth of them.
    pub fn capture_time(&mut self, time: Duration) -> &mut Self {
        self.options.capture_time = time;
        self
    }

    /// What becomes of the state when a job panics: [`OnPanic::Poison`] by default.
    pub fn on_panic(&mut self, on_panic: OnPanic) -> &mut Self {
        self.options.on_panic = on_panic;
        self
    }

    /// Where a queue is handed over to: a runtime's handle, or a pool for jobs that block. By
    /// default the runtime of the submitter who hands over.
    ///
    /// Tasks of a pool that wait for jobs of the executor hold threads that its drain may need: where
    /// they may be as many as the pool's threads, hand over to another pool. They are not told.
    pub fn drain_on(&mut self, spawn: impl Spawn) -> &mut Self {
        self.options.drain_on = Some(Arc::new(spawn));
        self
    }

    /// Makes the executor around its state.
    pub fn build<S: Send + 'static>(&self, state: S) -> SerialExecutor<S> {
        let mut options = self.options.clone();
        if !options.inline {
            options.capture_jobs = 0;
        }
        SerialExecutor::with_options(state, options)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("capacity", &self.options.capacity)
            .field("inline", &self.options.inline)
            .field("capture_jobs", &self.options.capture_jobs)
            .field("capture_time", &self.options.capture_time)
            .field("on_panic", &self.options.on_panic)
            .field("drain_on", &self.options.drain_on.is_some())
            .finish()
    }
}
