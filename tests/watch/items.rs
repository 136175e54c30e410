//! The items of a part: the types of tasks of an executor, and the queues of a store.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    Clock, DurableClient, DurableExecutor, DurableTask, MemoryStore, QueueSettings, Run,
    ServedQueue, SpawnOptions, TaskContext, TaskError,
};
use throng::watch::{PartKind, Registry};

use crate::exposition::Exposition;
use crate::support::{current_thread, eventually, within};

#[derive(Serialize, Deserialize)]
struct Resize(u32);

impl DurableTask for Resize {
    const NAME: &'static str = "image.resize";
    type Output = u32;
}

/// A type of which no task is spawned.
#[derive(Serialize, Deserialize)]
struct Unused;

impl DurableTask for Unused {
    const NAME: &'static str = "unused";
    type Output = ();
}

struct App;

impl Run<App> for Resize {
    async fn run(self, _: TaskContext<App>) -> Result<u32, TaskError> {
        match self.0 {
            0 => Err(TaskError::fatal("there is nothing to resize")),
            size => Ok(size / 2),
        }
    }
}

impl Run<App> for Unused {
    async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> {
        Ok(())
    }
}

async fn start(client: &DurableClient, queue: ServedQueue) -> DurableExecutor {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Resize>().register::<Unused>();
    builder.retry(Retry::exponential().attempts(1));
    builder.serve(queue).start(App).await.unwrap()
}

fn runs(shown: &Exposition, task: &str, outcome: &str) -> Option<f64> {
    let labels = [("executor", "images"), ("type", task), ("outcome", outcome)];
    shown.get("throng_durable_task_runs_total", &labels)
}

#[test]
fn runs_are_counted_by_type_and_outcome() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let executor = start(&client, ServedQueue::default_queue()).await;
        let registry = Registry::new();
        registry.watch("images", &executor);
        let before = Exposition::parse(&registry.prometheus());
        assert_eq!(runs(&before, "image.resize", "died"), Some(0.0));

        for size in [640, 0, 1_280] {
            let resized = client.spawn(Resize(size)).await.unwrap();
            assert_eq!(within(resized).await.is_ok(), size > 0);
        }
        let now = Exposition::parse(&registry.prometheus());
        assert_eq!(runs(&now, "image.resize", "completed"), Some(2.0));
        assert_eq!(runs(&now, "image.resize", "died"), Some(1.0));
        assert_eq!(runs(&now, "unused", "completed"), Some(0.0));
        let time = |name| now.get(name, &[("executor", "images"), ("type", "image.resize")]);
        assert_eq!(time("throng_durable_run_seconds_count"), Some(3.0));
        assert!(time("throng_durable_run_seconds_sum").unwrap() > 0.0);

        within(executor.shutdown(Duration::ZERO)).await;
        drop(executor);
        eventually("the executor is gone", || {
            registry.snapshot().parts()[0].live() == 0
        })
        .await;
        let after = Exposition::parse(&registry.prometheus());
        assert_eq!(runs(&after, "image.resize", "completed"), Some(2.0));
    });
}

/// The time is that of the store's clock.
#[test]
fn the_time_for_which_tasks_wait_is_measured() {
    current_thread().block_on(async {
        let clock = Clock::manual();
        let client = DurableClient::open(MemoryStore::with_clock(&clock));
        let gpu = client.queue("gpu");
        gpu.pause().await.unwrap();
        let executor = start(&client, ServedQueue::new("gpu")).await;
        let registry = Registry::new();
        registry.watch("images", &executor);
        let in_queue = SpawnOptions::new().queue("gpu");
        let resized = client.spawn_with(Resize(640), in_queue).await.unwrap();
        clock.advance(Duration::from_secs(90));
        gpu.resume().await.unwrap();
        within(resized).await.unwrap();
        let shown = Exposition::parse(&registry.prometheus());
        let time = |name, task| shown.get(name, &[("executor", "images"), ("type", task)]);
        let (count, sum) = (
            "throng_durable_wait_seconds_count",
            "throng_durable_wait_seconds_sum",
        );
        assert_eq!(time(count, "image.resize"), Some(1.0));
        assert_eq!(time(sum, "image.resize"), Some(90.0));
        assert_eq!(time(count, "unused"), Some(0.0));
    });
}

/// Two executors of one name know different types.
#[test]
fn a_sample_names_its_item() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let executors = [
            start(&client, ServedQueue::default_queue()).await,
            DurableExecutor::builder(client.clone())
                .register::<Unused>()
                .start(App)
                .await
                .unwrap(),
        ];
        let registry = Registry::new();
        executors
            .iter()
            .for_each(|executor| registry.watch("images", executor));
        let snapshot = registry.snapshot();
        let part = snapshot
            .part(PartKind::DurableExecutor, "images")
            .expect("it is watched");
        let samples = part.samples().iter();
        let items: Vec<_> = samples
            .filter(|it| it.name() == "throng_durable_run_seconds")
            .map(|it| it.item())
            .collect();
        let expected = ["image.resize", "unused"].map(|name| Some(("type", name)));
        assert_eq!((part.live(), items), (2, expected.to_vec()));
        assert_eq!(part.value("throng_durable_run_seconds", ""), None);
    });
}

fn queue(shown: &Exposition, metric: &str, queue: &str) -> Option<f64> {
    shown.get(metric, &[("store", "jobs"), ("queue", queue)])
}

#[test]
fn a_store_shows_its_queues() {
    current_thread().block_on(async {
        let clock = Clock::manual();
        let client = DurableClient::open(MemoryStore::with_clock(&clock));
        let gpu = client.queue("gpu");
        gpu.set(QueueSettings::new().max_running(4)).await.unwrap();
        gpu.pause().await.unwrap();
        let _executor = start(&client, ServedQueue::new("gpu")).await;
        let in_queue = || SpawnOptions::new().queue("gpu");
        for size in [1, 2] {
            client.spawn_with(Resize(size), in_queue()).await.unwrap();
        }
        clock.advance(Duration::from_secs(90));
        let registry = Registry::new();
        registry.watch("jobs", &client);
        let snapshot = within(registry.snapshot_with_stores()).await;
        let shown = Exposition::parse(&snapshot.prometheus());
        let waiting = [("store", "jobs"), ("queue", "gpu"), ("state", "waiting")];
        let tasks = shown.get("throng_durable_queue_tasks", &waiting);
        assert_eq!(tasks, Some(2.0));
        for (metric, gpu, default) in [
            ("throng_durable_queue_limit", Some(4.0), None),
            ("throng_durable_queue_workers", Some(1.0), Some(0.0)),
            ("throng_durable_queue_paused", Some(1.0), Some(0.0)),
            (
                "throng_durable_oldest_waiting_seconds",
                Some(90.0),
                Some(0.0),
            ),
        ] {
            assert_eq!(queue(&shown, metric, "gpu"), gpu, "{metric}");
            assert_eq!(queue(&shown, metric, "(default)"), default, "{metric}");
        }
    });
}

/// The names of queues may be data, such as the names of customers.
#[test]
fn further_queues_are_added_up_as_one() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        for number in 0..70 {
            let queue = client.queue(&format!("customer-{number:02}"));
            queue
                .set(QueueSettings::new().max_running(2))
                .await
                .unwrap();
        }
        let registry = Registry::new();
        registry.watch("jobs", &client);
        let snapshot = within(registry.snapshot_with_stores()).await;
        let shown = Exposition::parse(&snapshot.prometheus());
        let paused = shown.samples.keys();
        let paused = paused.filter(|(name, _)| name == "throng_durable_queue_paused");
        assert_eq!(paused.count(), 65);
        let limit = |name| queue(&shown, "throng_durable_queue_limit", name);
        assert_eq!(
            (limit("customer-62"), limit("customer-63")),
            (Some(2.0), None)
        );
        assert_eq!(limit("other"), Some(14.0));
    });
}
