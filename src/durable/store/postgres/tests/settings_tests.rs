//! Settings of the user and of the server: those that concern time do not matter, and others are reported.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ServerConnection;
use super::needs_postgres;
use super::scene::*;
use super::server::Server;
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::Backend;
use crate::durable::store::postgres::PostgresStore;

/// A user cannot connect in less time than this.
const LOW: &str = "100ms";

#[tokio::test]
async fn the_timeouts_of_the_user_do_not_matter() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let user = scene.new_user("");
    scene.ask(&format!("GRANT CREATE ON DATABASE postgres TO {user}"));
    let mut timeouts = vec![
        "lock_timeout",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
    ];
    let mut expected = vec!["1s", "2s", "6s", "0"];
    // PostgreSQL 13 does not have it.
    if scene.ask("SHOW server_version_num")[0][0].starts_with("13") {
        timeouts.pop();
        expected.pop();
    }
    for timeout in &timeouts {
        scene.ask(&format!("ALTER ROLE {user} SET {timeout} = '{LOW}'"));
    }
    let mut builder = scene.builder_of(&user);
    let server = builder.answer_timeout(Duration::from_secs(3)).server();
    let connection = server.unwrap().connect(None).await.unwrap();
    let setting = "SELECT current_setting($1)";
    let mut found = Vec::new();
    for timeout in timeouts {
        let row = connection.row(setting, &[&timeout]).await.unwrap();
        found.push(row.unwrap().get::<_, String>(0));
    }
    assert_eq!(found, expected);
    let caller = Caller::of(builder.open().await.unwrap()).await;
    caller.store(1).await.unwrap();
    assert_eq!(caller.claim(1).await.tasks.len(), 1);
}

/// Has a server accept only transactions that read, or any. The server tells its oldest connection last.
fn set_read_only(oldest: &ServerConnection, is_read_only: bool) {
    let value = if is_read_only { "on" } else { "off" };
    oldest.ask(&format!(
        "ALTER SYSTEM SET default_transaction_read_only = {value}"
    ));
    oldest.ask("SELECT pg_reload_conf()");
    let end = Instant::now() + DEADLINE;
    while oldest.ask("SHOW default_transaction_read_only")[0][0] != value {
        assert!(Instant::now() < end, "the setting is not read");
    }
}

#[tokio::test]
async fn a_server_that_becomes_read_only_says_so_and_recovers() {
    needs_postgres!();
    let server = Server::start();
    let oldest = ServerConnection::to(server.url());
    let open = async || PostgresStore::open(&server.url()).await;
    let caller = Caller::of(open().await.unwrap()).await;
    caller.store(1).await.unwrap();
    set_read_only(&oldest, true);
    for number in 2..5 {
        let failure = caller.store(number).await.unwrap_err();
        assert_eq!(failure.cause, Cause::ReadOnly, "{failure}");
        assert_eq!(failure.effect, Effect::None, "{failure}");
        let text = failure.to_string();
        assert!(text.contains("default_transaction_read_only"), "{text}");
    }
    assert_eq!(caller.store.counts().await.unwrap().waiting, 1);
    assert!(open().await.unwrap_err().is_read_only());
    let observer = PostgresStore::observe(&server.url()).await.unwrap();
    assert_eq!(observer.0.counts().await.unwrap().waiting, 1);
    set_read_only(&oldest, false);
    let end = Instant::now() + DEADLINE;
    // The writer has just failed to connect, and does not try again at once.
    while let Err(failure) = caller.store(5).await {
        assert!(Instant::now() < end, "{failure}");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(caller.claim(9).await.tasks.len(), 2);
}

/// Whichever table a user locks, requests wait for a limited time, and say that the store is busy.
#[tokio::test]
async fn a_lock_on_any_table_makes_the_store_busy_for_as_long() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let mut builder = scene.builder();
    builder.answer_timeout(Duration::from_millis(600));
    // The requests of a session are numbered, so each of the two kinds has a session of its own.
    let producer = Caller::of(builder.open().await.unwrap()).await;
    let caller = Caller::of(builder.open().await.unwrap()).await;
    let other = ServerConnection::to(Server::shared().url());
    let tables =
        "SELECT relname FROM pg_class WHERE relnamespace = '$S'::regnamespace AND relkind = 'r'";
    let mut busy = 0;
    for (number, table) in (1..).zip(scene.ask(tables).concat()) {
        other.ask(&format!(
            "BEGIN; LOCK TABLE {}.\"{table}\" IN ACCESS EXCLUSIVE MODE",
            scene.schema
        ));
        let request = caller.new_turn(Vec::new(), 1);
        let (stored, turned, counted) = tokio::join!(
            producer.store(number),
            caller.store.turn(request.clone()),
            caller.store.counts()
        );
        let failures = [stored.err(), turned.err(), counted.err()];
        for failure in failures.into_iter().flatten() {
            assert_eq!(failure.cause, Cause::Busy, "{table}: {failure}");
            assert_eq!(failure.effect, Effect::None, "{table}: {failure}");
            busy += 1;
        }
        other.ask("ROLLBACK");
        let end = Instant::now() + DEADLINE;
        while let Err(failure) = caller.store.turn(request.clone()).await {
            assert!(Instant::now() < end, "{table}: {failure}");
        }
    }
    assert!(busy > 10, "{busy}");
}

/// Has the server fail the first transactions that store a task, at the statement or at its commit.
fn fail_first(scene: &PostgresScene, code: &str, at_commit: bool, times: u32) {
    let when = if at_commit {
        "DEFERRABLE INITIALLY DEFERRED"
    } else {
        ""
    };
    // A sequence is not rolled back.
    scene.ask(&format!(
        "DROP TRIGGER IF EXISTS fail ON $S.task; DROP SEQUENCE IF EXISTS $S.tries; CREATE SEQUENCE $S.tries;
         CREATE OR REPLACE FUNCTION $S.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('$S.tries') <= {times} THEN
                 RAISE EXCEPTION 'provoked' USING ERRCODE = '{code}';
             END IF;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON $S.task {when}
             for each row EXECUTE FUNCTION $S.fail()"
    ));
}

const CONFLICTS: [&str; 2] = ["40001", "40P01"];

#[tokio::test]
async fn a_transaction_that_meets_a_conflict_runs_again() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let mut number = 0;
    for code in CONFLICTS {
        for at_commit in [false, true] {
            number += 1;
            fail_first(&scene, code, at_commit, 4);
            caller.store(number).await.unwrap();
            let tries = scene.number("SELECT last_value FROM $S.tries");
            assert_eq!(tries, 5, "{code}");
        }
    }
    assert_eq!(scene.number("SELECT count(*) FROM $S.ready"), 4);
    let counts = caller.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (4, 4));
}

#[tokio::test]
async fn a_transaction_that_meets_conflicts_again_and_again_fails() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    fail_first(&scene, CONFLICTS[0], false, 1000);
    let failure = caller.store(1).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Contended, "{failure}");
    assert_eq!(failure.effect, Effect::None, "{failure}");
    scene.ask("DROP TRIGGER fail ON $S.task");
    caller.store(2).await.unwrap();
    assert_eq!(caller.store.counts().await.unwrap().stored, 1);
}
