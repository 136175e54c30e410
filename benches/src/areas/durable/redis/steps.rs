//! Tasks with steps.

use throng::durable::DurableExecutor;

use super::ours::begin;
use super::server::{Fsync, with_server};
use crate::areas::durable::steps::{Stepped, round};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample};

/// See [`steps`](crate::areas::durable::steps).
pub(super) fn run(rules: &Rules, steps: u64) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut builder = DurableExecutor::builder(client.clone());
        let executor = runtime.block_on(builder.register::<Stepped>().start(()));
        let executor = executor.expect("an executor can be started");
        let sample = server.rounds(rules, rules.scaled(32_000), |tasks| {
            on_worker(&runtime, round(tasks, client.clone(), steps));
        });
        drop(executor);
        sample
    })
}
