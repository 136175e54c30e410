//! Nodes that are lost, with and without a replica that takes over.

use std::thread::JoinHandle;

use rustix::process::Signal;

use super::moved_slots_tests::claimed_in_all;
use super::*;
use crate::durable::Health;

/// The replica of a killed node takes over. Writes that were not replicated may be lost, so tasks are stored and replicated before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over() {
    needs_redis!();
    let mut cluster = Cluster::with_replicas();
    let fleet = Fleet::start(&cluster, Duration::from_secs(3)).await;
    let mut handles = Vec::new();
    for number in 0..100 {
        handles.push(fleet.client.spawn(Job(number)).await.unwrap());
    }
    for handle in handles {
        ended(handle).await;
    }
    let partitions = partitions_of(&cluster, 0);
    assert!(!partitions.is_empty());
    let slot = cluster.slot(&base(partitions[0]));
    cluster.node_mut(0).kill();
    eventually("a replica has taken over", || {
        cluster.owner_except(slot, Some(0)) == PRIMARIES
    })
    .await;
    // From now on, tasks of each partition are stored and run.
    for partition in 0..PARTITIONS {
        let options = crate::durable::SpawnOptions::new().id(id_in_partition(partition));
        let spawn = || {
            fleet
                .client
                .spawn_with(Job(1_000 + partition as u64), options.clone())
        };
        let end = Instant::now() + PATIENT;
        let handle = loop {
            match spawn().await {
                Ok(handle) => break handle,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        assert_eq!(ended(handle).await, 1_001 + partition as u64);
    }
    fleet.stop().await;
}

/// Returns an id of a task of a partition of a store with [`PARTITIONS`].
pub(super) fn id_in_partition(partition: usize) -> TaskId {
    let partitions = crate::durable::store::redis::partitions::Partitions::new(PARTITIONS);
    let mut ids = std::iter::repeat_with(TaskId::new);
    let id = ids.find(|&id| partitions.of_task(id) == partition);
    id.expect("there are many ids")
}

/// Claims a task. Turns do not visit a partition in which the worker is idle until the message of that partition has arrived.
async fn claim_when_woken(worker: &Worker) -> Claim {
    let began = Instant::now();
    loop {
        if let Some(claim) = worker.turn(Vec::new(), 1).await.claim {
            return claim;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "no message");
    }
}

/// A node is lost with all of its partitions. The others go on, and the turns of a worker do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_partitions_go_on_without_a_node() {
    needs_redis!();
    let mut cluster = Cluster::start();
    let worker = Worker::new(store_of(&cluster).await).await;
    let other = Worker::new(store_of(&cluster).await).await;
    let claims = claimed_in_all(&worker, &other).await;
    let lost = partitions_of(&cluster, 1);
    assert!(!lost.is_empty() && lost.len() < PARTITIONS);
    cluster.node_mut(1).kill();
    let partitions = worker.store.inner.partitions;
    let of_lost = |epoch: &Epoch| lost.contains(&partitions.of_claim(*epoch));
    eventually("the worker has noticed", || {
        matches!(worker.store.health(), Health::Unreachable(_))
    })
    .await;
    let health = worker.store.health();
    let port = cluster.node(1).port().to_string();
    assert!(
        matches!(&health, Health::Unreachable(text) if text.contains(&port)),
        "{health:?}"
    );

    let began = Instant::now();
    let epochs: Vec<_> = claims.iter().map(|it| it.epoch).collect();
    let mut unreached: Vec<_> = epochs.iter().copied().filter(of_lost).collect();
    unreached.sort_unstable();
    let mut renewed = worker.store.renew(epochs).await.unwrap();
    renewed.unreached.sort_unstable();
    assert_eq!(
        (renewed.unreached, renewed.lost.len()),
        (unreached.clone(), 0)
    );
    let mut turned = worker.turn(claims.iter().flat_map(done).collect(), 1).await;
    turned.unreached.sort_unstable();
    assert_eq!((turned.unreached, turned.refused.len()), (unreached, 0));
    // The worker looks again soon, since nobody wakes it from a partition in which it is not idle.
    assert!(
        turned
            .next
            .is_some_and(|next| next <= Duration::from_secs(1))
    );
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );

    // Tasks of the others are stored, run and awaited.
    let alive = (0..PARTITIONS).filter(|it| !lost.contains(it));
    let ids: Vec<_> = alive
        .map(|partition| id_in(&worker.store, partition))
        .collect();
    other
        .enqueue(ids.iter().map(|&id| NewTask { id, ..task(1) }))
        .await;
    for _ in &ids {
        let claim = claim_when_woken(&worker).await;
        worker.turn(done(&claim), 0).await;
    }
    let mut asked = ids.clone();
    asked.push(id_in(&worker.store, lost[0]));
    let states = worker.store.status(asked).await.unwrap();
    let (last, others) = states.split_last().unwrap();
    assert!(
        others
            .iter()
            .all(|it| *it == TaskState::Done(b"output".to_vec()))
    );
    assert_eq!(*last, TaskState::Running, "its handle waits on");
}

/// Executors and producers go on without a node, and the tasks of its partitions when it continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_delays_only_its_own_tasks() {
    needs_redis!();
    let cluster = Cluster::start();
    let mut fleet = Fleet::start(&cluster, Duration::from_secs(3)).await;
    fleet.produce(8);
    fleet.until_runs(50).await;
    cluster.node(2).signal(Signal::STOP);
    // The tasks that are in flight at that node wait. A producer whose task went elsewhere continues.
    let alive =
        (0..PARTITIONS).find(|&it| cluster.owner_except(cluster.slot(&base(it)), Some(2)) != 2);
    let alive = alive.expect("another node has partitions");
    let mut handles = Vec::new();
    for number in 0..5 {
        let id = id_in_partition(alive);
        let options = crate::durable::SpawnOptions::new().id(id);
        if let Ok(handle) = fleet
            .client
            .spawn_with(Job(900_000 + number), options)
            .await
        {
            handles.push(handle);
        }
    }
    assert!(!handles.is_empty());
    for handle in handles {
        ended(handle).await;
    }
    cluster.node(2).signal(Signal::CONT);
    fleet.until_runs(50).await;
    fleet.stop().await;
    check_invariants(&cluster);
}

/// Nothing tries for ever to receive the messages of a node that has no partition any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_partitions_is_left() {
    needs_redis!();
    let mut cluster = Cluster::with_replicas();
    let store = store_of(&cluster).await;
    let inner = &store.inner;
    let partition = partitions_of(&cluster, 0)[0];
    cluster.node_mut(0).kill();
    let port = cluster.node(PRIMARIES).port();
    eventually("the store uses the replica", || {
        let owner = inner.nodes.owner(partition);
        owner.address.as_ref().is_some_and(|it| it.port == port)
            && inner.nodes.is_subscribed(partition)
    })
    .await;
    // The store, and what its subscribers are made from, have the sessions, too.
    eventually("no other node has a subscriber", || {
        Arc::strong_count(&inner.sessions) == 2 + inner.nodes.owners().len()
    })
    .await;
}

/// The only partitions that a turn has to visit are those of the lost node, since the session is idle in the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_goes_on_without_a_node() {
    needs_redis!();
    let mut cluster = Cluster::start();
    let worker = Worker::new(store_of(&cluster).await).await;
    let lost = partitions_of(&cluster, 1);
    cluster.node_mut(1).kill();
    let nodes = &worker.store.inner.nodes;
    eventually("the worker has noticed", || {
        nodes.owner(lost[0]).link.is_down() && !nodes.is_subscribed(lost[0])
    })
    .await;
    for _ in 0..2 {
        let turned = worker
            .store
            .turn(worker.new_turn(Vec::new(), 1))
            .await
            .unwrap();
        assert_eq!((turned.claim, turned.more), (None, false));
        assert!(
            turned
                .next
                .is_some_and(|next| next <= Duration::from_secs(1))
        );
    }
}

/// The node refuses writes, for each of its many partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_waits_for_one_partition_of_a_node_that_is_not_ready() {
    needs_redis!();
    let cluster = Cluster::start();
    let mut builder = RedisStore::builder(&cluster.url(1));
    let worker = Worker::new(builder.partitions(64).open().await.unwrap()).await;
    assert_eq!(worker.turn(Vec::new(), 0).await.claim, None);
    let refuses = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    cluster.node(0).ask(&refuses);
    let began = Instant::now();
    let turned = worker.store.turn(worker.new_turn(Vec::new(), 1)).await;
    assert_eq!(turned.unwrap().claim, None);
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_millis(1_500), "{elapsed:?}");
}

/// Has a node run a script until that is killed.
pub(super) async fn keep_busy(node: &Server) -> JoinHandle<redis::RedisResult<()>> {
    node.ask(&["CONFIG", "SET", "lua-time-limit", "1"]);
    let endless = std::thread::spawn({
        let client = redis::Client::open(node.url()).unwrap();
        move || {
            let mut script = redis::cmd("EVAL");
            let script = script.arg("while true do end").arg(0);
            script.exec(&mut client.get_connection().unwrap())
        }
    });
    eventually("the node is busy", || node.try_ask(&["PING"]).is_none()).await;
    endless
}

/// A node that runs a long script of others is not ready. It has woken a worker, which claims a task of another node, and may then have no
/// permit left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_partitions_go_on_while_a_node_is_busy() {
    needs_redis!();
    let cluster = Cluster::start();
    let worker = Worker::new(store_of(&cluster).await).await;
    let other = Worker::new(store_of(&cluster).await).await;
    let [busy, ready] = [0, 1].map(|node| partitions_of(&cluster, node)[0]);
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    assert_eq!(worker.turn(Vec::new(), 2).await.claim, None);
    for partition in [busy, ready] {
        let id = id_in(&worker.store, partition);
        other.enqueue([NewTask { id, ..task(1) }]).await;
    }
    let idle = || worker.store.inner.sessions.get(worker.session).idle;
    eventually("both partitions have woken the worker", || {
        idle().is_woken(busy) && idle().is_woken(ready)
    })
    .await;
    let node = cluster.node(0);
    let endless = keep_busy(node).await;
    let turn = async || worker.store.turn(worker.new_turn(Vec::new(), 2)).await;
    let turns = [turn().await, turn().await];
    node.ask(&["SCRIPT", "KILL"]);
    endless.join().unwrap().unwrap_err();
    let [first, second] = turns.map(Result::unwrap);
    let claims: Vec<_> = first.claim.into_iter().chain(second.claim).collect();
    let partitions = worker.store.inner.partitions;
    let claimed = claims.iter().map(|it| partitions.of_claim(it.epoch));
    assert_eq!(claimed.collect::<Vec<_>>(), [ready]);
    assert!(second.passes_on && idle().is_woken(busy));
}

/// A slot has no owner any more when the connection to its node breaks. The other slots of the node are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_an_owner_delays_no_other() {
    needs_redis!();
    let cluster = Cluster::start();
    let worker = Worker::new(store_of(&cluster).await).await;
    let partitions = partitions_of(&cluster, 0);
    let [gone, other] = [partitions[0], partitions[1]];
    let slot = cluster.slot(&base(gone)).to_string();
    cluster.node(0).ask(&["CLUSTER", "DELSLOTS", &slot]);
    cluster.node(0).ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    let id = id_in(&worker.store, other);
    worker.enqueue([NewTask { id, ..task(1) }]).await;
    assert_eq!(worker.claim(1).await.tasks[0].id, id);
}

/// The first node that the store would ask for the owners no longer knows the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_left_the_cluster_is_not_believed() {
    needs_redis!();
    let cluster = Cluster::start();
    let store = store_of(&cluster).await;
    let slot = cluster.slot(&base(0)).to_string();
    let gone = cluster.owner(&base(0));
    let [next, other] = [1, 2].map(|nth| cluster.node((gone + nth) % PRIMARIES));
    cluster.node(gone).ask(&["FLUSHALL"]);
    cluster.node(gone).ask(&["CLUSTER", "RESET"]);
    let id = text(next.ask(&["CLUSTER", "MYID"]));
    for node in [next, other] {
        node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    }
    eventually("the store knows the new owner", || {
        let owner = store.inner.nodes.owner(0);
        let port = owner.address.as_ref().map(|it| it.port);
        port == Some(next.port())
    })
    .await;
}
