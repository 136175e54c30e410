//! Users who lack a permission, and servers that cannot be written.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::needs_postgres;
use super::scene::*;
use super::server::Server;
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::suite::id;
use crate::durable::store::{Backend, TaskState};

#[tokio::test]
async fn a_wrong_password_is_denied() {
    needs_postgres!();
    let scene = PostgresScene::new();
    scene.ask("CREATE ROLE guarded LOGIN PASSWORD 'right'");
    let url = Server::shared().url_of("guarded");
    for password in ["", " password=wrong"] {
        let error = refused(&scene.builder_at(&format!("{url}{password}"))).await;
        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains("check the password"), "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    scene.ask("CREATE SCHEMA $S AUTHORIZATION guarded");
    let builder = scene.builder_at(&format!("{url} password=right"));
    builder.open().await.unwrap();
    scene.ask("DROP OWNED BY guarded; DROP ROLE guarded");
}

#[tokio::test]
async fn a_user_who_may_not_create_the_tables_is_told_what_to_do() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let user = scene.new_user("");
    let error = refused(&scene.builder_of(&user)).await;
    assert!(error.is_denied() && !error.is_unknown(), "{error}");
    let remedy = format!(
        "CREATE SCHEMA \"{}\" AUTHORIZATION \"{user}\"",
        scene.schema
    );
    assert!(error.to_string().contains(&remedy), "{error}");
    scene.ask(&remedy);
    let caller = Caller::of(scene.builder_of(&user).open().await.unwrap()).await;
    caller.store(1).await.unwrap();
    assert_eq!(caller.claim(1).await.tasks.len(), 1);
}

#[tokio::test]
async fn a_user_needs_rights_on_the_tables() {
    needs_postgres!();
    let scene = PostgresScene::new();
    scene.open().await.store(1).await.unwrap();
    let user = scene.new_user("");
    let error = refused(&scene.builder_of(&user)).await;
    assert!(error.is_denied(), "{error}");
    assert!(
        error.to_string().contains("grant the user all rights"),
        "{error}"
    );
    scene.ask(&format!(
        "GRANT USAGE ON SCHEMA $S TO {user};
         GRANT ALL ON ALL TABLES IN SCHEMA $S TO {user};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA $S TO {user}"
    ));
    let caller = Caller::of(scene.builder_of(&user).open().await.unwrap()).await;
    let claim = caller.claim(1).await;
    caller.turn(done(&claim), 0).await;
}

#[tokio::test]
async fn an_observer_needs_to_read_only() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let user = scene.new_user(
        "GRANT USAGE ON SCHEMA $S TO user_of_$S;
         GRANT SELECT ON ALL TABLES IN SCHEMA $S TO user_of_$S",
    );
    caller.store(1).await.unwrap();
    let observer = scene.builder_of(&user).observe().await.unwrap();
    assert_eq!(observer.0.counts().await.unwrap().waiting, 1);
    let seen = observer.0.status(vec![id(1)]).await.unwrap();
    assert!(seen[0] == TaskState::Waiting, "{seen:?}");
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_read_only_until_it_can() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let user = scene.new_user("CREATE SCHEMA $S AUTHORIZATION user_of_$S");
    let set = format!("ALTER ROLE {user} SET default_transaction_read_only = on");
    let reset = format!("ALTER ROLE {user} RESET default_transaction_read_only");
    scene.ask(&set);
    let error = refused(&scene.builder_of(&user)).await;
    assert!(error.is_read_only() && !error.is_unknown(), "{error}");
    assert!(
        error.to_string().contains("target_session_attrs"),
        "{error}"
    );
    scene.ask(&reset);
    let caller = Caller::of(scene.builder_of(&user).open().await.unwrap()).await;
    scene.ask(&set);
    for backend in scene.backends() {
        scene.cut(&backend);
    }
    let failure = caller.store(1).await.unwrap_err();
    assert_eq!(
        (failure.cause, failure.effect),
        (Cause::ReadOnly, Effect::None)
    );
    // Reads go on.
    assert_eq!(caller.store.counts().await.unwrap().waiting, 0);
    scene.ask(&reset);
    // The writer does not connect again at once.
    let end = Instant::now() + DEADLINE;
    while let Err(failure) = caller.store(2).await {
        assert_eq!(failure.cause, Cause::ReadOnly);
        assert!(Instant::now() < end, "{failure}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A server that becomes a standby keeps its connections.
#[tokio::test]
async fn a_connection_that_can_only_read_is_replaced() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    caller.store(1).await.unwrap();
    let writer = scene.backends().remove(0);
    scene.ask(
        "CREATE FUNCTION $S.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF pg_backend_pid() = (SELECT pid FROM $S.standby) THEN
                 RAISE EXCEPTION 'standby' USING ERRCODE = '25006';
             END IF; RETURN NEW;
         END $$;
         CREATE TABLE $S.standby (pid integer);
         CREATE TRIGGER refuse BEFORE INSERT ON $S.task for each row EXECUTE FUNCTION $S.refuse()",
    );
    scene.ask(&format!("INSERT INTO $S.standby VALUES ({writer})"));
    caller.store(2).await.unwrap();
    assert!(!scene.backends().contains(&writer));
}
