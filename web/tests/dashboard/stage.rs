//! A store with a task in each state.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, Every, InlineExecutor, MemoryStore, QueueSettings,
    Rate, Run, SpawnOptions, SqliteStore, Status, TaskContext, TaskError, TaskId,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::support::until;

/// A text that no answer may contain.
pub(crate) const SECRET: &str = "hunter2-4f9c";

const HOUR: Duration = Duration::from_secs(3600);

/// A task that contains the secret wherever a task can contain something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) to: String,
    password: String,
    pub(crate) act: Act,
}

/// The behaviour of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Succeed,
    Retry,
    Die,
    Hang,
}

impl DurableTask for Mail {
    const NAME: &'static str = "mail.send";
    type Output = Value;
}

/// A type that no worker knows.
#[derive(Serialize, Deserialize)]
struct Unserved;

impl DurableTask for Unserved {
    const NAME: &'static str = "report.build";
    type Output = ();
}

impl Run<Semaphore> for Mail {
    async fn run(self, cx: TaskContext<Semaphore>) -> Result<Value, TaskError> {
        match self.act {
            Act::Succeed => Ok(json!({ "id": 7, "api_key": SECRET })),
            Act::Retry => {
                cx.progress(&json!({ "percent": 62, "session-token": SECRET }));
                let error = format!("421 try later: token={SECRET}");
                Err(TaskError::retry_after(error, HOUR))
            }
            Act::Die => Err(TaskError::fatal(format!(
                "550 refused by smtp://mailer:{SECRET}@example.org/"
            ))),
            Act::Hang => {
                let released = cx.app().acquire().await;
                Ok(json!(released.is_ok()))
            }
        }
    }
}

pub(crate) fn mail(act: Act) -> Mail {
    Mail {
        to: "a@b.c".into(),
        password: SECRET.into(),
        act,
    }
}

/// A store with a task in each state. Dropping it ends the task that runs.
pub(crate) struct Stage {
    pub(crate) client: DurableClient,
    pub(crate) waiting: TaskId,
    pub(crate) delayed: TaskId,
    pub(crate) retried: TaskId,
    pub(crate) running: TaskId,
    pub(crate) done: TaskId,
    pub(crate) dead: TaskId,
    pub(crate) cancelled: TaskId,
    run: JoinHandle<()>,
    _folder: Option<tempfile::TempDir>,
}

impl Stage {
    pub(crate) async fn in_memory() -> Self {
        Self::of(DurableClient::open(MemoryStore::new()), None).await
    }

    pub(crate) async fn in_a_file() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(folder.path().join("tasks.db")).await;
        let client = DurableClient::open(store.expect("the file can be opened"));
        Self::of(client, Some(folder)).await
    }

    pub(crate) async fn of(client: DurableClient, folder: Option<tempfile::TempDir>) -> Self {
        let mut executor = DurableExecutor::builder(client.clone())
            .register::<Mail>()
            .start_inline(Semaphore::new(0))
            .await
            .unwrap();
        let kept = || SpawnOptions::new().retention(HOUR);
        let done = spawn(&client, Act::Succeed, kept()).await;
        let dead = spawn(&client, Act::Die, kept()).await;
        let retried = spawn(&client, Act::Retry, kept()).await;
        assert_eq!(executor.run_due().await.unwrap(), 3);
        let (running, run) = hang(&client, executor).await;
        let bulk = || kept().queue("bulk").group("acme");
        let cancelled = spawn(&client, Act::Succeed, bulk()).await;
        client.cancel(&[cancelled]).await.unwrap();
        define(&client).await;
        Self {
            waiting: spawn(&client, Act::Succeed, bulk()).await,
            delayed: spawn(&client, Act::Succeed, kept().delay(HOUR)).await,
            client,
            retried,
            running,
            done,
            dead,
            cancelled,
            run,
            _folder: folder,
        }
    }

    /// Returns the tasks, with the state in which each of them is.
    pub(crate) fn tasks(&self) -> [(&'static str, TaskId); 7] {
        [
            ("waiting", self.waiting),
            ("delayed", self.delayed),
            ("delayed", self.retried),
            ("running", self.running),
            ("done", self.done),
            ("dead", self.dead),
            ("cancelled", self.cancelled),
        ]
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.run.abort();
    }
}

pub(crate) async fn spawn(client: &DurableClient, act: Act, options: SpawnOptions) -> TaskId {
    client.spawn_with(mail(act), options).await.unwrap().id()
}

/// Starts a run that does not end.
async fn hang(client: &DurableClient, mut executor: InlineExecutor) -> (TaskId, JoinHandle<()>) {
    let id = spawn(client, Act::Hang, SpawnOptions::new()).await;
    let run = tokio::spawn(async move {
        executor.run_due().await.ok();
    });
    until("the task runs", async || {
        client.status(id).await.unwrap() == Status::Running
    })
    .await;
    (id, run)
}

/// Defines a queue that is paused, a schedule, and a task of a type that no worker knows.
pub(crate) async fn define(client: &DurableClient) {
    let settings = QueueSettings::new()
        .max_running(4)
        .rate(Rate::per_minute(100));
    client.queue("bulk").set(settings).await.unwrap();
    client.queue("bulk").pause().await.unwrap();
    client.spawn(Unserved).await.unwrap();
    let hourly = Every::new(HOUR);
    let defined = client.schedule("nightly", hourly, mail(Act::Succeed)).await;
    assert!(defined.unwrap());
}
