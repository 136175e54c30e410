//! Fills a store with tasks in each status.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, Every, QueueSettings, Rate, Run, SpawnOptions,
    Status, TaskContext, TaskError, TaskId,
};

use super::Result;
use super::store::TestStore;

/// A task whose run succeeds, unless it has an error.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) to: String,
    pub(crate) error: Option<String>,
}

/// A task that no worker of the tests knows.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) month: u32,
}

/// A task whose name tries to clear a terminal, to reverse a text, and to add a line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hostile(pub(crate) String);

/// The characters that a terminal must never receive.
pub(crate) const HOSTILE: &str = "x\x1b[2J\u{9b}31m\u{202e}\u{7f}\r\ny";

impl DurableTask for Mail {
    const NAME: &'static str = "mail.send";
    type Output = String;
}

impl Run<()> for Mail {
    async fn run(self, _: TaskContext<()>) -> std::result::Result<String, TaskError> {
        match self.error {
            None => Ok(format!("sent to {}", self.to)),
            Some(error) => Err(TaskError::fatal(error)),
        }
    }
}

/// A task that runs until its worker ends.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wait;

impl DurableTask for Wait {
    const NAME: &'static str = "wait";
    type Output = ();
}

impl Run<()> for Wait {
    async fn run(self, cx: TaskContext<()>) -> std::result::Result<(), TaskError> {
        cx.stopped().await;
        Err(TaskError::retry("the worker has ended"))
    }
}

/// A workflow that waits for a signal after some steps. It fails if the signal is not a number.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order;

impl DurableTask for Order {
    const NAME: &'static str = "order";
    type Output = u64;
}

impl Run<()> for Order {
    async fn run(self, cx: TaskContext<()>) -> std::result::Result<u64, TaskError> {
        let charged = String::from("<paid>\u{1b}");
        cx.step("charge", || async { Ok(charged) }).await?;
        // A step that is named like a sleep.
        cx.step("sleep:moment", || async { Ok(()) }).await?;
        cx.sleep("moment", Duration::from_millis(1)).await?;
        cx.step("reserve", || async { Ok([1, 2]) }).await?;
        let day = Duration::from_secs(24 * 3600);
        let shipped: Option<u64> = cx.signal_within("shipped", day).await?;
        Ok(shipped.unwrap_or_default())
    }
}

/// A workflow that waits for a signal after its children have ended, which it has spawned one after the other.
#[derive(Serialize, Deserialize)]
pub(crate) struct Family;

impl DurableTask for Family {
    const NAME: &'static str = "family";
    type Output = ();
}

impl Run<()> for Family {
    async fn run(self, cx: TaskContext<()>) -> std::result::Result<(), TaskError> {
        for name in ["first", "second"] {
            let children = cx.spawn_all(name, [mail(None)]).await?;
            cx.join(&children).await?;
        }
        cx.signal("go").await
    }
}

impl DurableTask for Report {
    const NAME: &'static str = "report.build";
    const QUEUE: Option<&'static str> = Some("reports");
    type Output = ();
}

impl DurableTask for Hostile {
    const NAME: &'static str = HOSTILE;
    type Output = String;
}

impl Run<()> for Hostile {
    async fn run(self, _: TaskContext<()>) -> std::result::Result<String, TaskError> {
        Err(TaskError::fatal(self.0))
    }
}

/// The id of a task of the scene.
pub(crate) fn id(number: u8) -> TaskId {
    let mut bytes = [0; 16];
    (bytes[6], bytes[8], bytes[15]) = (0x80, 0x80, number);
    TaskId::from_bytes(bytes)
}

pub(crate) fn mail(error: Option<&str>) -> Mail {
    Mail {
        to: "a@b.c".into(),
        error: error.map(String::from),
    }
}

pub(crate) fn with_id(number: u8) -> SpawnOptions {
    SpawnOptions::new()
        .id(id(number))
        .retention(Duration::from_secs(3600))
}

/// Starts a worker that knows mails and hostile tasks.
pub(crate) async fn worker(client: &DurableClient) -> Result<DurableExecutor> {
    let mut builder = DurableExecutor::builder(client.clone());
    builder
        .register::<Mail>()
        .register::<Hostile>()
        .register::<Wait>()
        .register::<Order>()
        .register::<Family>()
        .max_running(1);
    builder.retry(Retry::exponential().attempts(1));
    Ok(builder.start(()).await?)
}

/// Waits until a task has this status.
pub(crate) async fn reaches(client: &DurableClient, task: TaskId, status: Status) -> Result {
    while client.status(task).await? != status {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Returns a store in a file that is filled.
pub(crate) async fn filled() -> Result<TestStore> {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    Ok(store)
}

/// Fills a store. When this returns, no worker runs:
///
/// - 1 has succeeded, 2 to 4 are dead letters, 5 is cancelled;
/// - 6 and 7 wait in the default queue, 8 waits in the queue `reports`, 9 is delayed.
pub(crate) async fn fill(client: &DurableClient) -> Result {
    let executor = worker(client).await?;
    client.spawn_with(mail(None), with_id(1)).await?.await?;
    for (number, error) in [(2, "no such mailbox"), (3, "the server has refused it")] {
        let handle = client
            .spawn_with(mail(Some(error)), with_id(number))
            .await?;
        assert!(handle.await.is_err_and(|error| error.is_dead()));
    }
    let hostile = Hostile(format!("a secret \u{200b}{HOSTILE}"));
    let hostile = client.spawn_with(hostile, with_id(4)).await?;
    assert!(hostile.await.is_err_and(|error| error.is_dead()));
    executor.shutdown(Duration::from_secs(10)).await;

    client
        .spawn_with(mail(None), with_id(5))
        .await?
        .cancel()
        .await?;
    client.spawn_with(mail(None), with_id(6)).await?;
    client.spawn_with(mail(None), with_id(7)).await?;
    client.spawn_with(Report { month: 11 }, with_id(8)).await?;
    client
        .spawn_with(mail(None), with_id(9).delay(Duration::from_secs(3600)))
        .await?;

    let limits = QueueSettings::new()
        .max_running(4)
        .rate(Rate::per_minute(100));
    client.queue("reports").set(limits).await?;
    let hourly = Every::new(Duration::from_secs(3600)).anchor(SystemTime::UNIX_EPOCH);
    client.schedule("nightly", hourly, mail(None)).await?;
    Ok(())
}
