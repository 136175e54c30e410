//! COMMITs that take as long as a test wants.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::join;
use tokio::time::{Instant, sleep, timeout};

use super::ServerConnection;
use super::scene::*;
use super::server::Server;
use crate::durable::failure::Failure;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::suite::task;
use crate::durable::store::{Backend, Enqueue, NewTask, SessionId};

/// Has each COMMIT of a transaction that inserts such a row call a function, which the body describes.
pub(super) fn on_commit(scene: &PostgresScene, row: &str, body: &str) {
    let (table, condition) = row.split_once(' ').unwrap_or((row, ""));
    scene.ask(&format!(
        "CREATE FUNCTION $S.on_commit() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN {body}; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER on_commit AFTER INSERT ON $S.{table}
             DEFERRABLE INITIALLY DEFERRED FOR each ROW {condition}
             EXECUTE FUNCTION $S.on_commit()"
    ));
}

/// The COMMITs that insert such a row wait until the answer is asked to `ROLLBACK`.
pub(super) fn hold_commits(scene: &PostgresScene, row: &str) -> ServerConnection {
    let lock = "(77, hashtext('$S'))";
    on_commit(
        scene,
        row,
        // As for a disk or a standby, the server waits without a limit.
        &format!(
            "PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared{lock}"
        ),
    );
    let other = ServerConnection::to(Server::shared().url());
    let hold = format!("BEGIN; SELECT pg_advisory_xact_lock{lock}");
    other.ask(&hold.replace("$S", &scene.schema));
    other
}

/// A task that [`hold_commits`] and [`on_commit`] can tell from others.
pub(super) fn marked(number: u64) -> NewTask {
    NewTask {
        name: "marked".into(),
        ..task(number)
    }
}

pub(super) const MARKED: &str = "task WHEN (NEW.name = 'marked')";

pub(super) async fn until_blocked(scene: &PostgresScene, connections: usize) {
    let end = Instant::now() + DEADLINE;
    let blocked = "SELECT pid FROM pg_stat_activity
        WHERE application_name = '$S' AND wait_event_type = 'Lock'";
    while scene.ask(blocked).len() < connections {
        assert!(Instant::now() < end, "they do not wait");
        sleep(SOON / 100).await;
    }
}

/// More requests than a transaction contains, so some of them wait for a COMMIT.
pub(super) const MANY: u64 = 200;

/// A further session of a store.
pub(super) async fn new_session(caller: &Caller) -> SessionId {
    let opened = caller.store.open_session(TypeSet::of_tests());
    opened.await.unwrap()
}

pub(super) fn first_enqueue(session: SessionId, new: NewTask) -> Arc<Enqueue> {
    Arc::new(Enqueue {
        session,
        number: 1,
        batch: Arc::new(vec![new].into()),
    })
}

/// Has the store open its second connection, which it does when requests have waited for a COMMIT.
pub(super) async fn open_second_connection(caller: &Caller) {
    let end = Instant::now() + DEADLINE;
    let mut number = 1_000;
    caller.store.counts().await.unwrap();
    while caller.store.shared.spare.get().is_none() {
        join_all((0..MANY).map(|nth| caller.store(number + nth))).await;
        number += MANY;
        assert!(Instant::now() < end, "there is no second connection");
    }
    while let Some(claim) = caller.turn(Vec::new(), 1_000).await.claim {
        caller.turn(done(&claim), 0).await;
    }
}

/// The answer timeout of a store whose COMMITs take long. The server ends a wait for a lock after a third of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

/// Asserts that a request waits for a COMMIT of its process, which takes longer than the server lets two attempts wait for a lock.
pub(super) async fn waits_for_commit<H, T>(
    scene: &PostgresScene,
    program: ServerConnection,
    held: impl Future<Output = Result<H, Failure>>,
    request: impl Future<Output = Result<T, Failure>>,
) {
    let meanwhile = async {
        until_blocked(scene, 1).await;
        let mut request = pin!(request);
        let early = timeout(ANSWER_TIMEOUT * 4 / 5, &mut request).await;
        program.ask("ROLLBACK");
        if let Ok(answer) = early {
            let failure = answer.err();
            panic!("it does not wait: {failure:?}");
        }
        request.await
    };
    let (held, answer) = join!(held, meanwhile);
    held.map(drop).unwrap();
    answer.map(drop).unwrap();
}

/// A store with two connections, and two sessions.
pub(super) async fn open_patient(scene: &PostgresScene) -> (Caller, SessionId) {
    let mut builder = scene.builder();
    let store = builder.answer_timeout(ANSWER_TIMEOUT).open().await.unwrap();
    let caller = Caller::of(store).await;
    let other_session = new_session(&caller).await;
    open_second_connection(&caller).await;
    (caller, other_session)
}
