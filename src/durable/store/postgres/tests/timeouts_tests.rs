//! Locks that are not released, and servers that do not answer: requests fail in time.

use std::process::Command;

use tokio::time::Instant;

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::Backend;
use crate::durable::store::suite::{id, task};

#[tokio::test]
async fn a_lock_of_another_program_makes_the_store_busy() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    let other = ServerConnection::to(Server::shared().url());
    let lock = format!(
        "BEGIN; LOCK TABLE {}.task IN ACCESS EXCLUSIVE MODE",
        scene.schema
    );
    other.ask(&lock);
    let began = Instant::now();
    let failure = caller.store(1).await.unwrap_err();
    assert_eq!((failure.cause, failure.effect), (Cause::Busy, Effect::None));
    let read = caller.store.status(vec![id(1)]).await;
    assert_eq!(read.unwrap_err().cause, Cause::Busy);
    assert!(began.elapsed() < DEADLINE, "nothing has limited the time");
    other.ask("ROLLBACK");
    caller.store(2).await.unwrap();
}

#[tokio::test]
async fn a_statement_that_takes_too_long_makes_the_store_busy() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    scene.ask(
        "CREATE FUNCTION $S.wait() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
         CREATE TRIGGER wait BEFORE INSERT ON $S.task for each row EXECUTE FUNCTION $S.wait()",
    );
    let failure = caller.store(1).await.unwrap_err();
    assert_eq!((failure.cause, failure.effect), (Cause::Busy, Effect::None));
    scene.ask("DROP TRIGGER wait ON $S.task");
    caller.store(2).await.unwrap();
}

/// A process that hangs, as this one seems to do, keeps no other one from writing.
#[tokio::test]
async fn a_transaction_of_a_process_that_hangs_ends() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    let hung = scene.builder().answer_timeout(SOON).server().unwrap();
    let hung = hung.connect(None).await.unwrap();
    let lock = format!(
        "BEGIN; LOCK TABLE {}.task IN ACCESS EXCLUSIVE MODE",
        scene.schema
    );
    hung.batch(&lock).await.unwrap();
    // Without the limit, this never succeeds.
    let end = Instant::now() + DEADLINE;
    let request = caller.new_enqueue([task(1)]);
    loop {
        match caller.store.enqueue(request.clone()).await {
            Ok(_) => break,
            Err(failure) => assert!(Instant::now() < end, "{failure}"),
        }
    }
    assert!(hung.batch("SELECT 1").await.is_err());
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unavailable() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    caller.store.counts().await.unwrap();
    let backends = scene.backends();
    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        assert!(kill.arg(name).args(&backends).status().unwrap().success());
    };
    signal("-STOP");
    let written = caller.store(1).await.unwrap_err();
    let read = caller.store.counts().await.unwrap_err();
    signal("-CONT");
    for failure in [written, read] {
        assert_eq!(failure.cause, Cause::Unavailable, "{failure}");
        assert_eq!(failure.effect, Effect::None, "{failure}");
    }
    // Both have new connections.
    caller.store(2).await.unwrap();
    assert_eq!(caller.store.counts().await.unwrap().waiting, 1);
}
