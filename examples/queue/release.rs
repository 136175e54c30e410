//! The tasks that a worker runs, and the schedule that its release defines.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use throng::durable::{
    Cron, DurableClient, DurableExecutor, DurableTask, Run, ScheduleOptions, ServedQueue,
    TaskContext, TaskError,
};
use tokio::io::{AsyncReadExt, stdin};

use super::Result;
use super::provider::{Answer, ask};

/// The queue of mails.
pub(crate) const MAIL: &str = "mail";
/// The name of the schedule of the report.
pub(crate) const NIGHTLY: &str = "nightly-report";

/// Sends a mail for a customer.
#[derive(Serialize, Deserialize)]
pub(crate) struct SendMail {
    pub(crate) customer: String,
    pub(crate) to: String,
}

impl DurableTask for SendMail {
    const NAME: &'static str = "send-mail";
    const QUEUE: Option<&'static str> = Some(MAIL);
    type Output = ();
}

/// Writes the report of a night.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report;

impl DurableTask for Report {
    const NAME: &'static str = "report";
    type Output = ();
}

/// The context of the tasks.
struct App {
    provider: SocketAddr,
}

impl Run<App> for SendMail {
    async fn run(self, cx: TaskContext<App>) -> Result<(), TaskError> {
        // If this process is killed after the mail was sent, the task runs again. Because of this key, the provider sends no second mail.
        let request = format!("mail {} {}", cx.idempotency_key(), self.customer);
        match ask(cx.app().provider, &request).await {
            Ok(Answer::Done(_)) => Ok(()),
            // The provider refuses only this customer, so the mails of other customers are still sent.
            Ok(Answer::Busy(wait)) => Err(TaskError::retry_after(
                "the provider asks for a break",
                wait,
            )
            .and_hold_group(wait)),
            Err(error) => Err(TaskError::retry(error)),
        }
    }
}

impl Run<App> for Report {
    async fn run(self, cx: TaskContext<App>) -> Result<(), TaskError> {
        let Answer::Done(text) = ask(cx.app().provider, "count").await? else {
            return Err(TaskError::retry("the provider does not answer"));
        };
        let tick = cx
            .tick()
            .and_then(|tick| tick.duration_since(UNIX_EPOCH).ok());
        let tick = tick.ok_or("only the schedule stores this task")?;
        say(format_args!("reported {} {text}", tick.as_millis()));
        Ok(())
    }
}

/// The maximum number of mails that a process sends at once.
const AT_ONCE: usize = 8;
/// The time for which running tasks may continue when the process is told to end.
const GRACE: Duration = Duration::from_secs(5);

/// Runs tasks until standard input ends.
pub(crate) async fn work(client: DurableClient, release: u32, provider: SocketAddr) -> Result<()> {
    define(&client, release).await?;
    let executor = DurableExecutor::builder(client)
        .register::<SendMail>()
        .register::<Report>()
        .serve(ServedQueue::new(MAIL).max_running(AT_ONCE))
        .serve(ServedQueue::default_queue())
        .start(App { provider })
        .await?;
    say("began");
    stdin().read_to_end(&mut Vec::new()).await?;
    executor.shutdown(GRACE).await;
    Ok(())
}

/// Defines the schedule of the nightly report. Each process does this when it starts. Because of the revision, a process of an old
/// release does not undo what a newer release has defined.
///
/// A real service would use `0 3 * * *`. In this example, a night comes every two seconds, and every three seconds in release 2.
async fn define(client: &DurableClient, release: u32) -> Result<()> {
    let nights = if release == 1 {
        "*/2 * * * * *"
    } else {
        "*/3 * * * * *"
    };
    let when = Cron::parse(nights, "Europe/Berlin")?;
    let options = ScheduleOptions::new().revision(release);
    client.schedule_with(NIGHTLY, when, Report, options).await?;
    Ok(())
}

/// Reports an event to the main process.
fn say(what: impl std::fmt::Display) {
    // If nobody reads the lines any more, the tasks run all the same.
    writeln!(io::stdout(), "{what}").ok();
}
