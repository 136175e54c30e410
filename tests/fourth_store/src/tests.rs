//! The suite of throng on this store, and one task that runs in it.

use std::sync::mpsc::channel;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::store::{Clock, Harness, Store};
use throng::durable::{DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError};

use crate::ThreadStore;
use crate::model::Model;

mod suite {
    throng::durable::store::suite!(super::Threads, 256);
}

/// The harness of [`ThreadStore`].
struct Threads {
    clock: Clock,
    store: ThreadStore,
}

impl Threads {
    /// Waits for an answer of the thread.
    fn ask<T: Send + 'static>(&self, request: impl FnOnce(&mut Model) -> T + Send + 'static) -> T {
        let (answer, answered) = channel();
        let worker = self.store.worker();
        worker.tell(move |model| drop(answer.send(request(model))));
        answered.recv().expect("the thread answers")
    }
}

impl Harness for Threads {
    fn new() -> Self {
        let clock = Clock::manual();
        let mut store = ThreadStore::with_clock(&clock);
        // The suite must fail then: `scripts/test-store` checks that it does.
        if std::env::var_os("THRONG_STORE_FORGETS").is_some() {
            store = store.forgetful();
        }
        Self { clock, store }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn connect(&self) -> Store {
        self.store.clone().into()
    }

    fn observe(&self) -> Store {
        self.store.observe()
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        vec![(self.ask(|model| model.summary()), Vec::new())]
    }

    /// The store notices that the process is gone, and does not distinguish how it has exited.
    fn kill(&self, process: Store) {
        assert_eq!(process.backend().name(), "thread");
        drop(process);
    }

    fn statistics(&self) -> u64 {
        self.ask(|model| model.statistics())
    }

    fn leftovers(&self) -> u64 {
        self.ask(|model| model.leftovers())
    }

    /// The data ends with the process.
    fn outlives_clock(&self) -> bool {
        false
    }
}

#[derive(Serialize, Deserialize)]
struct Double(u64);

impl DurableTask for Double {
    const NAME: &'static str = "double";
    type Output = u64;
}

impl Run<()> for Double {
    async fn run(self, _: TaskContext<()>) -> Result<u64, TaskError> {
        Ok(2 * self.0)
    }
}

#[tokio::test]
async fn a_task_runs() -> Result<(), Box<dyn std::error::Error>> {
    let client = DurableClient::open(ThreadStore::new());
    let executor = DurableExecutor::builder(client.clone())
        .register::<Double>()
        .start(())
        .await?;
    let handle = client.spawn(Double(21)).await?;
    assert_eq!(handle.await?, 42);
    executor.shutdown(Duration::from_secs(10)).await;
    Ok(())
}
