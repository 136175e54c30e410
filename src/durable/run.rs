//! [`Run`]: what a durable task does.

use std::future::Future;

use super::{DurableTask, TaskContext, TaskError};

/// Defines what a durable task does. Only workers need it.
///
/// `App` is a type of yours with what tasks need, such as a pool of connections. The [context](TaskContext::app) of each
/// run holds it.
///
/// A task can run more than once: its worker may die after the work was done, and before that is stored. To guard
/// against a second run, use [`TaskContext::idempotency_key`] or [`TaskContext::fencing_token`].
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::DurableTask;
/// use throng::durable::{Run, TaskContext, TaskError};
/// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
///
/// struct App {
///     sender: String,
/// }
///
/// impl Run<App> for SendMail {
///     async fn run(self, cx: TaskContext<App>) -> Result<(), TaskError> {
///         if !self.to.contains('@') {
///             return Err(TaskError::fatal("not an address"));
///         }
///         println!("{} to {}, attempt {}", cx.app().sender, self.to, cx.attempt());
///         Ok(())
///     }
/// }
/// # drop((App { sender: "me".into() }, SendMail { to: "you".into() }));
/// ```
pub trait Run<App>: DurableTask {
    /// Runs the task.
    ///
    /// # Errors
    ///
    /// The error determines whether, and when, the task runs again: see [`TaskError`]. A panic counts as an error that is
    /// tried again.
    ///
    /// An encoded output may have at most 1 MiB. If it is larger, the task becomes a dead letter
    /// ([`OutputTooLarge`](super::DeadReason::OutputTooLarge)) without another attempt, and its output is lost. A run
    /// that may produce more has to store the output elsewhere itself.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at an await point when the grace period of a [shutdown](super::DurableExecutor::shutdown) is
    /// over. The task then runs again from its beginning.
    ///
    /// # Examples
    ///
    /// See [`Run`].
    fn run(
        self,
        cx: TaskContext<App>,
    ) -> impl Future<Output = Result<Self::Output, TaskError>> + Send;
}
