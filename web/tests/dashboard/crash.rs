//! A task that crashes its workers. They are processes of their own: this program runs itself.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, Run, SpawnOptions, SqliteStore, Status,
    TaskContext, TaskError, TaskId,
};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// The variable that contains the path of the store, in the process of a worker.
const STORE: &str = "THRONG_WEB_TEST_STORE";
/// The time limit of a worker.
const LIMIT: Duration = Duration::from_secs(30);

/// Crashes its worker.
#[derive(Serialize, Deserialize)]
struct Crash;

impl DurableTask for Crash {
    const NAME: &'static str = "pdf.render";
    type Output = ();
}

impl Run<()> for Crash {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        std::process::abort()
    }
}

/// Stores a task, and lets workers run it until it is a dead letter. Another worker of the store has to be alive, which detects their deaths.
pub(crate) async fn crash_workers(client: &DurableClient, store: &Path) -> TaskId {
    let options = SpawnOptions::new().max_crashes(1);
    let id = client.spawn_with(Crash, options).await;
    let id = id.expect("a task").id();
    while client.status(id).await.expect("a status") != Status::Dead {
        let program = std::env::current_exe().expect("this program");
        let worker = Command::new(program)
            .args(["--exact", "crash::a_worker_runs_a_task_that_crashes_it"])
            .env(STORE, store)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .status();
        let status = timeout(LIMIT, worker).await.expect("the worker ends");
        status.expect("the program runs");
    }
    id
}

/// This is a worker instead of a test if the variable is set. Otherwise, it does nothing.
#[tokio::test]
async fn a_worker_runs_a_task_that_crashes_it() {
    let Some(path) = std::env::var_os(STORE) else {
        return;
    };
    let client = DurableClient::open(SqliteStore::open(path).await.expect("a store"));
    let mut builder = DurableExecutor::builder(client.clone());
    let worker = builder.register::<Crash>().start(()).await;
    let _worker = worker.expect("the worker starts");
    let start = Instant::now();
    // The task may already be a dead letter.
    while client.counts().await.expect("counts").dead == 0 && start.elapsed() < LIMIT {
        sleep(Duration::from_millis(10)).await;
    }
}
