//! A task that spawns a thousand children and joins them, and a program that spawns as many tasks and awaits them. The value is the time of a
//! child or a task.

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError};

use super::ours::begin;
use super::server::{Fsync, with_server};
use crate::areas::durable::tasks::Echo;
use crate::areas::{Peer, Unit, Workload, on_worker};
use crate::measure::{Rules, Sample};

/// The number of children of a task.
const CHILDREN: u64 = 1000;

/// Spawns and joins this number of children, and returns the number of those that have succeeded.
#[derive(Serialize, Deserialize)]
struct Parent(u64);

impl DurableTask for Parent {
    const NAME: &'static str = "bench.parent";
    type Output = u64;
}

impl Run<()> for Parent {
    async fn run(self, cx: TaskContext<()>) -> Result<u64, TaskError> {
        let children = cx.spawn_all("child", (0..self.0).map(Echo::new)).await?;
        let outputs = cx.join(&children).await?;
        Ok(outputs.into_iter().flatten().count() as u64)
    }
}

pub(super) fn workload() -> Workload {
    Workload::new(
        "redis/children",
        Unit::NS_PER_TASK,
        vec![
            Peer::new("throng", |rules| run(rules, join_children)),
            Peer::new("plain", |rules| run(rules, await_tasks))
                .note(Some("the bar is 0.5 of its rate")),
        ],
    )
}

fn run<F>(rules: &Rules, round: fn(u64, DurableClient) -> F) -> Sample
where
    F: Future<Output = ()> + Send + 'static,
{
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut builder = DurableExecutor::builder(client.clone());
        builder.register::<Echo>().register::<Parent>();
        let executor = runtime.block_on(builder.start(()));
        let executor = executor.expect("an executor can be started");
        let sample = server.rounds(rules, CHILDREN, |tasks| {
            on_worker(&runtime, round(tasks, client.clone()));
        });
        drop(executor);
        sample
    })
}

async fn join_children(children: u64, client: DurableClient) {
    let parent = client.spawn(Parent(children)).await;
    let joined = parent.expect("a task can be stored").await;
    assert_eq!(joined.expect("a task ends well"), children);
}

async fn await_tasks(tasks: u64, client: DurableClient) {
    let handles = client.spawn_all((0..tasks).map(Echo::new)).await;
    let handles = handles.expect("tasks can be stored");
    let outputs = join_all(handles).await;
    assert!(outputs.into_iter().all(|output| output.is_ok()));
}
