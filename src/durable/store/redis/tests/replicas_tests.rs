//! Stores whose tasks count as stored only when replicas have them.

use super::*;

fn builder(server: &Server, replicas: usize) -> RedisStoreBuilder {
    let mut builder = RedisStore::builder(&server.url());
    builder.wait_for_replicas(replicas);
    builder
}

#[tokio::test]
async fn a_task_is_stored_when_a_replica_has_it() {
    needs_redis!();
    let primary = Server::with(&["--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
    let replica = Server::replica_of(&primary);
    let end = Instant::now() + DEADLINE;
    let store = loop {
        match builder(&primary, 1).open().await {
            Ok(store) => break store,
            Err(error) => assert!(error.is_unfit() && Instant::now() < end, "{error}"),
        }
        sleep(Duration::from_millis(5)).await;
    };
    let worker = Worker::new(store).await;
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
