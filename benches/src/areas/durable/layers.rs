//! The cost of middleware: runs in a layer that does nothing, and runs without layers, of tasks in memory.

use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use throng::durable::{Builder, DurableClient, DurableExecutor, MemoryStore};
use tower_layer::layer_fn;
use tower_service::Service;

use super::tasks::Nothing;
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, Section};

/// The number of tasks that are stored before an executor runs them. The time of the store for each task grows with this number.
const STORED: u64 = 10_000;

pub(super) fn drain_without_layers(rules: &Rules) -> Sample {
    drain(rules, |_| {})
}

pub(super) fn drain_in_a_layer(rules: &Rules) -> Sample {
    drain(rules, |builder| {
        builder.layer(layer_fn(PassOn));
    })
}

/// Measures an executor that runs tasks which were stored before.
fn drain(rules: &Rules, add_layers: impl FnOnce(&mut Builder<()>)) -> Sample {
    let runtime = two_workers().build().expect("a runtime can be built");
    let tasks = rules.scaled(STORED);
    let client = DurableClient::open(MemoryStore::new());
    let fill = client.clone();
    on_worker(&runtime, async move {
        let stored = fill.spawn_all((0..tasks).map(Nothing::new)).await;
        drop(stored.expect("tasks can be stored"));
    });
    let mut builder = DurableExecutor::builder(client);
    builder.max_running(256).register::<Nothing>();
    add_layers(&mut builder);
    let section = Section::begin();
    let executor = runtime.block_on(builder.start(()));
    let executor = executor.expect("an executor can be started");
    while executor.metrics().completed < tasks {
        thread::sleep(Duration::from_micros(200));
    }
    section.end().per_task(tasks)
}

/// A service that only calls its inner service.
#[derive(Clone)]
struct PassOn<S>(S);

impl<R, S: Service<R>> Service<R> for PassOn<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}
