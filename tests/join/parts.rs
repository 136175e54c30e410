//! [`Part`]: any executor that takes closures, for what all of them promise.

use throng::completion::Submitter;
use throng::{BlockingPool, CompletionStream, ComputePool, JoinHandle, SerialExecutor};

use crate::gated;
use crate::support::{Gate, receive};

/// An executor that runs one task at a time, on another thread.
#[derive(Debug)]
pub(crate) enum Part {
    Blocking(BlockingPool),
    Compute(ComputePool),
    Serial(SerialExecutor<()>),
}

impl Part {
    pub(crate) fn all() -> [Self; 3] {
        let pool = || BlockingPool::builder().max_threads(1).build().unwrap();
        let serial = SerialExecutor::builder()
            .drain_on(pool())
            .build(())
            .unwrap();
        [
            Self::Blocking(pool()),
            Self::Compute(ComputePool::builder().threads(1).build().unwrap()),
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
            Self::Serial(executor) => executor.post(|()| f()),
        }
    }

    /// Accepts no more tasks.
    pub(crate) fn close(&self) {
        match self {
            Self::Blocking(pool) => pool.close(),
            Self::Compute(pool) => pool.shutdown(),
            Self::Serial(executor) => executor.close(),
        }
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
    builder.threads(1).capacity(1).build().unwrap()
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
