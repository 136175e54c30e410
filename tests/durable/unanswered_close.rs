//! An executor that was closed, and whose store does not answer when its last run ends.

use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableExecutor, DurableHandle};
use tokio::time::timeout;

use crate::harness::{Door, spawn, start, until};
use crate::support::within;

/// A store that can stop answering.
trait Outage {
    async fn client(&self) -> DurableClient;
    fn begin(&self);
    fn end(&self);
}

/// A closed executor whose only run has ended during an outage.
async fn closed(outage: &impl Outage) -> (DurableExecutor, DurableHandle<u64>) {
    let (client, door) = (outage.client().await, Door::new());
    let held = door.clone();
    let executor = start(&client, move |number, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 7).await;
    until("it runs", || executor.metrics().running == 1).await;
    outage.begin();
    executor.close();
    door.open();
    until("the run has ended", || executor.metrics().running == 0).await;
    (executor, handle)
}

/// The first wait is longer than the two seconds for which a shutdown would wait for the store.
async fn a_closed_executor_ends_when_the_store_has_its_outcomes(outage: impl Outage) {
    let (executor, handle) = closed(&outage).await;
    let early = timeout(Duration::from_secs(4), executor.closed()).await;
    assert!(early.is_err(), "the store does not have the outcome");
    outage.end();
    within(executor.closed()).await;
    let counts = executor.client().counts().await.unwrap();
    assert_eq!((counts.done, counts.running, counts.claimed), (1, 0, 1));
    assert_eq!(within(handle).await.unwrap(), 7);
}

async fn a_shutdown_after_a_close_does_not_wait_for_the_store(outage: impl Outage) {
    const GRACE: Duration = Duration::from_millis(500);
    let (executor, _) = closed(&outage).await;
    let begun = Instant::now();
    within(executor.shutdown(GRACE)).await;
    let took = begun.elapsed();
    // A shutdown takes at most two seconds more, but a busy machine may need longer.
    assert!(took < GRACE + Duration::from_secs(5), "{took:?}");
    outage.end();
}

#[cfg(feature = "redis")]
mod redis {
    use rustix::process::Signal;
    use throng::durable::{DurableClient, RedisStore};

    use crate::harness::in_time;
    use crate::redis_server::Server;

    /// The server hangs.
    impl super::Outage for Server {
        async fn client(&self) -> DurableClient {
            let store = RedisStore::open(&self.url()).await;
            DurableClient::open(store.expect("the server can be reached"))
        }

        fn begin(&self) {
            self.signal(Signal::STOP);
        }

        fn end(&self) {
            self.signal(Signal::CONT);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_closed_executor_ends_when_the_store_has_its_outcomes() {
        needs_redis!();
        let server = Server::start();
        in_time(super::a_closed_executor_ends_when_the_store_has_its_outcomes(server)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shutdown_after_a_close_does_not_wait_for_the_store() {
        needs_redis!();
        let server = Server::start();
        in_time(super::a_shutdown_after_a_close_does_not_wait_for_the_store(
            server,
        ))
        .await;
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use rusqlite::Connection;
    use throng::durable::DurableClient;

    use crate::harness::{TestStore, in_time};

    /// A store in a file. During an outage, another program has locked the file for writing.
    struct File {
        store: TestStore,
        other: Connection,
    }

    impl File {
        async fn new() -> Self {
            let store = TestStore::file();
            let TestStore::File(folder) = &store else {
                panic!("it is in a file");
            };
            let path = folder.path().join("tasks.db");
            drop(store.client().await);
            let other = Connection::open(path).expect("it can be opened");
            Self { store, other }
        }

        fn run(&self, statement: &str) {
            self.other
                .execute_batch(statement)
                .expect("it can be executed");
        }
    }

    impl super::Outage for File {
        async fn client(&self) -> DurableClient {
            self.store.client().await
        }

        fn begin(&self) {
            self.run("BEGIN IMMEDIATE");
        }

        fn end(&self) {
            self.run("COMMIT");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_closed_executor_ends_when_the_store_has_its_outcomes() {
        let file = File::new().await;
        in_time(super::a_closed_executor_ends_when_the_store_has_its_outcomes(file)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shutdown_after_a_close_does_not_wait_for_the_store() {
        let file = File::new().await;
        in_time(super::a_shutdown_after_a_close_does_not_wait_for_the_store(
            file,
        ))
        .await;
    }
}
