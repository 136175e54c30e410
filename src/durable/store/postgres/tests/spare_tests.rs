//! Connections that are lost, and tasks that panic, while a store writes on two connections.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::join;
use tokio::time::{Instant, sleep, timeout};

use super::held_commits::*;
use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::Backend;
use crate::durable::store::postgres::error::Fault;
use crate::durable::store::postgres::migrate;
use crate::durable::store::postgres::transaction::Transaction;
use crate::durable::store::suite::task;

/// A store with four connections. The server allows it no further one, and only three if one is lost.
struct CrowdedStore {
    scene: PostgresScene,
    caller: Caller,
    /// The connections: the main writer, the listener, the reader, and the second writer.
    backends: Vec<String>,
}

impl CrowdedStore {
    async fn open() -> Self {
        let scene = PostgresScene::new();
        let user = scene.new_user("");
        scene.ask(&format!("CREATE SCHEMA $S AUTHORIZATION {user}"));
        let caller = Caller::of(scene.builder_of(&user).open().await.unwrap()).await;
        open_second_connection(&caller).await;
        scene.ask(&format!("ALTER ROLE {user} CONNECTION LIMIT 3"));
        let backends = scene.backends();
        assert_eq!(backends.len(), 4);
        Self {
            scene,
            caller,
            backends,
        }
    }

    fn has_second(&self) -> bool {
        self.scene.backends().contains(&self.backends[3])
    }

    /// Waits until the second connection is known to be lost.
    async fn until_without_second(&self) {
        until(|| self.caller.store.shared.spare.get().is_none()).await;
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "it does not happen");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_second_connection_gives_way_to_a_reader() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    crowded.scene.cut(&crowded.backends[2]);
    crowded.caller.store.counts().await.unwrap();
    assert!(!crowded.has_second());
}

#[tokio::test]
async fn the_second_connection_gives_way_to_the_listener() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    crowded.scene.cut(&crowded.backends[1]);
    until(|| !crowded.has_second() && crowded.caller.store.shared.is_listening()).await;
}

#[tokio::test]
async fn the_second_connection_gives_way_to_the_main_one() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    crowded.scene.cut(&crowded.backends[0]);
    crowded.caller.store(1).await.unwrap();
    assert!(!crowded.has_second());
}

#[tokio::test]
async fn requests_of_a_second_connection_that_is_lost_are_left_to_the_main_one() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    let (scene, store) = (&crowded.scene, &crowded.caller.store);
    let other_session = new_session(&crowded.caller).await;
    let program = hold_commits(scene, MARKED);
    let held = store.enqueue(crowded.caller.new_enqueue([marked(1)]));
    let meanwhile = async {
        until_blocked(scene, 1).await;
        scene.cut(&crowded.backends[3]);
        let stored = store.enqueue(first_enqueue(other_session, task(2)));
        crowded.until_without_second().await;
        program.ask("ROLLBACK");
        stored.await
    };
    let (held, stored) = join!(held, meanwhile);
    held.unwrap();
    stored.unwrap();
    assert_eq!(store.counts().await.unwrap().waiting, 2);
}

/// The request waits in the process for the COMMIT of another one that has the store. Meanwhile, its connection is closed.
#[tokio::test]
async fn a_request_of_a_second_connection_that_gives_way_is_left_to_the_main_one() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    let (scene, store) = (&crowded.scene, &crowded.caller.store);
    let other_session = new_session(&crowded.caller).await;
    let program = hold_commits(scene, "paused");
    let held = store.set_paused("other".into(), true);
    until_blocked(scene, 1).await;
    let stored = store.enqueue(first_enqueue(other_session, task(1)));
    scene.cut(&crowded.backends[2]);
    store.counts().await.unwrap();
    assert!(!crowded.has_second());
    program.ask("ROLLBACK");
    held.await.unwrap();
    stored.await.unwrap();
    assert_eq!(store.counts().await.unwrap().waiting, 1);
}

/// A request that records its number, and the connection on which it has taken effect.
async fn record(tx: &mut Transaction, number: &i32) -> Result<(), Fault> {
    let insert = "INSERT INTO throng.record VALUES ($1, pg_backend_pid())";
    tx.execute(insert, &[number]).await?;
    Ok(())
}

/// Creates the table of [`record`]. The first transaction that records 2 fails, and the second one loses its connection.
fn create_record(scene: &PostgresScene) {
    scene.ask(
        "CREATE TABLE $S.record (number integer, pid integer);
         CREATE SEQUENCE $S.attempts;
         CREATE FUNCTION $S.harm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             CASE nextval('$S.attempts')
                 WHEN 1 THEN RAISE EXCEPTION USING ERRCODE = 'serialization_failure';
                 WHEN 2 THEN PERFORM pg_terminate_backend(pg_backend_pid());
                 ELSE NULL;
             END CASE;
             RETURN NEW;
         END $$;
         CREATE TRIGGER harm BEFORE INSERT ON $S.record FOR each ROW WHEN (NEW.number = 2)
             EXECUTE FUNCTION $S.harm();
         GRANT ALL ON $S.record, $S.attempts TO user_of_$S",
    );
}

/// The second connection takes four requests together. When their transaction has failed, it runs the first one alone. It is
/// lost while it runs the second one, so the last two are left to the main connection.
#[tokio::test]
async fn requests_that_are_given_back_halfway_take_effect_once() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    let (scene, caller) = (&crowded.scene, &crowded.caller);
    create_record(scene);
    let send = |number: i32| {
        let request = caller
            .store
            .write(number, |tx, it| Box::pin(record(tx, it)));
        async move {
            request
                .await
                .map_err(|failure| (failure.cause, failure.effect))
        }
    };
    let program = hold_commits(scene, MARKED);
    let held = caller.store.enqueue(caller.new_enqueue([marked(1)]));
    until_blocked(scene, 1).await;
    let lock = scene.lock("record");
    let before = send(0);
    until_blocked(scene, 2).await;
    let together: Vec<_> = (1..=4).map(send).collect();
    lock.ask("ROLLBACK");
    // They may have failed because of the main connection, so they wait for it before they run alone.
    until(|| scene.number("SELECT count(*) FROM $S.attempts WHERE is_called") == 1).await;
    program.ask("ROLLBACK");
    held.await.unwrap();
    before.await.unwrap();
    let lost = Err((Cause::Unavailable, Effect::None));
    assert_eq!(join_all(together).await, [Ok(()), lost, Ok(()), Ok(())]);
    send(2).await.unwrap();
    let [main, .., second] = &*crowded.backends else {
        unreachable!("there are four")
    };
    let recorded = scene.ask("SELECT number, pid FROM $S.record ORDER BY number");
    let pids = [second, second, main, main, main].into_iter();
    let expected = pids
        .zip(0..)
        .map(|(pid, number)| vec![i32::to_string(&number), pid.clone()]);
    assert_eq!(recorded, expected.collect::<Vec<_>>());
}

/// The request whose COMMIT was cut is sent again. At the server, its connection would wait for the other COMMIT only for a limited time.
#[tokio::test]
async fn a_main_connection_that_is_opened_again_waits_for_the_other_commit() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (caller, other_session) = open_patient(&scene).await;
    let store = &caller.store;
    let program = hold_commits(&scene, MARKED);
    let request = caller.new_enqueue([marked(1)]);
    let cut = store.enqueue(Arc::clone(&request));
    let main = scene.blocked().await;
    assert_eq!(main, scene.backends()[0]);
    let held = store.enqueue(first_enqueue(other_session, marked(2)));
    until_blocked(&scene, 2).await;
    scene.cut(&main);
    let failure = cut.await.unwrap_err();
    let ends = (Cause::Unavailable, Effect::Unknown);
    assert_eq!((failure.cause, failure.effect), ends);
    waits_for_commit(&scene, program, held, async {
        store.enqueue(request).await
    })
    .await;
    assert_eq!(store.counts().await.unwrap().waiting, 2);
}

/// The requests of all processes wait behind a connection that needs the store for itself.
#[tokio::test]
async fn a_second_connection_waits_for_the_store_only_for_a_moment() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let mut builder = scene.builder();
    // The server limits other waits for a lock to a third of this.
    builder.answer_timeout(Duration::from_secs(30));
    let store = builder.open().await.unwrap();
    let program = ServerConnection::to(Server::shared().url());
    program.ask(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock_shared({})",
        store.shared.store_lock
    ));
    let second = builder.server().unwrap().connect(None).await.unwrap();
    let set_up = migrate::migrate(&second, &store.shared, true);
    let set_up = timeout(Duration::from_secs(8), set_up).await;
    assert!(set_up.expect("it waits for long").unwrap_err().is_busy());
    program.ask("ROLLBACK");
    migrate::migrate(&second, &store.shared, true)
        .await
        .unwrap();
}

async fn panic(_: &mut Transaction) -> Result<(), Fault> {
    panic!("provoked by the test")
}

/// Has the task panic that runs the next request.
async fn have_a_writer_panic(caller: &Caller) {
    let request = caller.store.write((), |tx, ()| Box::pin(panic(tx)));
    let answer = timeout(DEADLINE, request).await.expect("nobody writes");
    let Failure { cause, effect, .. } = answer.unwrap_err();
    assert_eq!((cause, effect), (Cause::Unavailable, Effect::Unknown));
}

#[tokio::test]
async fn a_store_goes_on_after_a_panic_of_its_writer() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let opened = timeout(DEADLINE, scene.open()).await;
    let caller = opened.expect("nobody writes");
    for number in 1..=3 {
        have_a_writer_panic(&caller).await;
        // Only a task that has ended a transaction in the usual way has told the other one that it wants the turn.
        have_a_writer_panic(&caller).await;
        let stored = timeout(DEADLINE, caller.store(number)).await;
        stored.expect("nobody writes").unwrap();
    }
    assert_eq!(caller.claim(9).await.tasks.len(), 3);
}

#[tokio::test]
async fn a_store_goes_on_after_a_panic_on_its_second_connection() {
    needs_postgres!();
    let crowded = CrowdedStore::open().await;
    let (scene, caller) = (&crowded.scene, &crowded.caller);
    let program = hold_commits(scene, MARKED);
    let held = caller.store.enqueue(caller.new_enqueue([marked(1)]));
    let meanwhile = async {
        until_blocked(scene, 1).await;
        have_a_writer_panic(caller).await;
        crowded.until_without_second().await;
        program.ask("ROLLBACK");
    };
    let (held, ()) = join!(held, meanwhile);
    held.unwrap();
    caller.store(2).await.unwrap();
    assert_eq!(caller.store.counts().await.unwrap().waiting, 2);
}
