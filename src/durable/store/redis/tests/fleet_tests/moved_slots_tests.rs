//! Slots that move from node to node.

use super::*;
use crate::durable::Counts;

/// The number of times that slots move, and of tasks that are awaited at the same time.
fn load() -> (usize, u64) {
    match std::env::var("THRONG_LONG") {
        Ok(value) if value == "1" => (500, 2_000),
        _ => (24, 24),
    }
}

/// Slots move back and forth under load. No script stops half-way, and each task runs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load() {
    needs_redis!();
    let cluster = Arc::new(Cluster::start());
    let mut fleet = Fleet::start(&cluster, Duration::from_secs(10)).await;
    let (moves, producers) = load();
    fleet.produce(producers);
    let begin = Instant::now();
    for nth in 0..moves {
        let slot = cluster.slot(&base(nth % PARTITIONS));
        let moving = Arc::clone(&cluster);
        let moved = tokio::task::spawn_blocking(move || {
            let from = moving.owner(&base(nth % PARTITIONS));
            moving.move_slot(slot, from, (from + 1) % PRIMARIES);
        });
        moved.await.unwrap();
        fleet.until_runs(20).await;
    }
    println!("{} tasks ran in {:?}", fleet.runs(), begin.elapsed());
    let client = fleet.client.clone();
    let runs = Arc::clone(&fleet.runs);
    let acknowledged = fleet.stop().await;
    let counts: Counts = client.counts().await.unwrap();
    assert_eq!((counts.done, counts.stored), (acknowledged, acknowledged));
    assert_eq!(
        (counts.waiting, counts.running, counts.lost),
        (0, 0, 0),
        "{counts:?}"
    );
    assert!(
        lock(&runs.0).values().all(|&runs| runs == 1),
        "a task runs twice"
    );
    check_invariants(&cluster);
}

/// A slot moves slowly: some of its keys are at each node. The other partitions go on, and the turns do not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_partitions_go_on_while_a_slot_moves() {
    needs_redis!();
    let cluster = Cluster::start();
    let worker = Worker::new(store_of(&cluster).await).await;
    let other = Worker::new(store_of(&cluster).await).await;
    let claim = claimed_in_all(&worker, &other).await;
    let (slot, from) = (cluster.slot(&base(3)), cluster.owner(&base(3)));
    let to = (from + 1) % PRIMARIES;
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to, 3);
    let began = Instant::now();
    let turned = worker.turn(claim.iter().flat_map(done).collect(), 0).await;
    assert_eq!(turned.unreached.len(), 1, "{turned:?}");
    assert_eq!(
        worker.store.inner.partitions.of_claim(turned.unreached[0]),
        3
    );
    let renewed = worker
        .store
        .renew(claim.iter().map(|it| it.epoch).collect())
        .await;
    assert_eq!(renewed.unwrap().unreached, turned.unreached);
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    while cluster.move_keys(slot, from, to, 10) {}
    cluster.end_move(slot, to);
    let rest = claim
        .iter()
        .filter(|it| turned.unreached.contains(&it.epoch));
    let last = worker.turn(rest.flat_map(done).collect(), 0).await;
    assert_eq!(
        (last.unreached.len(), last.refused.len()),
        (0, 0),
        "{last:?}"
    );
    assert_eq!(worker.store.counts().await.unwrap().done, PARTITIONS as u64);
    check_invariants(&cluster);
}

/// Stores a task in each partition, and claims it.
pub(super) async fn claimed_in_all(worker: &Worker, other: &Worker) -> Vec<Claim> {
    let ids = (0..PARTITIONS).map(|partition| id_in(&worker.store, partition));
    let tasks = ids.map(|id| NewTask { id, ..task(1) });
    other.enqueue(tasks).await;
    let mut claims = Vec::new();
    while let Some(claim) = worker.turn(Vec::new(), 1).await.claim {
        claims.push(claim);
    }
    assert_eq!(claims.len(), PARTITIONS);
    claims
}

/// All slots move at once. Each request is redirected, but the owners of the slots are read at most once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_do_not_cause_as_many_requests_for_the_slots() {
    needs_redis!();
    let cluster = Cluster::start();
    let mut fleet = Fleet::start(&cluster, Duration::from_secs(10)).await;
    fleet.produce(16);
    fleet.until_runs(50).await;
    let asked = || -> u64 {
        (0..PRIMARIES)
            .map(|node| slot_requests(cluster.node(node)))
            .sum()
    };
    // The test itself asks for the owner of each slot.
    let owners: Vec<_> = (0..PARTITIONS).map(|it| cluster.owner(&base(it))).collect();
    let (before, began) = (asked(), Instant::now());
    for round in 0..3 {
        for (partition, owner) in owners.iter().enumerate() {
            let (from, to) = ((owner + round) % PRIMARIES, (owner + round + 1) % PRIMARIES);
            cluster.move_slot(cluster.slot(&base(partition)), from, to);
        }
        fleet.until_runs(20).await;
    }
    let clients = 2;
    let most = clients * (began.elapsed().as_secs() + 2);
    assert!(
        asked() - before <= most,
        "{} in {:?}",
        asked() - before,
        began.elapsed()
    );
    fleet.stop().await;
}

/// Returns the number of times that a node was asked for the owners of the slots.
fn slot_requests(node: &Server) -> u64 {
    let stats = text(node.ask(&["INFO", "commandstats"]));
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_cluster|slots:"));
    let calls = line
        .and_then(|line| line.split_once("calls="))
        .map(|it| it.1);
    let calls = calls.and_then(|calls| calls.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// A process whose slot is taken away receives messages from the new node.
#[tokio::test]
async fn messages_follow_a_slot() {
    needs_redis!();
    let cluster = Cluster::start();
    let open = async || Worker::new(store_of(&cluster).await).await;
    let (worker, other) = (open().await, open().await);
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    for partition in [0, 5, 0] {
        let from = cluster.owner(&base(partition));
        cluster.move_slot(cluster.slot(&base(partition)), from, (from + 1) % PRIMARIES);
        // The worker subscribes at the new node although it sends no request.
        let is_there = || {
            worker.store.inner.nodes.is_subscribed(partition)
                && receivers(&cluster, (from + 1) % PRIMARIES, partition) == 2
        };
        eventually("both processes have subscribed", is_there).await;
        while events.try_recv().is_ok() {}
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
        other
            .enqueue([NewTask {
                id: id_in(&other.store, partition),
                ..task(1)
            }])
            .await;
        until(&mut events, &Event::Wake(None)).await;
        let claim = worker.claim(1).await;
        worker.turn(done(&claim), 0).await;
    }
}

/// Returns the number of processes that receive the messages of a partition from a node.
fn receivers(cluster: &Cluster, node: usize, partition: usize) -> usize {
    let channels =
        cluster
            .node(node)
            .ask(&["PUBSUB", "SHARDCHANNELS", &format!("{}*", base(partition))]);
    match channels {
        Value::Array(channels) => channels.len(),
        other => panic!("{other:?}"),
    }
}
