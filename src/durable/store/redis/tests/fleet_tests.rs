//! Executors and clients on a cluster, while slots move and nodes are lost. `scripts/test-fleet` runs these tests; with `THRONG_LONG=1`,
//! for longer.

use std::collections::HashMap;

use redis::Value;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, PRIMARIES, text};
use super::invariants::INVARIANTS;
use super::*;
use crate::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, Run, TaskContext, TaskError,
};

#[cfg(feature = "redis-tls")]
mod encrypted_nodes_tests;
mod lost_nodes_tests;
mod lost_writes_tests;
mod moved_slots_tests;
mod outcomes_tests;
mod replicas_tests;

/// The number of partitions: each node has some.
const PARTITIONS: usize = 8;

/// The maximum time for anything that must happen although a node is lost or a slot moves.
const PATIENT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Job(u64);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = u64;
}

/// The numbers of runs of each job.
#[derive(Default)]
struct Runs(Mutex<HashMap<u64, u64>>);

impl Run<Runs> for Job {
    async fn run(self, cx: TaskContext<Runs>) -> Result<u64, TaskError> {
        *lock(&cx.app().0).entry(self.0).or_default() += 1;
        Ok(self.0 + 1)
    }
}

/// A worker, and clients that spawn tasks and await them.
struct Fleet {
    client: DurableClient,
    executor: DurableExecutor,
    runs: Arc<Runs>,
    producers: JoinSet<u64>,
    stop: CancellationToken,
}

impl Fleet {
    async fn start(cluster: &Cluster, lease: Duration) -> Self {
        let client = client_of(cluster).await;
        let runs = Arc::<Runs>::default();
        let mut builder = DurableExecutor::builder::<Runs>(client_of(cluster).await);
        builder.register::<Job>().max_running(64).lease(lease);
        let executor = builder.start(Arc::clone(&runs)).await.unwrap();
        Self {
            client,
            executor,
            runs,
            producers: JoinSet::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts producers, each of which spawns a task, awaits it, and spawns the next. A task that is not acknowledged need not run.
    fn produce(&mut self, producers: u64) {
        for producer in 0..producers {
            let (client, stop) = (self.client.clone(), self.stop.clone());
            self.producers.spawn(async move {
                let mut acknowledged = 0;
                for number in (producer * 1_000_000).. {
                    if stop.is_cancelled() {
                        break;
                    }
                    let Ok(handle) = client.spawn(Job(number)).await else {
                        continue;
                    };
                    acknowledged += 1;
                    let output = timeout(2 * PATIENT, handle).await.expect("a task ends");
                    assert_eq!(output.expect("the store answers"), number + 1);
                }
                acknowledged
            });
        }
    }

    /// Stops the producers. Returns the number of acknowledged tasks, all of which have run and were awaited.
    async fn stop(self) -> u64 {
        self.stop.cancel();
        let acknowledged: u64 = self.producers.join_all().await.into_iter().sum();
        let runs = lock(&self.runs.0).len() as u64;
        assert!(runs >= acknowledged, "{runs} of {acknowledged} have run");
        self.executor.shutdown(Duration::from_secs(5)).await;
        acknowledged
    }

    fn runs(&self) -> u64 {
        lock(&self.runs.0).values().sum()
    }

    /// Waits until this many more runs have begun.
    async fn until_runs(&self, more: u64) {
        let before = self.runs();
        eventually("tasks run", || self.runs() >= before + more).await;
    }
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENT;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn client_of(cluster: &Cluster) -> DurableClient {
    DurableClient::open(store_of(cluster).await)
}

async fn store_of(cluster: &Cluster) -> RedisStore {
    let urls: Vec<_> = (0..PRIMARIES).map(|node| cluster.url(node)).collect();
    let urls = urls.iter().map(|url| &**url);
    let mut builder = RedisStore::cluster(urls);
    let end = Instant::now() + PATIENT;
    loop {
        match builder.partitions(PARTITIONS).open().await {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

fn base(partition: usize) -> String {
    format!("throng:{{default:{partition}}}:")
}

/// Returns the partitions that a node has.
fn partitions_of(cluster: &Cluster, node: usize) -> Vec<usize> {
    let partitions = 0..PARTITIONS;
    partitions
        .filter(|&it| cluster.owner(&base(it)) == node)
        .collect()
}

/// Checks that no script has stopped half-way in any partition.
fn check_invariants(cluster: &Cluster) {
    for partition in 0..PARTITIONS {
        let base = base(partition);
        let node = cluster.node(cluster.owner(&base));
        let found = node.ask(&["EVAL", INVARIANTS, "0", &base]);
        assert_eq!(found, Value::Array(Vec::new()), "{partition}");
    }
}

/// Returns an id of a task of a partition.
fn id_in(store: &RedisStore, partition: usize) -> TaskId {
    let mut ids = std::iter::repeat_with(TaskId::new);
    let is_there = |id: &TaskId| store.inner.partitions.of_task(*id) == partition;
    ids.find(is_there).expect("there are many ids")
}

async fn ended(handle: DurableHandle<u64>) -> u64 {
    let output = timeout(PATIENT, handle).await.expect("the task ends");
    output.expect("the store answers")
}
