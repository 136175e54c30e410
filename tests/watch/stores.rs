//! Durable executors and stores.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError,
};
use throng::watch::{PartKind, Registry};

use crate::exposition::Exposition;
use crate::support::{current_thread, eventually, within};

#[derive(Serialize, Deserialize)]
struct Add(u32, u32);

impl DurableTask for Add {
    const NAME: &'static str = "add";
    type Output = u32;
}

struct App;

impl Run<App> for Add {
    async fn run(self, _: TaskContext<App>) -> Result<u32, TaskError> {
        Ok(self.0 + self.1)
    }
}

/// Asks the stores, and parses the text.
async fn shown(registry: &Registry) -> Exposition {
    let snapshot = within(registry.snapshot_with_stores()).await;
    Exposition::parse(&snapshot.prometheus())
}

fn tasks(shown: &Exposition, state: &str) -> Option<f64> {
    shown.get(
        "throng_durable_tasks",
        &[("store", "jobs"), ("state", state)],
    )
}

fn up(shown: &Exposition) -> Option<f64> {
    shown.get("throng_durable_store_up", &[("store", "jobs")])
}

#[test]
fn a_store_shows_the_numbers_of_all_its_tasks() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        client.spawn_all([Add(1, 2), Add(3, 4)]).await.unwrap();
        let registry = Registry::new();
        registry.watch("jobs", &client);
        let shown = shown(&registry).await;
        assert_eq!(up(&shown), Some(1.0));
        let well = [("store", "jobs"), ("state", "well")];
        assert_eq!(shown.get("throng_durable_store_health", &well), Some(1.0));
        assert_eq!(
            (tasks(&shown, "waiting"), tasks(&shown, "dead")),
            (Some(2.0), Some(0.0))
        );
        let stored = [("store", "jobs"), ("event", "stored")];
        assert_eq!(shown.get("throng_durable_events_total", &stored), Some(2.0));
        let unserved = shown.get("throng_durable_unserved_tasks", &[("store", "jobs")]);
        assert_eq!(unserved, Some(2.0));
    });
}

#[test]
fn a_plain_snapshot_asks_no_store() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let registry = Registry::new();
        registry.watch("jobs", &client);
        drop(shown(&registry).await);
        let plain = Exposition::parse(&registry.prometheus());
        assert_eq!((up(&plain), tasks(&plain, "waiting")), (Some(1.0), None));
    });
}

/// Several who look at a time share one question, and so do those who look within five seconds.
#[test]
fn a_store_is_asked_at_most_every_five_seconds() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let registry = Registry::new();
        registry.watch("jobs", &client);
        let begun = Instant::now();
        assert_eq!(tasks(&shown(&registry).await, "waiting"), Some(0.0));
        client.spawn(Add(1, 2)).await.unwrap();
        loop {
            let now = tasks(&shown(&registry).await, "waiting");
            if now == Some(1.0) {
                break;
            }
            assert_eq!(now, Some(0.0));
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "it is never asked again"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(
            begun.elapsed() >= Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn a_question_that_nobody_awaits_any_more_is_answered_for_others() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let registry = Registry::new();
        registry.watch("jobs", &client);
        let mut first = Box::pin(registry.snapshot_with_stores());
        let polled = crate::support::poll(&mut first);
        drop((polled, first));
        assert_eq!(tasks(&shown(&registry).await, "waiting"), Some(0.0));
    });
}

#[test]
fn a_store_that_does_not_answer_is_down_and_shows_no_numbers() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let registry = Registry::new();
        registry.watch("jobs", &client);
        client.close().await.unwrap();
        let shown = shown(&registry).await;
        assert_eq!((up(&shown), tasks(&shown, "waiting")), (Some(0.0), None));
    });
}

/// A client that is opened again under the same name need not wait until the store may be asked again.
#[test]
fn a_new_client_is_asked_at_once() {
    current_thread().block_on(async {
        let registry = Registry::new();
        let first = DurableClient::open(MemoryStore::new());
        registry.watch("jobs", &first);
        first.close().await.unwrap();
        assert_eq!(up(&shown(&registry).await), Some(0.0));
        drop(first);
        let second = DurableClient::open(MemoryStore::new());
        registry.watch("jobs", &second);
        assert_eq!(up(&shown(&registry).await), Some(1.0));
    });
}

/// A handler of a web server must be able to await it on any thread.
#[test]
fn the_question_can_be_sent() {
    fn sent<T: Send>(future: T) -> T {
        future
    }
    let registry = Registry::new();
    let snapshot = current_thread().block_on(sent(registry.snapshot_with_stores()));
    assert!(snapshot.parts().is_empty());
}

#[test]
fn a_watched_client_is_dropped_as_if_nobody_watched_it() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let registry = Registry::new();
        registry.watch("jobs", &client);
        registry.watch("jobs", &client.clone());
        let snapshot = registry.snapshot_with_stores().await;
        assert_eq!(
            snapshot
                .part(PartKind::DurableStore, "jobs")
                .unwrap()
                .live(),
            1
        );
        drop(client);
        eventually("the client is gone", || {
            registry.snapshot().parts()[0].live() == 0
        })
        .await;
        assert_eq!(up(&shown(&registry).await), None);
    });
}

#[test]
fn an_executor_shows_its_runs() {
    current_thread().block_on(async {
        let client = DurableClient::open(MemoryStore::new());
        let mut builder = DurableExecutor::builder(client.clone());
        let executor = builder
            .register::<Add>()
            .max_running(7)
            .start(App)
            .await
            .unwrap();
        let registry = Registry::new();
        registry.watch("mails", &executor);
        let sum = client.spawn(Add(1, 2)).await.unwrap();
        assert_eq!(within(sum).await.unwrap(), 3);
        eventually("the run is counted", || executor.metrics().completed == 1).await;
        let get = |shown: &Exposition, name: &str| shown.get(name, &[("executor", "mails")]);
        let now = Exposition::parse(&registry.prometheus());
        assert_eq!(get(&now, "throng_durable_max_running"), Some(7.0));
        let completed = [("executor", "mails"), ("outcome", "completed")];
        assert_eq!(now.get("throng_durable_runs_total", &completed), Some(1.0));

        within(executor.shutdown(Duration::ZERO)).await;
        drop(executor);
        eventually("the executor is gone", || {
            registry.snapshot().parts()[0].live() == 0
        })
        .await;
        let after = Exposition::parse(&registry.prometheus());
        assert_eq!(get(&after, "throng_durable_max_running"), None);
        assert_eq!(
            after.get("throng_durable_runs_total", &completed),
            Some(1.0)
        );
    });
}

/// Each process that watches a client of a store shows the same numbers.
#[cfg(feature = "sqlite")]
#[test]
fn all_clients_of_a_store_show_the_same_numbers() {
    use throng::durable::SqliteStore;

    current_thread().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tasks.db");
        let mut seen = Vec::new();
        let spawner = DurableClient::open(SqliteStore::open(&file).await.unwrap());
        spawner.spawn_all([Add(1, 2), Add(3, 4)]).await.unwrap();
        let other = DurableClient::open(SqliteStore::open(&file).await.unwrap());
        for client in [&spawner, &other] {
            let registry = Registry::new();
            registry.watch("jobs", client);
            let mut samples = shown(&registry).await.samples;
            samples.retain(|(name, _), _| name != "throng_watch_seconds");
            seen.push(samples);
        }
        assert_eq!(seen[0], seen[1]);
        // Two clients under one name are not added up.
        let both = Registry::new();
        both.watch("jobs", &spawner);
        both.watch("jobs", &other);
        assert_eq!(tasks(&shown(&both).await, "waiting"), Some(2.0));
        other.close().await.unwrap();
        spawner.close().await.unwrap();
    });
}

/// Asks the stores until the condition holds. No snapshot may take long.
#[cfg(all(unix, feature = "redis"))]
async fn until(registry: &Registry, condition: impl Fn(&Exposition) -> bool) -> Exposition {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let begun = Instant::now();
        let now = shown(registry).await;
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        if condition(&now) {
            return now;
        }
        assert!(begun < deadline, "waited in vain: {now:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A server that hangs holds up a snapshot for two seconds at most, and its old numbers are not shown.
#[cfg(all(unix, feature = "redis"))]
#[test]
fn a_server_that_hangs_is_down_until_it_answers_again() {
    use rustix::process::Signal;
    use throng::durable::RedisStore;

    needs_redis!();
    current_thread().block_on(async {
        let server = crate::redis_server::Server::start();
        let store = RedisStore::open(&server.url()).await.unwrap();
        let client = DurableClient::open(store);
        let registry = Registry::new();
        registry.watch("jobs", &client);
        let well = shown(&registry).await;
        assert_eq!((up(&well), tasks(&well, "waiting")), (Some(1.0), Some(0.0)));

        server.signal(Signal::STOP);
        let hangs = until(&registry, |it| up(it) == Some(0.0)).await;
        assert_eq!(tasks(&hangs, "waiting"), None);
        server.signal(Signal::CONT);
        let is_well = |it: &Exposition| up(it) == Some(1.0) && tasks(it, "waiting") == Some(0.0);
        until(&registry, is_well).await;
    });
}
