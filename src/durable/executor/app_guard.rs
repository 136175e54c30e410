//! [`AppGuard`]: keeps the drop of the user's `App` off the engine's thread.

use std::sync::Arc as StdArc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::registry::Runs;
use crate::sync::thread;
use crate::unwind::contain;

/// The worker's share of the user's `App`. Wherever the guard is dropped, the `App` is dropped on a thread that
/// may block: a thread of the user's runtime, or a new one if the runtime is gone.
pub(crate) struct AppGuard {
    /// Taken when the guard is dropped.
    runs: Option<StdArc<dyn Runs>>,
    runtime: Handle,
}

impl AppGuard {
    pub(crate) fn new(runs: StdArc<dyn Runs>, runtime: Handle) -> Self {
        let runs = Some(runs);
        Self { runs, runtime }
    }

    pub(crate) fn runs(&self) -> &StdArc<dyn Runs> {
        self.runs.as_ref().expect("it is taken by the drop only")
    }

    /// Drops it on another thread. The returned receiver is ready when that is done.
    pub(crate) fn release(mut self) -> oneshot::Receiver<()> {
        let (done, dropped) = oneshot::channel();
        self.hand_over(Some(done));
        dropped
    }

    fn hand_over(&mut self, done: Option<oneshot::Sender<()>>) {
        if let Some(runs) = self.runs.take() {
            let waste = Waste {
                runs: Some(runs),
                done,
            };
            // A runtime that is gone drops the closure, here.
            self.runtime.spawn_blocking(move || waste.drop_here());
        }
    }
}

impl Drop for AppGuard {
    fn drop(&mut self) {
        self.hand_over(None);
    }
}

/// A value to be dropped on another thread.
struct Waste {
    runs: Option<StdArc<dyn Runs>>,
    /// Dropped when it has been dropped.
    done: Option<oneshot::Sender<()>>,
}

impl Waste {
    fn drop_here(mut self) {
        let runs = self.runs.take();
        contain(|| drop(runs));
    }
}

impl Drop for Waste {
    fn drop(&mut self) {
        let Some(runs) = self.runs.take() else {
            return;
        };
        let done = self.done.take();
        let drop_there = move || {
            contain(|| drop(runs));
            drop(done);
        };
        let thread = thread::Builder::new().name("throng-drop".into());
        // If the system gives no thread, it is dropped here after all.
        contain(|| drop(thread.spawn(drop_there)));
    }
}
