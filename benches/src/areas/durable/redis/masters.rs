//! A store that is spread over the nodes of a cluster: one process stores tasks and runs them at the same time.

use std::thread;
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableExecutor, RedisStore};
use tokio::runtime::Runtime;

use super::STORED;
use super::ours::{CONCURRENCY, count, fill};
use super::server::{Server, with_servers};
use crate::areas::durable::tasks::Nothing;
use crate::areas::{Peer, Unit, Workload, two_workers};
use crate::measure::{Rules, Sample, Section};

/// Four for each of three nodes.
const PARTITIONS: usize = 12;

const SLOTS: usize = 16_384;

const CLUSTER: [&str; 4] = [
    "--cluster-enabled",
    "yes",
    "--cluster-require-full-coverage",
    "no",
];

pub(super) fn workload() -> Workload {
    let on = |name, masters| Peer::new(name, move |rules: &Rules| on_masters(rules, masters));
    Workload::new(
        "redis/masters",
        Unit::NS_PER_TASK,
        vec![
            on("throng", 3),
            on("1 master", 1),
            Peer::new("3 stores", |rules: &Rules| {
                with_servers(rules, 3, &[], |servers| stores(rules, servers, servers))
            }),
            Peer::new("no cluster", |rules: &Rules| {
                with_servers(rules, 1, &[], |servers| together(rules, servers))
            }),
        ],
    )
}

fn on_masters(rules: &Rules, masters: usize) -> Sample {
    with_servers(rules, masters, &CLUSTER, |servers| {
        join(servers);
        together(rules, servers)
    })
}

/// Divides the slots, and waits until all nodes know it.
fn join(servers: &[Server]) {
    for (nth, server) in servers.iter().enumerate() {
        let [first, next] = [nth, nth + 1].map(|it| it * SLOTS / servers.len());
        for command in [
            format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1),
            format!("CLUSTER SET-CONFIG-EPOCH {}", nth + 1),
        ] {
            assert_eq!(server.ask(&command).expect("it answers"), "+OK");
        }
    }
    for other in &servers[1..] {
        let meet = format!("CLUSTER MEET 127.0.0.1 {}", other.port());
        assert_eq!(servers[0].ask(&meet).expect("it answers"), "+OK");
    }
    let begin = Instant::now();
    while !servers.iter().all(|it| it.knows_slots(SLOTS as u64)) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "no cluster forms"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// A client that stores tasks, and the executor that runs them.
struct StoreClient {
    client: DurableClient,
    executor: DurableExecutor,
}

impl StoreClient {
    fn start(runtime: &Runtime, server: &Server, partitions: usize) -> Self {
        let url = server.url();
        let store = runtime.block_on(RedisStore::builder(&url).partitions(partitions).open());
        let client = DurableClient::open(store.expect("a store can be opened"));
        let mut builder = DurableExecutor::builder(client.clone());
        builder.max_running(CONCURRENCY);
        let executor = runtime.block_on(builder.register::<Nothing>().start(()));
        let executor = executor.expect("an executor can be started");
        Self { client, executor }
    }
}

/// One store on all servers.
fn together(rules: &Rules, servers: &[Server]) -> Sample {
    stores(rules, servers, &servers[..1])
}

/// A store on each of these servers, which are some of all servers.
fn stores(rules: &Rules, servers: &[Server], of: &[Server]) -> Sample {
    let runtime = two_workers().enable_io().build();
    let runtime = runtime.expect("a runtime can be built");
    let start = |server| StoreClient::start(&runtime, server, PARTITIONS / of.len());
    let clients: Vec<_> = of.iter().map(start).collect();
    let each = rules.scaled(STORED) / of.len() as u64;
    let tasks = each * of.len() as u64;
    let spent = || servers.iter().map(Server::cpu_ns).sum::<u64>();
    let scripts = || servers.iter().map(Server::scripts).sum::<u64>();
    let (section, before) = (Section::begin(), (spent(), scripts()));
    thread::scope(|scope| {
        for it in &clients {
            scope.spawn(|| fill(&runtime, &it.client, each, 0));
        }
    });
    while clients
        .iter()
        .any(|it| it.executor.metrics().completed < each)
    {
        thread::sleep(Duration::from_micros(500));
    }
    let sample = section.end().per_task(tasks);
    for it in &clients {
        let counts = count(&runtime, &it.client);
        assert_eq!((counts.done, counts.claimed), (each, each), "{counts:?}");
    }
    let per_task = |now: u64, before| (now - before) as f64 / tasks as f64;
    sample
        .with_fact("redis cpu ns/task", per_task(spent(), before.0))
        .with_fact("scripts/task", per_task(scripts(), before.1))
}
