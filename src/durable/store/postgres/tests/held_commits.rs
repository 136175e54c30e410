//! COMMITs that take as long as a test wants.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::ServerConnection;
use super::scene::*;
use super::server::Server;
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

/// Has the store write on its second connection, which it opens when requests have waited for a COMMIT.
pub(super) async fn open_second_connection(scene: &PostgresScene, caller: &Caller) {
    let end = Instant::now() + DEADLINE;
    let mut number = 1_000;
    caller.store.counts().await.unwrap();
    // The connection counts tasks in a row of its own.
    while scene.number("SELECT count(*) FROM $S.total WHERE endpoint < 0") == 0 {
        join_all((0..MANY).map(|nth| caller.store(number + nth))).await;
        number += MANY;
        assert!(Instant::now() < end, "there is no second connection");
    }
    while let Some(claim) = caller.turn(Vec::new(), 1_000).await.claim {
        caller.turn(done(&claim), 0).await;
    }
}
