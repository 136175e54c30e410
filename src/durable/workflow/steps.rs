//! Steps: closures that run once, since later runs read their stored outputs.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable::failpoint::failpoint;
use crate::durable::store::StepKind;
use crate::durable::{TaskContext, TaskError};

impl<App> TaskContext<App> {
    /// Runs a step of the task, or returns the output that it had in an earlier run.
    ///
    /// The output is stored before this returns. So when the task runs again, because a later step has failed or its worker has died, the
    /// closure is not called again, and all runs get the same output. If the closure returns an error, nothing is stored, and the next run
    /// calls it again. This run may do so, too, under the same name.
    ///
    /// A step runs again only if its output was not stored: if the worker has died or has lost its lease, if the store did not answer or
    /// had no space left, or if its future was dropped, for example by `try_join!` beside a wait. To guard against that, pass the
    /// [idempotency key](Self::idempotency_key) of the task and the name of the step to the service that the step calls.
    ///
    /// # Names
    ///
    /// A step is found by its name, so its name must not change while tasks run. Within a run, each step has a name of its own: in a loop,
    /// use names with numbers. The order of the steps does not matter. So a program with more, or fewer, steps continues the tasks of an
    /// older one: it runs the steps that it does not find, and ignores those that it does not ask for.
    ///
    /// # Limits
    ///
    /// The output has at most 64 KiB as JSON, and the name 1 to 128 bytes. A task has at most 8,192 steps, and these have at most 2 MiB
    /// with their names. The ends of children count, too, but leave room for 4,096 other steps and nearly 1 MiB of them.
    /// Steps are kept until the task succeeds or is cancelled. A dead letter keeps them, so a [replay](crate::durable::DeadLetters::replay)
    /// continues after the last step.
    ///
    /// # Errors
    ///
    /// - the error of the closure;
    /// - a [fatal](TaskError::fatal) error if the run has used the name before, if a limit is exceeded, if the output cannot be encoded, or
    ///   cannot be decoded as a `T` after that (nothing is stored then), or if the stored output is not a `T`;
    /// - an error after which the task is tried again if the store does not answer, or if another worker has the task;
    /// - an error after which the task runs again, and no attempt is counted, if the store has no space left.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the output may be stored or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn charge(_: u32, _: String) -> Result<u64, TaskError> { Ok(7) }
    /// # async fn send_receipt(_: u64) -> Result<(), TaskError> { Ok(()) }
    /// async fn order(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     let payment = cx.step("charge", || charge(100, cx.idempotency_key())).await?;
    ///     cx.step("receipt", || send_receipt(payment)).await
    /// }
    /// # let _ = order;
    /// ```
    pub async fn step<T, F, Fut>(&self, name: &str, run: F) -> Result<T, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, TaskError>>,
    {
        let (name, known) = self.look_up(StepKind::Step, name).await?;
        if let Some(step) = known {
            return self.steps.decode(&name.keep(), &step);
        }
        failpoint("step.before-run");
        let value = {
            let output = run().await;
            let output = output.inspect_err(|error| self.steps.add_failure(error))?;
            failpoint("step.after-run");
            self.steps.encode(name.name(), &output)?
        };
        self.steps.check_output::<T>(name.name(), &value)?;
        let step = self.store_step(name.name().clone(), value).await?;
        self.steps.decode(&name.keep(), &step)
    }
}
