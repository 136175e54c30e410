//! Errors: each has a cause and a remedy, says whether the request has had an effect, and quotes no data of a task.

use std::error::Error;

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::postgres::PostgresStore;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, NewTask, TaskState};

#[tokio::test]
async fn an_address_that_is_no_address_is_invalid() {
    let addresses = [
        "localhost",
        "mysql://app:hunter2@localhost/app",
        "postgres://app:hunter2@2@localhost/app",
        "postgres://app:p@ss/hunter2@localhost/app",
        "postgres://app:hunter2@localhost:port/app",
        "host=localhost password='hunter2",
        "host=localhost hunter2",
    ];
    for address in addresses {
        let builder = PostgresStore::builder(address);
        let error = refused(&builder).await;
        assert!(error.is_invalid(), "{address}: {error}");
        assert!(error.to_string().contains("postgres://user"), "{error}");
        assert!(
            !format!("{error:?}{builder:?}").contains("unter2"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_setting_that_makes_no_sense_is_invalid() {
    let new = || PostgresStore::builder("postgres://localhost/app");
    let invalid = [
        new().schema("").clone(),
        new().schema("a".repeat(64)).clone(),
        new().schema("it's").clone(),
        new().schema("a\nDROP TABLE b; --").clone(),
        new().schema("a\".b").clone(),
        new().connect_timeout(std::time::Duration::ZERO).clone(),
        new().answer_timeout(std::time::Duration::ZERO).clone(),
        PostgresStore::builder("postgres://localhost/app?sslmode=verify-ca"),
        PostgresStore::builder("postgres://localhost/app?sslrootcert=/etc/ssl/cert.pem"),
    ];
    for builder in invalid {
        let error = refused(&builder).await;
        assert!(error.is_invalid(), "{builder:?}: {error}");
    }
}

#[tokio::test]
async fn without_tls_an_address_that_needs_it_is_invalid() {
    if cfg!(feature = "postgres-tls") {
        return;
    }
    for mode in ["require", "verify-full"] {
        let url = format!("postgres://app:hunter2@localhost/app?sslmode={mode}");
        let error = refused(&PostgresStore::builder(&url)).await;
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains("`postgres-tls`"), "{error}");
        assert!(!format!("{error:?}").contains("unter2"), "{error}");
    }
}

/// Otherwise, a transaction that waits for the lock of the store would not see what the last one has written.
#[tokio::test]
async fn the_isolation_level_of_the_user_does_not_matter() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let user = scene.new_user("");
    scene.ask(&format!(
        "ALTER ROLE {user} SET default_transaction_isolation = 'repeatable read'"
    ));
    let server = scene.builder_of(&user).server().unwrap();
    let connection = server.connect(None).await.unwrap();
    let level = "SELECT current_setting('transaction_isolation')";
    let level: String = connection.row(level, &[]).await.unwrap().unwrap().get(0);
    assert_eq!(level, "read committed");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let builder = PostgresStore::builder("host=/no/such/folder user=app");
    let error = refused(&builder).await;
    assert!(!error.is_invalid() && !error.is_denied(), "{error}");
    assert!(!error.is_unknown(), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_invalid() {
    needs_postgres!();
    let url = Server::shared()
        .url()
        .replace("dbname=postgres", "dbname=absent");
    let error = refused(&PostgresStore::builder(&url)).await;
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("create it"), "{error}");
}

#[tokio::test]
async fn a_database_with_another_encoding_is_unfit() {
    needs_postgres!();
    ServerConnection::to(Server::shared())
        .ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let url = Server::shared()
        .url()
        .replace("dbname=postgres", "dbname=latin");
    let error = refused(&PostgresStore::builder(&url)).await;
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("UTF8"), "{error}");
}

#[tokio::test]
async fn tables_that_were_removed_are_missed() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    scene.ask("DROP SCHEMA $S CASCADE");
    let failure = caller.store(1).await.unwrap_err();
    assert!(matches!(failure.cause, Cause::Unfit(_)), "{failure}");
    assert_eq!(failure.effect, Effect::None);
    let failure = caller.store.counts().await.unwrap_err();
    assert!(matches!(failure.cause, Cause::Unfit(_)), "{failure}");
    drop(caller);
    scene.open().await.store(1).await.unwrap();
}

/// Returns a task that the tests have the server refuse.
fn refused_task(number: u64) -> NewTask {
    NewTask {
        name: "refused".into(),
        payload: b"confidential".to_vec(),
        ..task(number)
    }
}

#[tokio::test]
async fn an_error_quotes_no_payload() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    scene.ask("ALTER TABLE $S.task ADD CHECK (name <> 'refused')");
    let request = caller.new_enqueue([refused_task(1)]);
    let failure = caller.store.enqueue(request).await.unwrap_err();
    let mut texts = format!("{failure} {failure:?}");
    let mut source = failure.source.as_deref().map(|it| it as &dyn Error);
    while let Some(error) = source {
        texts.push_str(&format!("{error} {error:?}"));
        source = error.source();
    }
    assert!(texts.contains("PostgreSQL reports 23514"), "{texts}");
    // The server writes bytes as hexadecimal numbers.
    let hex: String = b"confidential"
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for quoted in ["refused", "confidential", &hex] {
        assert!(!texts.contains(quoted), "{texts}");
    }
}

/// Has the server run `action` within each COMMIT that stores a task with the name `refused`.
fn at_commit(scene: &PostgresScene, action: &str) {
    scene.ask(&format!(
        "CREATE FUNCTION $S.act() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN {action}; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER act AFTER INSERT ON $S.task DEFERRABLE INITIALLY DEFERRED
             for each row WHEN (NEW.name = 'refused') EXECUTE FUNCTION $S.act()"
    ));
}

#[tokio::test]
async fn an_error_of_a_commit_says_that_it_did_not_happen() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let others = [scene.open().await, scene.open().await];
    at_commit(&scene, "RAISE EXCEPTION 'never'");
    let request = caller.new_enqueue([refused_task(1)]);
    // These may be in the same transaction, which runs them one by one when it has failed.
    let [first, second] = &others;
    let (refused, stored, also) = tokio::join!(
        caller.store.enqueue(request),
        first.store(2),
        second.store(3)
    );
    assert_eq!(refused.unwrap_err().effect, Effect::None);
    stored.unwrap();
    also.unwrap();
    assert_eq!(scene.number("SELECT count(*) FROM $S.task"), 2);
}

#[tokio::test]
async fn a_connection_that_ends_during_a_commit_leaves_the_outcome_open() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    at_commit(&scene, "PERFORM pg_terminate_backend(pg_backend_pid())");
    let request = caller.new_enqueue([refused_task(1)]);
    let failure = caller.store.enqueue(request).await.unwrap_err();
    assert_eq!(failure.effect, Effect::Unknown, "{failure}");
    assert_eq!(failure.cause, Cause::Unavailable, "{failure}");
    caller.store(2).await.unwrap();
    let seen = caller.store.status(vec![id(1), id(2)]).await.unwrap();
    assert_eq!(seen, [TaskState::Absent, TaskState::Waiting]);
}
