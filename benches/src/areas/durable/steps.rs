//! Tasks with steps: 64 at once are spawned and awaited, and the value is the time of one.

use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, DurableTask, Run, TaskContext, TaskError};
use tokio::task::JoinSet;

use super::SPAWNERS;
use super::ours::awaiting;
use super::tasks::Payload;
use crate::areas::{Peer, Unit, Workload};
use crate::measure::{Rules, Sample};

/// Stores steps, each of which is a number, and returns their sum.
#[derive(Serialize, Deserialize)]
pub(super) struct Stepped {
    payload: Payload,
    steps: u64,
}

impl DurableTask for Stepped {
    const NAME: &'static str = "bench.stepped";
    type Output = u64;
}

impl Run<()> for Stepped {
    async fn run(self, cx: TaskContext<()>) -> Result<u64, TaskError> {
        let mut sum = 0;
        for step in 0..self.steps {
            sum += cx.step(&format!("step {step}"), || async { Ok(1) }).await?;
        }
        Ok(sum)
    }
}

pub(super) fn workload(name: &'static str, run: fn(&Rules, u64) -> Sample) -> Workload {
    let peer = |name, steps| Peer::new(name, move |rules| run(rules, steps));
    Workload::new(
        name,
        Unit::NS_PER_TASK,
        vec![
            peer("throng", 1),
            peer("four", 4),
            peer("none", 0).note(Some("the bar is 0.5 of its rate")),
        ],
    )
}

pub(super) fn in_sqlite(rules: &Rules, steps: u64) -> Sample {
    let tasks = rules.scaled(16_000);
    awaiting(
        rules,
        tasks,
        |tasks, client| round(tasks, client, steps),
        drop,
    )
}

pub(super) async fn round(tasks: u64, client: DurableClient, steps: u64) {
    let share = tasks.div_ceil(SPAWNERS);
    let spawner = |client: DurableClient| async move {
        for number in 0..share {
            let payload = Payload::new(number);
            let handle = client.spawn(Stepped { payload, steps }).await;
            let output = handle.expect("a task can be stored").await;
            assert_eq!(output.expect("a task ends well"), steps);
        }
    };
    let spawners = (0..SPAWNERS).map(|_| spawner(client.clone()));
    spawners.collect::<JoinSet<_>>().join_all().await;
}
