//! [`AppGuard`]: drops the user's `App` on a thread that may block.

use std::sync::Arc as StdArc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::app_runner::TaskRunner;
use crate::sync::thread;
use crate::unwind::contain;

/// The worker's reference to the user's `App`. The guard drops the `App` on a blocking thread of the user's runtime, or on
/// a new thread if the runtime has been shut down, wherever the guard itself is dropped.
pub(crate) struct AppGuard {
    /// Taken when the guard is dropped.
    runner: Option<StdArc<dyn TaskRunner>>,
    runtime: Handle,
}

impl AppGuard {
    pub(crate) fn new(runner: StdArc<dyn TaskRunner>, runtime: Handle) -> Self {
        let runner = Some(runner);
        Self { runner, runtime }
    }

    pub(crate) fn runner(&self) -> &StdArc<dyn TaskRunner> {
        self.runner.as_ref().expect("only the drop takes it")
    }

    /// Drops the `App` on another thread. The returned receiver resolves when that is done.
    pub(crate) fn release(mut self) -> oneshot::Receiver<()> {
        let (done, dropped) = oneshot::channel();
        self.drop_elsewhere(Some(done));
        dropped
    }

    fn drop_elsewhere(&mut self, done: Option<oneshot::Sender<()>>) {
        if let Some(runner) = self.runner.take() {
            let garbage = Garbage {
                runner: Some(runner),
                done,
            };
            // A runtime that has been shut down drops the closure here.
            self.runtime.spawn_blocking(move || garbage.drop_here());
        }
    }
}

impl Drop for AppGuard {
    fn drop(&mut self) {
        self.drop_elsewhere(None);
    }
}

/// A value to be dropped on another thread.
struct Garbage {
    runner: Option<StdArc<dyn TaskRunner>>,
    /// Dropped after the value.
    done: Option<oneshot::Sender<()>>,
}

impl Garbage {
    fn drop_here(mut self) {
        let runner = self.runner.take();
        contain(|| drop(runner));
    }
}

impl Drop for Garbage {
    fn drop(&mut self) {
        let Some(runner) = self.runner.take() else {
            return;
        };
        let done = self.done.take();
        let drop_there = move || {
            contain(|| drop(runner));
            drop(done);
        };
        let thread = thread::Builder::new().name("throng-drop".into());
        // If the system refuses a thread, the value is dropped here.
        contain(|| drop(thread.spawn(drop_there)));
    }
}
