//! [`DurableHandle`]: awaits a task, wherever it runs.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, ready};

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use tokio::sync::oneshot;

use super::engine::decoder::decode;
use super::engine::waiters::End;
use super::executor::scope::Wait;
use super::store::TaskState;
use super::{AttemptError, DurableClient, DurableError, Status, TaskId};
use crate::completion::{Slot, forward};
use crate::task::Outcome;

/// Awaits a durable task, wherever it runs.
///
/// It is a future of the task's output. Dropping it changes nothing: the task runs. To await a task
/// from another process, or after a restart, keep its [`id`](Self::id), and
/// [attach](DurableClient::attach) to it. Serialised, it is its id.
///
/// # In a run of another task
///
/// A run gives its permit back while it awaits a handle, so tasks that await tasks run at any
/// [`concurrency`](super::Builder::concurrency). It acquires a permit again, ahead of new tasks, before it
/// resumes. At most 1,024 runs of an executor wait in this way. In a run beyond that limit, or of an
/// `InlineExecutor`, the handle of a task that has not ended resolves with an error that
/// [`is_would_deadlock`](DurableError::is_would_deadlock). In a quarantined run it may do so, too. A run keeps its
/// permit if it awaits the handle in a Tokio task that it has spawned with [`tokio::spawn`].
///
/// # Cancel safety
///
/// Nothing is lost if it is dropped: another handle of the task gives the same.
#[must_use = "the task runs, but nobody awaits it"]
pub struct DurableHandle<T> {
    client: DurableClient,
    id: TaskId,
    waiting: Option<Waiting>,
    output: PhantomData<fn() -> T>,
}

/// A wait for the end of a task.
struct Waiting {
    end: oneshot::Receiver<End>,
    wait: Wait,
}

impl Waiting {
    fn begin(client: &DurableClient, id: TaskId) -> Self {
        let wait = Wait::begin();
        let end = client.engine().waiters.wait(id, wait.limit());
        Self { end, wait }
    }
}

impl<T> DurableHandle<T> {
    pub(crate) fn new(client: DurableClient, id: TaskId) -> Self {
        Self {
            client,
            id,
            waiting: None,
            output: PhantomData,
        }
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// What has become of the task so far.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn status(&self) -> Result<Status, DurableError> {
        self.client.status(self.id).await
    }

    /// The errors of the attempts after which the task was tried again: see
    /// [`DurableClient::errors`].
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn errors(&self) -> Result<Vec<AttemptError>, DurableError> {
        self.client.errors(self.id).await
    }

    /// Cancels the task: at once if it does not run, else it is
    /// [asked to stop](super::TaskContext::cancellation). Returns whether it had not ended.
    ///
    /// # Errors
    ///
    /// The store does not answer. To ask again does no harm.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may be cancelled or not.
    pub async fn cancel(&self) -> Result<bool, DurableError> {
        Ok(self.client.cancel(&[self.id]).await? > 0)
    }
}

impl<T: DeserializeOwned> DurableHandle<T> {
    /// Turns the end of the task into the handle's result. `None` means that the client is gone.
    fn outcome(&self, end: Option<End>) -> Result<T, DurableError> {
        let (queue, id) = (self.client.queue(), self.id);
        let Some(end) = end else {
            return Err(DurableError::closed(queue, Some(id)));
        };
        match end {
            Ok(TaskState::Done(output)) => serde_json::from_slice(&output)
                .map_err(|error| DurableError::decode(queue, id, error)),
            Ok(TaskState::Dead { reason, error }) => {
                Err(DurableError::dead(queue, id, reason, error))
            }
            Ok(TaskState::Cancelled) => Err(DurableError::cancelled(queue, id)),
            Ok(TaskState::Absent) => Err(DurableError::expired(queue, id)),
            Ok(TaskState::Waiting | TaskState::Delayed | TaskState::Running) => {
                Err(DurableError::would_deadlock(queue, id))
            }
            Err(failure) => Err(DurableError::store(queue, Some(id), failure)),
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> DurableHandle<T> {
    /// Has the task complete a slot: how it ends is what the slot's
    /// [`CompletionStream`](crate::CompletionStream) yields for it, along with what else is there.
    ///
    /// This needs no Tokio task that awaits the handle: a thread of the process decodes the output and
    /// completes the slot. Aborting the slot does not [cancel](Self::cancel) the task.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableTask, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Square(u32);
    /// # impl DurableTask for Square { const NAME: &'static str = "square"; type Output = u32; }
    /// # impl Run<()> for Square {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0 * self.0) }
    /// # }
    /// use throng::CompletionStream;
    /// use throng::durable::DurableClient;
    ///
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use throng::durable::{DurableExecutor, MemoryStore};
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut executor =
    /// #     DurableExecutor::builder(client.clone()).register::<Square>().start_inline(()).await?;
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// for n in 1..=3 {
    ///     let slot = jobs.slot(n).await?;
    ///     client.spawn(Square(n)).await?.complete(slot);
    /// }
    /// drop(jobs);
    /// # assert_eq!(executor.run_due().await?, 3);
    ///
    /// while let Some(completed) = done.next().await {
    ///     assert_eq!(completed.outcome??, completed.tag * completed.tag);
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "test-util"))] fn main() { let _: Option<(DurableClient, CompletionStream<()>)> = None; }
    /// ```
    pub fn complete<K>(self, slot: Slot<Result<T, DurableError>, K>)
    where
        K: Send + 'static,
    {
        let wait = Wait::begin();
        let (engine, id) = (StdArc::clone(self.client.engine()), self.id);
        engine.waiters.call(id, wait.limit(), move |end| {
            decode(move || {
                forward(Ended { handle: self, end }, slot);
                drop(wait);
            });
        });
    }
}

/// The end of a task as the outcome of a job: that a task has failed is its output.
struct Ended<T> {
    handle: DurableHandle<T>,
    end: Option<End>,
}

impl<T: DeserializeOwned> Future for Ended<T> {
    type Output = Outcome<Result<T, DurableError>>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let end = self.end.take();
        Poll::Ready(Ok(self.handle.outcome(end)))
    }
}

impl<T: DeserializeOwned> Future for DurableHandle<T> {
    type Output = Result<T, DurableError>;

    /// # Panics
    ///
    /// Does not panic when it is polled after it was ready: it looks again.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let this = &mut *self;
        // A run that has polled it may have handed it to something else.
        this.waiting = this.waiting.take().filter(|waiting| waiting.wait.is_here());
        let waiting = this
            .waiting
            .get_or_insert_with(|| Waiting::begin(&this.client, this.id));
        let end = ready!(Pin::new(&mut waiting.end).poll(cx));
        coop.made_progress();
        this.waiting = None;
        Poll::Ready(this.outcome(end.ok()))
    }
}

impl<T> Serialize for DurableHandle<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}

impl<T> fmt::Debug for DurableHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableHandle")
            .field("id", &self.id)
            .field("queue", self.client.queue())
            .finish()
    }
}
