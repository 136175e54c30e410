//! The costs of workflows that sleep.
//!
//! With `THRONG_LONG=1`, there are 100,000 of them, and the server is observed for a minute.

use serde::{Deserialize, Serialize};

use super::idle_costs_tests::sent;
use super::*;
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, Run, SpawnOptions, TaskContext, TaskError,
};

const TEN_DAYS: Duration = Duration::from_secs(10 * 24 * 3600);

/// A workflow that sleeps.
#[derive(Clone, Serialize, Deserialize)]
struct Sleeper;

impl DurableTask for Sleeper {
    const NAME: &'static str = "sleeper";
    type Output = ();
}

impl Run<()> for Sleeper {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        cx.sleep("pause", TEN_DAYS).await
    }
}

/// A server with a worker.
struct Site {
    server: Server,
    client: DurableClient,
    _executor: DurableExecutor,
}

impl Site {
    async fn new() -> Self {
        let server = Server::start();
        let client = DurableClient::open(open(&server.url()).await);
        let mut builder = DurableExecutor::builder(client.clone());
        // The worker polls for tasks every 1.5 seconds.
        builder.register::<Sleeper>().lease(Duration::from_secs(2));
        let executor = builder.start(()).await.unwrap();
        Self {
            server,
            client,
            _executor: executor,
        }
    }

    /// Stores tasks, and waits until all of them are delayed.
    async fn fill(&self, tasks: u64, options: SpawnOptions) {
        let spawned = (0..tasks).map(|_| (Sleeper, options.clone()));
        self.client.spawn_all_with(spawned).await.unwrap();
        while self.client.counts().await.unwrap().delayed < tasks {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the worker sends nothing between two polls: it has begun, and all ends of runs are stored.
    async fn is_at_rest(&self) {
        let mut before = None;
        while before != Some(self.scripts()) {
            before = Some(self.scripts());
            sleep(Duration::from_millis(300)).await;
        }
    }

    fn info(&self, section: &str, names: &[&str]) -> f64 {
        let redis::Value::BulkString(text) = self.server.ask(&["INFO", section]) else {
            panic!("a text");
        };
        let text = String::from_utf8(text).unwrap();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let fields = fields.filter(|(name, _)| names.contains(name));
        fields.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    fn memory(&self) -> f64 {
        self.info("memory", &["used_memory"])
    }

    /// The processor time that the server has used, in seconds.
    fn processor_time(&self) -> f64 {
        self.info("cpu", &["used_cpu_user", "used_cpu_sys"])
    }

    fn scripts(&self) -> u64 {
        sent(&self.server, &["evalsha", "eval"])
    }
}

#[tokio::test]
async fn a_workflow_that_sleeps_costs_some_memory_and_nothing_else() {
    needs_redis!();
    let is_long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let (tasks, seconds) = if is_long { (100_000, 60) } else { (2_000, 4) };
    let (asleep, delayed, empty) = (Site::new().await, Site::new().await, Site::new().await);
    asleep.fill(tasks, SpawnOptions::new()).await;
    delayed
        .fill(tasks, SpawnOptions::new().delay(TEN_DAYS))
        .await;
    let sites = [&asleep, &delayed, &empty];
    for site in sites {
        site.is_at_rest().await;
    }
    let before = sites.map(|site| (site.scripts(), site.processor_time()));
    sleep(Duration::from_secs(seconds)).await;
    let after = sites.map(|site| (site.scripts(), site.processor_time()));
    let [scripts, _, idle_scripts] = [0, 1, 2].map(|nth| after[nth].0 - before[nth].0);
    let [used, _, idle] = [0, 1, 2].map(|nth| after[nth].1 - before[nth].1);
    let bytes = |site: &Site| (site.memory() - empty.memory()) / tasks as f64;
    let [total, plain] = [&asleep, &delayed].map(bytes);
    println!(
        "{tasks} workflows: {total:.0} bytes each, and a delayed task has {plain:.0}; in {seconds} s, {scripts} scripts and {used:.3} s of \
         processor time; without any task {idle_scripts} and {idle:.3} s"
    );
    assert!(total - plain <= 400.0, "{total} and {plain} bytes");
    // A poll, a pass of maintenance and a look for schedules may be due in one of the times only.
    assert!(scripts <= idle_scripts + 3, "{scripts}, {idle_scripts}");
    if is_long {
        assert!(used - idle <= 0.001 * seconds as f64, "{used} and {idle} s");
    }
}
