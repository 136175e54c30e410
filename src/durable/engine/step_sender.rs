//! [`StepSender`]: sends the steps of all runs to the store.

use std::collections::VecDeque;
use std::sync::Arc as StdArc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::durable::failure::Failure;
use crate::durable::resend::resend;
use crate::durable::store::{Backend, MAX_BATCH_BYTES, MAX_BATCH_TASKS, NewStep, StepAnswer};
use crate::unwind::contain;

/// The steps of runs that wait to be sent.
pub(crate) struct StepQueue(mpsc::UnboundedSender<QueuedStep>);

/// Sends the steps of all runs to the store. One request is in flight at a time, and the steps that arrive meanwhile go with the next one,
/// so batches grow with the load. Each run waits for its step, so the number of steps in the queue is bounded.
pub(crate) struct StepSender {
    store: StdArc<dyn Backend>,
    received: mpsc::UnboundedReceiver<QueuedStep>,
    /// The steps that did not fit into the last request.
    left: VecDeque<QueuedStep>,
}

struct QueuedStep {
    step: NewStep,
    reply: oneshot::Sender<Result<StepAnswer, Failure>>,
}

impl StepQueue {
    /// Stores steps. Returns `None` if the sender has ended.
    pub(crate) async fn store(
        &self,
        steps: Vec<NewStep>,
    ) -> Option<Result<Vec<StepAnswer>, Failure>> {
        let sent = steps.into_iter().map(|step| self.send(step));
        let sent: Vec<_> = sent.collect::<Option<_>>()?;
        let mut answers = Vec::with_capacity(sent.len());
        for answer in sent {
            match answer.await.ok()? {
                Ok(answer) => answers.push(answer),
                Err(failure) => return Some(Err(failure)),
            }
        }
        Some(Ok(answers))
    }

    fn send(&self, step: NewStep) -> Option<oneshot::Receiver<Result<StepAnswer, Failure>>> {
        let (reply, answer) = oneshot::channel();
        self.0.send(QueuedStep { step, reply }).ok()?;
        Some(answer)
    }
}

impl StepSender {
    pub(crate) fn new(store: StdArc<dyn Backend>) -> (StepQueue, Self) {
        let (queue, received) = mpsc::unbounded_channel();
        let sender = Self {
            store,
            received,
            left: VecDeque::new(),
        };
        (StepQueue(queue), sender)
    }

    /// Stores steps until the queue is dropped.
    pub(crate) async fn run(mut self) {
        while let Some((steps, replies)) = self.next_batch().await {
            let store = || self.store.store_steps(steps.clone());
            match resend(&Handle::current(), store).await {
                Ok(answers) => {
                    let answers = answers.into_iter().map(Ok);
                    answers.zip(replies).for_each(reply_with);
                }
                Err(failure) => replies
                    .into_iter()
                    .for_each(|reply| reply_with((Err(failure.clone()), reply))),
            }
        }
    }

    /// Waits for steps. Returns those that fit into one request.
    async fn next_batch(&mut self) -> Option<(Vec<NewStep>, Vec<Reply>)> {
        if self.left.is_empty() {
            self.left.push_back(self.received.recv().await?);
        }
        while self.left.len() < MAX_BATCH_TASKS
            && let Ok(queued) = self.received.try_recv()
        {
            self.left.push_back(queued);
        }
        let mut bytes = 0;
        let fits = self.left.iter().take_while(|queued| {
            bytes += queued.step.size();
            bytes <= MAX_BATCH_BYTES
        });
        let fits = fits.count();
        let batch = self.left.drain(..fits);
        Some(batch.map(|queued| (queued.step, queued.reply)).unzip())
    }
}

type Reply = oneshot::Sender<Result<StepAnswer, Failure>>;

/// Sends an answer. This wakes the run, and so may run code of the user.
fn reply_with((answer, reply): (Result<StepAnswer, Failure>, Reply)) {
    contain(|| drop(reply.send(answer)));
}
