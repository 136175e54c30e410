//! Stores whose tasks count as stored only when replicas have them.

use rustix::process::Signal;

use super::cluster::text;
use super::*;

fn builder(server: &Server, replicas: usize) -> RedisStoreBuilder {
    let mut builder = RedisStore::builder(&server.url());
    builder.wait_for_replicas(replicas);
    builder
}

/// Opens a store as soon as its server knows its replicas.
async fn open(builder: &RedisStoreBuilder) -> RedisStore {
    let end = Instant::now() + DEADLINE;
    loop {
        match builder.open().await {
            Ok(store) => return store,
            Err(error) => assert!(error.is_unfit() && Instant::now() < end, "{error}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_task_is_stored_when_a_replica_has_it() {
    needs_redis!();
    let primary = Server::with(&["--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
    let replica = Server::replica_of(&primary);
    let worker = Worker::new(open(&builder(&primary, 1)).await).await;
    worker.enqueue([task(1)]).await;
    let stored = replica.ask(&["HLEN", "throng:{default:0}:alive"]);
    assert_eq!(stored, redis::Value::Int(1));

    // The task is stored, but no replica has it.
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let request = worker.new_enqueue([task(2)]);
    let answer = worker.store.enqueue(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::Unavailable, Effect::Unknown);
    let stored = primary.ask(&["HLEN", "throng:{default:0}:alive"]);
    assert_eq!(stored, redis::Value::Int(2));

    // The replica comes back, and the request is sent again.
    let port = primary.port().to_string();
    replica.ask(&["REPLICAOF", "127.0.0.1", &port]);
    settled(|| worker.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    let stored = replica.ask(&["HLEN", "throng:{default:0}:alive"]);
    assert_eq!(stored, redis::Value::Int(2));
}

/// The number of partitions of a store with several.
const PARTITIONS: usize = 8;

/// Returns a task for each partition. For another `nth`, the tasks are others.
fn batch(worker: &Worker, nth: usize) -> Vec<NewTask> {
    let partitions = worker.store.inner.partitions;
    let numbers = |partition| (1..).filter(move |&it| partitions.of_task(id(it)) == partition);
    let tasks = (0..PARTITIONS).map(|it| task(numbers(it).nth(nth).expect("there are many")));
    tasks.collect()
}

/// Returns a server, its replica, and a worker of a store there with several partitions, which has stored a batch.
async fn partitioned() -> (Server, Server, Worker) {
    let primary = Server::with(&["--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
    let replica = Server::replica_of(&primary);
    let mut builder = builder(&primary, 1);
    builder.partitions(PARTITIONS);
    let worker = Worker::new(open(&builder).await).await;
    // The first batch also records the type of the tasks.
    worker.enqueue(batch(&worker, 0)).await;
    (primary, replica, worker)
}

/// The partitions of a batch share their waits: while the server waits for a replica, it runs no other script of the connection.
#[tokio::test]
async fn a_batch_over_all_partitions_waits_at_most_twice() {
    needs_redis!();
    let (primary, _replica, worker) = partitioned().await;
    primary.ask(&["CONFIG", "RESETSTAT"]);
    worker.enqueue(batch(&worker, 1)).await;
    let stats = format!("{:?}", primary.ask(&["INFO", "commandstats"]));
    let (_, waits) = stats
        .split_once("cmdstat_wait:calls=")
        .expect("it has waited");
    let (waits, _) = waits.split_once(',').expect("a number");
    assert!(["1", "2"].contains(&waits), "{waits} waits");
}

/// If the server does not answer any more, the partitions of a batch do not wait for it one after another.
#[tokio::test]
async fn a_server_that_hangs_while_a_batch_waits_is_given_up_once() {
    needs_redis!();
    let (primary, replica, worker) = partitioned().await;
    replica.signal(Signal::STOP);
    let request = worker.new_enqueue(batch(&worker, 1));
    let store = Arc::clone(&worker.store);
    let waits = tokio::spawn(async move { store.enqueue(request).await });
    let is_blocked = || text(primary.ask(&["CLIENT", "LIST"])).contains("flags=b");
    let end = Instant::now() + DEADLINE;
    while !is_blocked() {
        assert!(Instant::now() < end, "no request waits");
        sleep(Duration::from_millis(5)).await;
    }
    primary.signal(Signal::STOP);
    let begin = Instant::now();
    assert_fails(waits.await.unwrap(), &Cause::Unavailable, Effect::Unknown);
    // The answer timeout is 5 s.
    let elapsed = begin.elapsed();
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
}

#[tokio::test]
async fn a_server_with_too_few_replicas_is_refused() {
    needs_redis!();
    let server = Server::start();
    let error = builder(&server, 2).open().await.unwrap_err();
    let text = error.to_string();
    assert!(
        error.is_unfit() && text.contains("it has 0 replicas"),
        "{text}"
    );
}
