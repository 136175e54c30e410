//! Workers that know different types: one runs tasks, and the other knows another type.

use std::thread;
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableExecutor};
use tokio::runtime::Runtime;

use super::tasks::{Nap, Nothing};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample, Section};

/// The tasks, each of which takes 20 ms.
const TASKS: u64 = 400;

/// The maximum number of tasks that run at once.
const PERMITS: usize = 4;

/// The other workers of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    None,
    /// A worker that knows only another type.
    Idle,
}

/// Measures the time in milliseconds from storing the first task until the last one has ended.
pub(super) fn drain<C>(
    rules: &Rules,
    runtime: &Runtime,
    other: Other,
    open: impl Fn() -> C,
) -> Sample
where
    C: Future<Output = DurableClient>,
{
    let [client, second] = [(); 2].map(|()| runtime.block_on(open()));
    let idle = (other == Other::Idle).then(|| {
        let mut builder = DurableExecutor::builder(second);
        builder.register::<Nothing>();
        let started = runtime.block_on(builder.start(()));
        started.expect("an executor can be started")
    });
    let mut builder = DurableExecutor::builder(client.clone());
    builder.max_running(PERMITS);
    let executor = runtime.block_on(builder.register::<Nap>().start(()));
    let executor = executor.expect("an executor can be started");
    let tasks = rules.scaled(TASKS);
    let (begin, section) = (Instant::now(), Section::begin());
    on_worker(runtime, async move {
        let stored = client.spawn_all((0..tasks).map(Nap::new)).await;
        drop(stored.expect("tasks can be stored"));
    });
    while executor.metrics().completed < tasks {
        thread::sleep(Duration::from_millis(1));
    }
    let took = begin.elapsed();
    let claimed = idle.map_or(0, |idle| idle.metrics().claimed);
    assert_eq!(
        claimed, 0,
        "the other worker has claimed a type that it does not know"
    );
    section.end().absolute(took.as_secs_f64() * 1e3)
}
