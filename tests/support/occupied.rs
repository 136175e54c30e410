//! A serial executor that is busy, for as long as a test wants.

use std::sync::mpsc::channel;
use std::thread::{self, ThreadId};

use throng::SerialExecutor;

use crate::support::{Gate, ready, receive};

/// An executor's job on a thread of its own, outside of any runtime, that ends when it is told to.
pub(crate) struct Busy {
    gate: Gate,
    holder: thread::JoinHandle<()>,
}

/// Has a job run on another thread, which will also run what is queued meanwhile: all of it, as it
/// has no runtime to hand it over to.
pub(crate) fn occupy<S: Send + 'static>(executor: &SerialExecutor<S>) -> Busy {
    let gate = Gate::new();
    let (entered, has_entered) = channel();
    let holder = thread::spawn({
        let (executor, gate) = (executor.clone(), gate.clone());
        move || {
            let handle = executor.submit(move |_| {
                entered.send(()).unwrap();
                gate.pass();
            });
            ready(handle).unwrap();
        }
    });
    receive(&has_entered);
    Busy { gate, holder }
}

impl Busy {
    /// Lets the job end, and waits until everything that was queued has run.
    pub(crate) fn release(self) -> ThreadId {
        self.gate.open();
        let id = self.holder.thread().id();
        self.holder.join().expect("the holder does not panic");
        id
    }
}
