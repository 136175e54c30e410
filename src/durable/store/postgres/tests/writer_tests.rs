//! Requests that share transactions, and COMMITs that are not answered.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::Key;
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::postgres::PostgresStore;
use crate::durable::store::suite::{task, with_key};
use crate::durable::store::{Backend, NewTask};

/// Sends a request for each task, all at the same time, while another request waits for a lock.
async fn store_together(scene: &PostgresScene, caller: &Caller, tasks: Vec<NewTask>) {
    let other = scene.lock("task");
    let requests = tasks.into_iter().map(|task| {
        let request = caller.new_enqueue([task]);
        caller.store.enqueue(request)
    });
    let answers = join_all(requests);
    let unlock = async {
        scene.blocked().await;
        other.ask("ROLLBACK");
    };
    let (answers, ()) = tokio::join!(answers, unlock);
    for answer in answers {
        answer.unwrap();
    }
}

/// The first request runs on its own, since the writer does not wait for others.
#[tokio::test]
async fn requests_run_together_although_one_of_them_needs_the_store() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let mut tasks: Vec<_> = (0..60).map(task).collect();
    tasks[40] = with_key(Key::new("key"), task(40));
    store_together(&scene, &caller, tasks).await;
    let transactions = scene.number("SELECT count(DISTINCT xmin::text) FROM $S.task");
    assert!(transactions <= 2, "{transactions} transactions");
}

#[tokio::test]
async fn requests_that_met_a_lock_fail_together() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    let other = scene.lock("task");
    let began = Instant::now();
    let stored = join_all((0..60).map(|number| caller.store(number))).await;
    let took = began.elapsed();
    other.ask("ROLLBACK");
    for failure in stored {
        let failure = failure.unwrap_err();
        assert_eq!((failure.cause, failure.effect), (Cause::Busy, Effect::None));
    }
    // Each wait for the lock takes a third of this.
    assert!(took < 5 * SOON, "{took:?}");
    caller.store(100).await.unwrap();
}

/// The notifications wait for a lock, one after the other, for longer than a request may take.
#[tokio::test]
async fn a_request_is_answered_although_its_notifications_hang() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    let tasks = ["job", "other", "name", "a", "b"].into_iter().zip(1..);
    let tasks = tasks.map(|(name, number)| NewTask {
        name: name.into(),
        ..task(number)
    });
    let request = caller.new_enqueue(tasks);
    let other = ServerConnection::to(Server::shared().url());
    other.ask(&format!(
        "BEGIN; LOCK TABLE {}.park IN ACCESS EXCLUSIVE MODE",
        scene.schema
    ));
    caller.store.enqueue(request).await.unwrap();
    other.ask("ROLLBACK");
    assert_eq!(caller.claim(9).await.tasks.len(), 5);
}

/// A server of its own, whose COMMITs wait for a standby which does not exist.
struct Lonely(Server, ServerConnection);

impl Lonely {
    fn start() -> Self {
        let server = Server::start();
        let connection = ServerConnection::to(server.url());
        Self(server, connection)
    }

    async fn open(&self) -> Caller {
        let mut builder = PostgresStore::builder(&self.0.url());
        Caller::of(builder.answer_timeout(SOON).open().await.unwrap()).await
    }

    /// Has COMMITs wait, or not.
    async fn wait_for(&self, standby: &str) {
        self.1.ask(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{standby}'"
        ));
        self.1.ask("SELECT pg_reload_conf()");
        if !standby.is_empty() {
            self.until_a_commit_waits().await;
        }
    }

    /// The setting takes effect after a moment.
    async fn until_a_commit_waits(&self) {
        let server = PostgresStore::builder(&self.0.url()).server().unwrap();
        let connection = server.connect(None).await.unwrap();
        let write = "SELECT pg_logical_emit_message(true, 'prefix', 'text')";
        loop {
            tokio::select! {
                written = connection.batch(write) => written.unwrap(),
                () = self.until(|| self.waiting() == 1) => break,
            }
        }
        self.1.ask(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        );
        self.until(|| self.waiting() == 0).await;
    }

    fn waiting(&self) -> i64 {
        self.1
            .number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < end, "it does not happen");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_commit_that_waits_for_a_standby_which_is_gone_is_given_up() {
    needs_postgres!();
    let server = Lonely::start();
    let (caller, other) = (server.open().await, server.open().await);
    server.wait_for("nobody").await;
    let began = Instant::now();
    // This holds the store for itself until it is committed.
    let request = caller.new_enqueue([with_key(Key::new("key"), task(1))]);
    let failure = caller
        .store
        .enqueue(Arc::clone(&request))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.cause, failure.effect),
        (Cause::Unavailable, Effect::Unknown)
    );
    // The other process gets a clear answer in time, too.
    let failure = other.store(2).await.unwrap_err();
    assert!(
        matches!(failure.cause, Cause::Unavailable | Cause::Busy),
        "{failure}"
    );
    assert!(began.elapsed() < DEADLINE, "nothing has limited the time");
    server.until(|| server.waiting() == 0).await;
    server.wait_for("").await;
    settled(|| caller.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    let counts = caller.store.counts().await.unwrap();
    assert!((1..=2).contains(&counts.stored), "{counts:?}");
}
