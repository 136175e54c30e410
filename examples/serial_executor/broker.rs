//! The handle of the topic: each operation is a job, and atomic.

use std::sync::Arc;

use throng::SerialExecutor;
use throng::serial::Metrics;

use super::Result;
use super::topic::{Id, Left, Message, Number, Published, Subscription, Topic};

#[derive(Clone, Debug)]
pub(crate) struct Broker(SerialExecutor<Topic>);

impl Broker {
    pub(crate) fn new() -> Self {
        Self(SerialExecutor::new(Topic::default()))
    }

    pub(crate) async fn publish(&self, text: Arc<str>) -> Result<Published> {
        Ok(self.0.submit(|topic| topic.publish(text)).await?)
    }

    pub(crate) async fn subscribe(&self) -> Result<Subscription> {
        Ok(self.0.submit(Topic::subscribe).await?)
    }

    pub(crate) async fn take(&self, id: Id, limit: usize) -> Result<Vec<Message>> {
        let taken = self.0.submit(move |topic| topic.take(id, limit)).await?;
        taken.ok_or_else(|| not_connected(id))
    }

    pub(crate) async fn acknowledge(&self, id: Id, number: Number) -> Result<()> {
        let job = move |topic: &mut Topic| topic.acknowledge(id, number);
        match self.0.submit(job).await? {
            true => Ok(()),
            false => Err(format!("{number} is not in flight to {id}").into()),
        }
    }

    pub(crate) async fn disconnect(&self, id: Id) -> Result<Left> {
        let left = self.0.submit(move |topic| topic.disconnect(id)).await?;
        left.ok_or_else(|| not_connected(id))
    }

    pub(crate) async fn published(&self) -> Result<Number> {
        Ok(self.0.submit(|topic| topic.published()).await?)
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.0.metrics()
    }

    /// Accepts no more operations, and returns the topic after the last one.
    pub(crate) async fn close(self) -> Result<Topic> {
        let topic = self.0.into_inner().await;
        topic.map_err(|_| "a job has panicked and left the topic poisoned".into())
    }
}

fn not_connected(id: Id) -> super::Fault {
    format!("{id} is not connected").into()
}
