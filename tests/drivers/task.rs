//! The task that these tests store, and its worker.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, Run, Status, TaskContext, TaskError,
};

#[derive(Serialize, Deserialize)]
pub(crate) struct Ship {
    pub(crate) order: i64,
}

impl DurableTask for Ship {
    const NAME: &'static str = "ship";
    type Output = i64;
}

impl Run<()> for Ship {
    async fn run(self, _: TaskContext<()>) -> Result<i64, TaskError> {
        Ok(self.order)
    }
}

pub(crate) async fn worker(client: &DurableClient) -> DurableExecutor {
    let mut builder = DurableExecutor::builder(client.clone());
    let started = builder.register::<Ship>().start(()).await;
    started.expect("the store answers")
}

/// Asserts that the task of the committed order runs, and that the other order has no task.
pub(crate) async fn assert_shipped(
    client: &DurableClient,
    committed: DurableHandle<i64>,
    undone: DurableHandle<i64>,
) {
    let shipped = tokio::time::timeout(Duration::from_secs(60), committed).await;
    assert_eq!(shipped.expect("it runs").expect("it succeeds"), 7);
    let status = undone.status().await.expect("the store answers");
    assert_eq!(status, Status::Absent);
    let counts = client.counts().await.expect("the store answers");
    assert_eq!((counts.stored, counts.done), (1, 1));
}
