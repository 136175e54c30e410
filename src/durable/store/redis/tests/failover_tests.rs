//! Failovers, by real Sentinels, while tasks are stored and run.

use std::collections::HashSet;

use redis::FromRedisValue;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, block_in_place};

use super::fake_sentinel::FakeSentinel;
use super::sentinel_group::SentinelGroup;
use super::*;
use crate::durable::{DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError};

/// The maximum time from a failover to the end of the next task.
const MAX_RECOVERY: Duration = Duration::from_secs(2);

/// The settings of a server that nobody can make a replica.
const STAYS_PRIMARY: [&str; 6] = [
    "--rename-command",
    "REPLICAOF",
    "",
    "--rename-command",
    "SLAVEOF",
    "",
];

/// A task with a number.
#[derive(Serialize, Deserialize)]
struct Job(u64);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

impl Run<Log> for Job {
    async fn run(self, cx: TaskContext<Log>) -> Result<(), TaskError> {
        let log = cx.app();
        lock(&log.runs).push(Instant::now());
        lock(&log.has_run).insert(self.0);
        Ok(())
    }
}

/// The acknowledged tasks, and the runs.
#[derive(Default)]
struct Log {
    acknowledged: Mutex<HashSet<u64>>,
    has_run: Mutex<HashSet<u64>>,
    /// The times of the runs.
    runs: Mutex<Vec<Instant>>,
}

/// A producer and a worker, in separate clients, that go on by themselves.
struct Load {
    log: Arc<Log>,
    client: DurableClient,
    producer: JoinHandle<()>,
    _executor: DurableExecutor,
}

impl Load {
    async fn start(group: &SentinelGroup) -> Self {
        Self::start_at(&group.addresses(), 0, Arc::default()).await
    }

    /// Starts a load at the server that these Sentinels name. The first task has this number.
    async fn start_at(sentinels: &[String], first: u64, log: Arc<Log>) -> Self {
        let builder = RedisStore::sentinel(sentinels.to_vec(), "main");
        let open = || builder.open();
        let client = DurableClient::open(open().await.unwrap());
        let mut executor = DurableExecutor::builder(client);
        executor.register::<Job>();
        let executor = executor.start(Arc::clone(&log)).await.unwrap();
        let client = DurableClient::open(open().await.unwrap());
        let load = Self {
            producer: tokio::spawn(produce(client.clone(), first, Arc::clone(&log))),
            client,
            _executor: executor,
            log,
        };
        load.next_run(Instant::now()).await;
        load
    }

    /// Returns the time of the first run after a time.
    async fn next_run(&self, after: Instant) -> Instant {
        let found = async {
            loop {
                let next = lock(&self.log.runs).iter().find(|&&it| it > after).copied();
                match next {
                    Some(next) => return next,
                    None => sleep(Duration::from_millis(1)).await,
                }
            }
        };
        timeout(DEADLINE, found).await.expect("another task runs")
    }
}

impl Load {
    /// Stops the producer, and waits until all acknowledged tasks have run.
    async fn drain(&self) {
        self.producer.abort();
        let missing = || {
            let (acknowledged, has_run) = (lock(&self.log.acknowledged), lock(&self.log.has_run));
            acknowledged
                .difference(&has_run)
                .copied()
                .collect::<Vec<_>>()
        };
        let end = Instant::now() + DEADLINE;
        while !missing().is_empty() {
            assert!(Instant::now() < end, "lost: {:?}", missing());
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.producer.abort();
    }
}

/// Stores tasks. An error during a failover does not end it.
async fn produce(client: DurableClient, first: u64, log: Arc<Log>) {
    for number in first.. {
        if client.spawn(Job(number)).await.is_ok() {
            lock(&log.acknowledged).insert(number);
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the Sentinels have replaced the primary. Returns the index of the new one, and the time.
fn failed_over(group: &SentinelGroup, former: usize) -> (usize, Instant) {
    let primary = block_in_place(|| group.wait_for_new_primary(former));
    (primary, Instant::now())
}

/// Waits until tasks run at the new primary.
async fn assert_recovers(load: &Load, group: &SentinelGroup, begin: Instant) -> usize {
    assert_recovers_from(load, group, 0, begin).await
}

async fn assert_recovers_from(
    load: &Load,
    group: &SentinelGroup,
    former: usize,
    begin: Instant,
) -> usize {
    let (primary, failover) = failed_over(group, former);
    let end = failover + DEADLINE;
    while client_of(&group.servers[primary]).is_none() {
        assert!(Instant::now() < end, "nothing connects to the new primary");
        sleep(Duration::from_millis(2)).await;
    }
    let recovery = load.next_run(Instant::now()).await - failover;
    println!("failover {:?}, recovery {recovery:?}", failover - begin);
    assert!(recovery < MAX_RECOVERY, "{recovery:?}");
    primary
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_a_planned_failover() {
    needs_redis!();
    let mut group = block_in_place(SentinelGroup::start);
    group.sentinels[2].kill();
    let load = Load::start(&group).await;
    let begin = Instant::now();
    block_in_place(|| group.fail_over());
    assert_recovers(&load, &group, begin).await;
    // The Sentinels also close the connections to the former primary when it becomes a replica.
    block_in_place(|| group.wait_for_replica(0));
    load.next_run(Instant::now()).await;
    load.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_the_primary_was_killed() {
    needs_redis!();
    let mut group = block_in_place(SentinelGroup::start);
    let load = Load::start(&group).await;
    let begin = Instant::now();
    group.servers[0].kill();
    let primary = assert_recovers(&load, &group, begin).await;
    // It comes back empty, as a primary, until the Sentinels make it a replica.
    group.servers[0].run();
    load.next_run(Instant::now()).await;
    block_in_place(|| group.wait_for_replica(0));
    load.next_run(Instant::now()).await;
    let role = group.servers[primary].ask(&["ROLE"]);
    assert!(format!("{role:?}").contains("master"), "{role:?}");
    load.drain().await;
}

/// The Sentinels can neither make the former primary a replica nor close its connections, as if they could not reach it. It accepts all
/// writes, but will lose them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_leaves_a_former_primary_that_still_answers() {
    needs_redis!();
    let group = block_in_place(|| SentinelGroup::with(&STAYS_PRIMARY));
    let load = Load::start(&group).await;
    let begin = Instant::now();
    block_in_place(|| group.fail_over());
    assert_recovers(&load, &group, begin).await;
    let role = group.servers[0].ask(&["ROLE"]);
    assert!(format!("{role:?}").contains("master"), "{role:?}");
    let end = Instant::now() + DEADLINE;
    while let Some(client) = client_of(&group.servers[0]) {
        assert!(Instant::now() < end, "{client}");
        sleep(Duration::from_millis(5)).await;
    }
    load.next_run(Instant::now()).await;
    load.drain().await;
}

/// The number of failovers in a row.
fn failovers() -> usize {
    match std::env::var("THRONG_LONG") {
        Ok(value) if value == "1" => 20,
        _ => 3,
    }
}

/// One primary after another is killed, and comes back as an empty replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_task_is_lost_by_many_failovers() {
    needs_redis!();
    let mut group = block_in_place(SentinelGroup::start);
    let load = Load::start(&group).await;
    let mut primary = 0;
    for _ in 0..failovers() {
        let (begin, former) = (Instant::now(), primary);
        group.servers[former].kill();
        assert_recovers_from(&load, &group, former, begin).await;
        primary = block_in_place(|| group.rejoin(former));
        load.next_run(Instant::now()).await;
    }
    load.drain().await;
    assert_eq!(load.client.losses().lost, 0, "{:?}", load.client.losses());
}

/// For five seconds, a part of the network has the former primary and a Sentinel that still names it. A producer and a worker there go on,
/// and so do others at the new primary. When the network is whole again, the tasks that only the former primary has are stored again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_task_is_lost_by_a_split_network() {
    needs_redis!();
    const SPLIT: Duration = Duration::from_secs(5);
    const FIRST_OF_SPLIT: u64 = 1_000_000;
    let group = block_in_place(|| SentinelGroup::with(&STAYS_PRIMARY));
    let cut_off = FakeSentinel::naming(&group.servers[0], 1).await;
    let log = Arc::<Log>::default();
    let load = Load::start_at(&group.addresses(), 0, Arc::clone(&log)).await;
    let split = Load::start_at(&[cut_off.address()], FIRST_OF_SPLIT, Arc::clone(&log)).await;
    let begin = Instant::now();
    block_in_place(|| group.fail_over());
    let primary = assert_recovers(&load, &group, begin).await;
    let acknowledged = || lock(&log.acknowledged).clone();
    let before = acknowledged();
    sleep(SPLIT).await;
    let is_of_split = |number: &u64| *number >= FIRST_OF_SPLIT;
    let mut stored = &acknowledged() - &before;
    stored.retain(is_of_split);
    assert!(!stored.is_empty(), "the former primary stores tasks");
    // Those that have run there run again.
    lock(&log.has_run).clear();
    cut_off.name(&group.servers[primary], 2);
    cut_off.cut();
    let end = Instant::now() + DEADLINE;
    // The first tasks run while others are still stored again. The report follows when all are.
    let is_healed = || split.client.losses().healed >= stored.len() as u64;
    while !(stored.is_subset(&lock(&log.has_run)) && is_healed()) {
        assert!(Instant::now() < end, "{:?}", split.client.losses());
        sleep(Duration::from_millis(5)).await;
    }
    let losses = split.client.losses();
    assert_eq!(losses.lost, 0, "{losses:?}");
}

/// Returns a client of a server other than its replicas, the Sentinels and this one.
fn client_of(server: &Server) -> Option<String> {
    let clients = server.ask(&["CLIENT", "LIST"]);
    let clients = String::from_redis_value(clients).expect("a list");
    let is_other = |it: &&str| {
        !["name=sentinel", "flags=S", "cmd=client|list"]
            .iter()
            .any(|part| it.contains(part))
    };
    clients.lines().find(is_other).map(str::to_owned)
}
