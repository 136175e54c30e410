//! The tasks, and what their runs use: the pools and the blocked addresses.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableTask, Every, Groups, Priority, QueueSettings, Rate, Run, SpawnOptions,
    TaskContext, TaskError,
};
use throng::watch::Registry;
use throng::{BlockingPool, ComputePool, SerialExecutor};
use tokio::time::sleep;

use super::Result;

/// The address that is blocked at first.
pub(crate) const BLOCKED: &str = "moved@example.org";

/// The queues of the providers, with the number of mails per second that each accepts.
pub(crate) const PROVIDERS: [(&str, u32); 2] = [("mail/swift", 20), ("mail/steady", 5)];

/// A mail to one address.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SendMail {
    pub(crate) to: String,
    pub(crate) subject: String,
    /// The dashboard hides it, because of its name.
    pub(crate) provider_token: String,
}

impl DurableTask for SendMail {
    const NAME: &'static str = "mail.send";
    /// The answer of the provider.
    type Output = u16;
}

/// Counts the blocked addresses, once a minute.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {}

impl DurableTask for Report {
    const NAME: &'static str = "report.build";
    type Output = usize;
}

/// The context of the tasks.
pub(crate) struct App {
    pub(crate) renderer: ComputePool,
    pub(crate) blocked: SerialExecutor<BTreeSet<String>>,
    pub(crate) writer: BlockingPool,
    archive: PathBuf,
}

impl App {
    /// Creates the pools. The mails that were sent are appended to the file `archive`.
    pub(crate) fn new(archive: PathBuf, registry: &Registry) -> Result<Self> {
        let app = Self {
            renderer: ComputePool::builder().threads(1).build()?,
            blocked: SerialExecutor::new(BTreeSet::from([BLOCKED.to_owned()])),
            // One thread, so that the mails are not mixed up in the file.
            writer: BlockingPool::builder().max_threads(1).build()?,
            archive,
        };
        registry.watch("renderer", &app.renderer);
        registry.watch("blocked", &app.blocked);
        registry.watch("archive", &app.writer);
        Ok(app)
    }

    /// Runs the jobs that were submitted, and closes the pools.
    pub(crate) async fn close(&self) {
        self.renderer.close();
        self.blocked.close();
        self.writer.close();
        tokio::join!(
            self.renderer.closed(),
            self.blocked.closed(),
            self.writer.closed()
        );
    }
}

impl Run<App> for SendMail {
    async fn run(self, cx: TaskContext<App>) -> Result<u16, TaskError> {
        let app = cx.app();
        let mail = self.clone();
        let text = app.renderer.spawn(move || mail.text()).await?;
        let to = self.to.clone();
        if app.blocked.submit(move |it| it.contains(&to)).await? {
            return Err(TaskError::fatal(format!("550 {} is blocked", self.to)));
        }
        // The provider answers.
        sleep(Duration::from_millis(fastrand::u64(5..50))).await;
        if fastrand::u8(0..10) == 0 {
            return Err(TaskError::retry_after(
                "421 try later",
                Duration::from_secs(2),
            ));
        }
        let archive = app.archive.clone();
        let write = move || {
            let file = OpenOptions::new().create(true).append(true).open(archive);
            file?.write_all(text.as_bytes())
        };
        app.writer.spawn_blocking(write).await??;
        Ok(250)
    }
}

impl SendMail {
    fn text(&self) -> String {
        format!("to: {}\nsubject: {}\n\n", self.to, self.subject)
    }

    /// Returns the queue of the provider, which depends on the domain of the address.
    fn queue(&self) -> &'static str {
        let [(swift, _), (steady, _)] = PROVIDERS;
        if self.to.ends_with("@example.org") {
            swift
        } else {
            steady
        }
    }

    /// Returns the options of its task: mails that a user waits for are sent first, and customers take turns.
    pub(crate) fn options(&self, customer: &str, is_urgent: bool) -> SpawnOptions {
        let priority = if is_urgent {
            Priority::High
        } else {
            Priority::Low
        };
        let options = SpawnOptions::new().queue(self.queue());
        options.group(customer).priority(priority)
    }
}

impl Run<App> for Report {
    async fn run(self, cx: TaskContext<App>) -> Result<usize, TaskError> {
        Ok(cx.app().blocked.submit(|it| it.len()).await?)
    }
}

/// Defines the limits of the queues, and the schedule of the report. Each process does this when it starts.
pub(crate) async fn define(client: &DurableClient) -> Result<()> {
    for (queue, rate) in PROVIDERS {
        let rate = Rate::per_second(rate).burst(rate);
        let settings = QueueSettings::new().rate(rate).grouped(Groups::new());
        client.queue(queue).set(settings).await?;
    }
    let minutely = Every::new(Duration::from_secs(60));
    client.schedule("report", minutely, Report {}).await?;
    Ok(())
}
