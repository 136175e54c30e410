//! Statements that are sent together, in one transaction.

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio::try_join;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::store::postgres::connection::{BEGIN, Connection};

/// Fails when it gets a lock: the lock is an empty text, and its length is 0.
const FAILS: &str = "SELECT 1 / length(pg_advisory_xact_lock(77, 1)::text)";

const FOLLOWS: &str = "SELECT 'it follows'";

/// Sends [`FAILS`], and then a statement whose answer is awaited before that of the first one. Both are answered before anyone looks.
/// Returns the error that is noticed.
async fn noticed_error(
    is_pooled: bool,
    follow: impl AsyncFnOnce(&Connection) -> Result<(), Error>,
) -> Error {
    let scene = PostgresScene::new();
    let mut builder = scene.builder();
    if is_pooled {
        // Other connections prepare nothing then.
        builder.listen_url(Server::shared().url());
    }
    let connection = builder.server().unwrap().connect(None).await.unwrap();
    connection.prepare(&[FAILS]).await.unwrap();
    connection.begin(BEGIN).await.unwrap();
    let program = ServerConnection::to(Server::shared().url());
    program.ask("BEGIN; SELECT pg_advisory_xact_lock(77, 1)");
    let sent = Notify::new();
    let follow = async {
        scene.blocked().await;
        sent.notify_one();
        follow(&connection).await
    };
    let fail = connection.rows(FAILS, &[]);
    let unlock = async {
        sent.notified().await;
        // The statement is sent before the thread rests.
        sleep(SOON / 100).await;
        program.ask("ROLLBACK");
        until_refused(&scene);
        Ok(())
    };
    try_join!(biased; follow, fail, unlock).unwrap_err()
}

/// Keeps the thread busy until the server has refused the second statement.
fn until_refused(scene: &PostgresScene) {
    let end = Instant::now() + DEADLINE;
    let refused = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$S'
        AND state = 'idle in transaction (aborted)' AND query LIKE '%it follows%'";
    while scene.number(refused) == 0 {
        assert!(Instant::now() < end, "the second statement was not sent");
    }
}

#[tokio::test]
async fn the_first_of_several_errors_is_noticed() {
    needs_postgres!();
    let code = Some(&SqlState::DIVISION_BY_ZERO);
    for is_pooled in [false, true] {
        let rows = async |it: &Connection| it.rows(FOLLOWS, &[]).await.map(drop);
        assert_eq!(noticed_error(is_pooled, rows).await.code(), code);
        let execute = async |it: &Connection| it.execute(FOLLOWS, &[]).await.map(drop);
        assert_eq!(noticed_error(is_pooled, execute).await.code(), code);
        let batch = async |it: &Connection| it.batch(FOLLOWS).await;
        assert_eq!(noticed_error(is_pooled, batch).await.code(), code);
    }
    let prepare = async |it: &Connection| it.prepare(&[FOLLOWS]).await;
    assert_eq!(noticed_error(false, prepare).await.code(), code);
}
