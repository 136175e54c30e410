//! The types of the tasks.

use serde::{Deserialize, Serialize};
use throng::durable::{DurableTask, Run, TaskContext, TaskError};
use tokio::sync::Semaphore;

/// The names of the types.
pub(crate) const NAMES: [&str; 4] = ["mail.send", "report.build", "image.resize", "order.ship"];

/// A task of the type with the `N`th name. Its run does not end, so each worker that has started one stays busy.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job<const N: usize> {
    to: String,
    body: String,
}

/// A task whose run ends at once.
#[derive(Serialize, Deserialize)]
pub(crate) struct Brief {
    is_fatal: bool,
    body: String,
}

/// The length of an ordinary body.
const BODY_BYTES: usize = 80;
/// The length of a body that is nearly as long as a payload can be.
const LARGE_BODY_BYTES: usize = (1 << 20) - 1_000;
/// One of this many tasks is large.
const LARGE_EVERY: usize = 20_000;

impl<const N: usize> DurableTask for Job<N> {
    const NAME: &'static str = NAMES[N];
    type Output = ();
}

impl<const N: usize> Run<Semaphore> for Job<N> {
    async fn run(self, cx: TaskContext<Semaphore>) -> Result<(), TaskError> {
        // The semaphore has no permits.
        drop(cx.app().acquire().await);
        Ok(())
    }
}

impl<const N: usize> Job<N> {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            to: format!("user-{number}@example.org"),
            body: body(number),
        }
    }
}

impl DurableTask for Brief {
    const NAME: &'static str = "invoice.print";
    type Output = ();
}

impl Run<()> for Brief {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        let error =
            "the printer on the second floor has answered: 550 no such paper, and no toner either";
        match self.is_fatal {
            true => Err(TaskError::fatal(error)),
            false => Ok(()),
        }
    }
}

impl Brief {
    pub(crate) fn new(number: usize, is_fatal: bool) -> Self {
        let body = body(number);
        Self { is_fatal, body }
    }
}

/// Returns the body of a task. The first task and some others are large.
fn body(number: usize) -> String {
    let is_large = number.is_multiple_of(LARGE_EVERY);
    "x".repeat(if is_large {
        LARGE_BODY_BYTES
    } else {
        BODY_BYTES
    })
}
