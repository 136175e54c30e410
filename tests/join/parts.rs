//! [`Part`]: any executor that takes closures, for what all of them promise.

use std::future::Future;
use std::pin::Pin;
use std::thread::{self, ThreadId};

use throng::completion::Submitter;
use throng::{BlockingPool, CompletionStream, ComputePool, JoinHandle, SerialExecutor};

use crate::gated;
use crate::support::{Gate, join, receive, wait_until};

/// An executor that runs one task at a time, on another thread.
#[derive(Debug)]
pub(crate) enum Part {
    Blocking(BlockingPool),
    Compute(ComputePool),
    /// A compute pool whose tasks all have one key.
    Keyed(ComputePool),
    Serial(SerialExecutor<()>),
}

impl Part {
    pub(crate) fn all() -> [Self; 4] {
        let pool = || BlockingPool::builder().max_threads(1).build().unwrap();
        let compute = || ComputePool::builder().threads(1).build().unwrap();
        let serial = SerialExecutor::builder()
            .drain_on(pool())
            .build(())
            .unwrap();
        [
            Self::Blocking(pool()),
            Self::Compute(compute()),
            Self::Keyed(compute()),
            Self::Serial(serial),
        ]
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match self {
            Self::Blocking(pool) => pool.spawn_blocking(f),
            Self::Compute(pool) => pool.spawn(f),
            Self::Keyed(pool) => pool.spawn_keyed("key", f),
            Self::Serial(executor) => executor.post(|()| f()),
        }
    }

    /// Accepts no more tasks.
    pub(crate) fn close(&self) {
        match self {
            Self::Blocking(pool) => pool.close(),
            Self::Compute(pool) | Self::Keyed(pool) => pool.close(),
            Self::Serial(executor) => executor.close(),
        }
    }

    /// Waits until all tasks have ended after a close.
    pub(crate) fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        match self {
            Self::Blocking(pool) => Box::pin(pool.closed()),
            Self::Compute(pool) | Self::Keyed(pool) => Box::pin(pool.closed()),
            Self::Serial(executor) => Box::pin(executor.closed()),
        }
    }

    /// Lets a serial executor run tasks again after a panic.
    pub(crate) fn clear_poison(&self) {
        if let Self::Serial(executor) = self {
            wait_until("it is poisoned", || executor.clear_poison());
        }
    }

    /// Returns the thread that runs all tasks.
    #[track_caller]
    pub(crate) fn thread(&self) -> ThreadId {
        join(self.spawn(|| thread::current().id())).expect("the task returns")
    }

    /// Waits until this number of tasks have been counted as panicked.
    #[track_caller]
    pub(crate) fn has_panicked(&self, tasks: u64) {
        wait_until("the panics are counted", || match self {
            Self::Blocking(pool) => pool.metrics().panicked == tasks,
            Self::Compute(pool) | Self::Keyed(pool) => pool.metrics().panicked == tasks,
            Self::Serial(executor) => executor.metrics().panicked == tasks,
        });
    }

    /// Keeps the part busy until the gate is opened, so that its tasks are queued.
    pub(crate) fn keep_busy(&self) -> (JoinHandle<()>, Gate) {
        let (task, has_started, gate) = gated(());
        let busy = self.spawn(task);
        receive(&has_started);
        (busy, gate)
    }
}

/// A pool of one thread that has a single permit.
pub(crate) fn bounded_compute_pool() -> ComputePool {
    let mut builder = ComputePool::builder();
    builder.threads(1).max_outstanding(1).build().unwrap()
}

/// An executor whose queue has a single permit.
pub(crate) fn bounded_executor() -> SerialExecutor<()> {
    let mut builder = SerialExecutor::builder();
    builder.queue_capacity(1).build(()).unwrap()
}

pub(crate) fn stream<T: Send + 'static, K: Send + 'static>()
-> (Submitter<T, K>, CompletionStream<T, K>) {
    CompletionStream::builder().build().unwrap()
}

/// A stream that runs one job at a time.
pub(crate) fn stream_of_one<T: Send + 'static, K: Send + 'static>()
-> (Submitter<T, K>, CompletionStream<T, K>) {
    CompletionStream::builder().max_running(1).build().unwrap()
}
