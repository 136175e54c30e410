//! [`ServedQueue`]: a queue that an executor serves.

use crate::durable::queue::name::QueueName;

/// A queue that an executor serves, and its share of the executor: see [`Builder::serve`](super::builder::Builder::serve).
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableTask, Run, SpawnOptions, TaskContext, TaskError};
/// # #[derive(Serialize, Deserialize)] struct Resize(u32);
/// # impl DurableTask for Resize { const NAME: &'static str = "resize"; type Output = u32; }
/// # impl Run<()> for Resize {
/// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0) }
/// # }
/// use throng::durable::{DurableClient, DurableExecutor, MemoryStore, ServedQueue};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(MemoryStore::new());
/// let executor = DurableExecutor::builder(client.clone())
///     .register::<Resize>()
///     .max_running(64)
///     .serve(ServedQueue::default_queue().weight(8))
///     .serve(ServedQueue::new("gpu").max_running(2)) // at most 2 of the 64
///     .start(())
///     .await?;
///
/// let options = SpawnOptions::new().queue("gpu");
/// assert_eq!(client.spawn_with(Resize(3), options).await?.await?, 3);
/// # executor.shutdown(std::time::Duration::ZERO).await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedQueue {
    /// This is `None` for the default queue.
    name: Option<String>,
    weight: u32,
    max_running: Option<usize>,
}

/// A queue that a worker serves, and its share of the worker.
#[derive(Clone, Debug)]
pub(crate) struct QueueShare {
    pub(crate) queue: QueueName,
    /// At least 1.
    pub(crate) weight: u32,
    /// At least 1.
    pub(crate) max_running: usize,
}

impl ServedQueue {
    /// Returns the [queue](crate::durable::Queue) with this name, with a weight of 1.
    ///
    /// # Examples
    ///
    /// See [`ServedQueue`].
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(Some(name.into()))
    }

    /// Returns the default queue, with a weight of 1. It has the tasks that were spawned without the name of a queue.
    ///
    /// # Examples
    ///
    /// See [`ServedQueue`].
    pub fn default_queue() -> Self {
        Self::of(None)
    }

    fn of(name: Option<String>) -> Self {
        Self {
            name,
            weight: 1,
            max_running: None,
        }
    }

    /// Sets the weight of the queue: at least 1, which is the default. While several queues have tasks, the numbers of tasks
    /// that the executor starts are in proportion to the weights. For instance, if one queue has a weight of 8 and another one
    /// has a weight of 1, then 8 of 9 tasks that start belong to the first one.
    ///
    /// A queue that had no tasks for a while does not make up for that time. Weights do not limit a queue: if the other
    /// queues have no tasks, it can get all permits.
    ///
    /// # Examples
    ///
    /// See [`ServedQueue`].
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the maximum number of tasks of the queue that this executor runs at once: at least 1. The default is
    /// [`Builder::max_running`](super::builder::Builder::max_running), which always limits all queues together. To limit a queue
    /// over all executors, use [`QueueSettings::max_running`](crate::durable::QueueSettings::max_running).
    ///
    /// Weights count tasks that start, not the time that they take. So set this for a queue of long tasks; otherwise, they
    /// may get all permits and keep them.
    ///
    /// # Examples
    ///
    /// See [`ServedQueue`].
    #[must_use]
    pub fn max_running(mut self, max_running: usize) -> Self {
        self.max_running = Some(max_running);
        self
    }

    /// Returns `true` if both are the same queue.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// Returns the share of the queue in a worker with this number of permits.
    ///
    /// # Errors
    ///
    /// The name or an option is invalid. Returns the reason, and the remedy.
    pub(crate) fn share(&self, permits: usize) -> Result<QueueShare, String> {
        let queue = self.name.as_deref().map(QueueName::new).transpose()?;
        let queue = queue.unwrap_or_default();
        if self.weight == 0 {
            return Err(format!("the weight of {queue} is 0: set it to at least 1"));
        }
        match self.max_running {
            Some(0) => Err(format!(
                "`max_running` of {queue} is 0, so no task could run: set it to at least 1, or do not serve the queue"
            )),
            limit => Ok(QueueShare {
                queue,
                weight: self.weight,
                max_running: limit.unwrap_or(permits).min(permits),
            }),
        }
    }
}
