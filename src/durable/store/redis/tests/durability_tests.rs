//! Losses when the server is killed.

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::*;
use crate::durable::{DurableClient, DurableError, DurableTask, Status};

#[derive(Serialize, Deserialize)]
struct Job(u64);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = u64;
}

/// Starts a server with a slow disk and this `appendfsync`.
fn slow_server(when: &str, time: Duration) -> Server {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", when]);
    server.kill();
    server.slow_down_disk(time);
    server.run();
    server
}

async fn client_of(server: &Server) -> DurableClient {
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let end = Instant::now() + DEADLINE;
    loop {
        match RedisStore::open(&url).await {
            Ok(store) => return DurableClient::open(store),
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

/// Producers that spawn until they fail, and the acknowledged tasks.
struct Producers {
    running: JoinSet<()>,
    stored: Arc<Mutex<Vec<TaskId>>>,
}

impl Producers {
    fn start(client: &DurableClient) -> Self {
        let stored = Arc::new(Mutex::new(Vec::new()));
        let mut running = JoinSet::new();
        for producer in 0..16 {
            let (client, stored) = (client.clone(), Arc::clone(&stored));
            running.spawn(async move {
                while let Ok(handle) = client.spawn(Job(producer)).await {
                    lock(&stored).push(handle.id());
                }
            });
        }
        Self { running, stored }
    }

    /// Waits until many tasks are stored, and a server that does not wait for its disk has fallen behind.
    async fn until_server_is_busy(&self) {
        let began = Instant::now();
        let busy = async {
            while began.elapsed() < Duration::from_millis(1_600) || lock(&self.stored).len() < 100 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(2 * DEADLINE, busy).await.unwrap();
    }

    async fn stop(mut self) -> Vec<TaskId> {
        self.running.shutdown().await;
        std::mem::take(&mut *lock(&self.stored))
    }
}

/// The server receives `kill -9` in the middle of its work.
#[tokio::test]
async fn a_server_that_syncs_every_write_loses_no_stored_task() {
    needs_redis!();
    let mut server = slow_server("always", Duration::from_millis(100));
    let client = client_of(&server).await;
    client.require(Durability::Synced).await.unwrap();
    for _ in 0..3 {
        let producers = Producers::start(&client);
        producers.until_server_is_busy().await;
        server.kill();
        let stored = producers.stop().await;
        server.run();
        for id in stored {
            assert_eq!(client.status(id).await.unwrap(), Status::Waiting, "{id}");
        }
    }
}

/// While its disk is busy, the server answers first and writes later.
#[tokio::test]
async fn a_server_that_syncs_every_second_loses_acknowledged_tasks() {
    needs_redis!();
    let mut server = slow_server("everysec", Duration::from_millis(1_500));
    let client = client_of(&server).await;
    assert_eq!(client.durability().await.unwrap(), Durability::Buffered);
    let error = client.require(Durability::Process).await.unwrap_err();
    assert!(error.is_not_durable(), "{error}");
    // On a slow machine, the kill may take more than two seconds.
    for round in 0..10 {
        let producer = client_of(&server).await;
        until_disk_is_busy(&client, &server).await;
        let id = producer.spawn(Job(round)).await.unwrap().id();
        // The process that has stored the task is gone, so it does not store the task again.
        producer.close().await.unwrap();
        // If that task is lost, so is this later one, whose loss tells the client.
        client.spawn(Job(100 + round)).await.unwrap();
        let handle = client.attach::<Job>(id);
        let waiting = tokio::spawn(handle.into_future());
        server.kill();
        server.run();
        if client.status(id).await.unwrap() == Status::Absent {
            // The handle of a lost task reports the loss.
            let ended = timeout(DEADLINE, waiting).await.expect("it does not hang");
            let error: DurableError = ended.unwrap().unwrap_err();
            assert!(error.is_rewound(), "{error}");
            return;
        }
        waiting.abort();
    }
    panic!("nothing was lost: `everysec` promises more than is documented");
}

#[tokio::test]
async fn a_producer_stores_again_what_a_killed_server_has_lost() {
    needs_redis!();
    let mut server = slow_server("everysec", Duration::from_millis(1_500));
    let client = client_of(&server).await;
    for round in 0..10 {
        until_disk_is_busy(&client, &server).await;
        let handle = client.spawn(Job(round)).await.unwrap();
        server.kill();
        server.run();
        let status = client.status(handle.id()).await.unwrap();
        assert_eq!(status, Status::Waiting);
        if client.losses().healed > 0 {
            return;
        }
    }
    panic!("nothing was lost: `everysec` promises more than is documented");
}

/// Stores tasks until the server writes earlier ones to its disk.
async fn until_disk_is_busy(client: &DurableClient, server: &Server) {
    let busy = async {
        loop {
            _ = client.spawn(Job(0)).await.unwrap();
            let info = server.ask(&["INFO", "persistence"]);
            if format!("{info:?}").contains("aof_pending_bio_fsync:1") {
                return;
            }
        }
    };
    timeout(DEADLINE, busy).await.unwrap();
}

#[tokio::test]
async fn a_server_less_durable_than_required_is_refused() {
    needs_redis!();
    let server = Server::with(&["--appendonly", "yes"]);
    let mut builder = RedisStore::builder(&server.url());
    for (level, will_do) in [
        (Durability::Unknown, true),
        (Durability::Memory, true),
        (Durability::Buffered, true),
        (Durability::Process, false),
        (Durability::Synced, false),
    ] {
        match builder.require(level).open().await {
            Ok(_) => assert!(will_do, "{level:?}"),
            Err(error) => {
                assert!(!will_do && error.is_not_durable(), "{level:?}: {error}");
                let text = error.to_string();
                assert!(
                    text.contains("Buffered") && text.contains(&format!("{level:?}")),
                    "{text}"
                );
            }
        }
    }
    server.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    builder.open().await.expect("now it will do");
}
