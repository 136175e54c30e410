//! Addresses with several hosts.

use super::needs_postgres;
use super::scene::*;
use super::server::Server;
use crate::durable::failure::Cause;
use crate::durable::store::Backend;
use crate::durable::store::postgres::PostgresStore;

/// Returns the address of several servers, of which one is chosen that can be written.
fn url_of(servers: &[&Server]) -> String {
    let folders = servers.iter().map(|server| {
        let socket = server.socket();
        let folder = socket.parent().expect("the socket is in a folder");
        folder.display().to_string()
    });
    let hosts = folders.collect::<Vec<_>>().join(",");
    format!("host={hosts} user=throng dbname=postgres target_session_attrs=read-write")
}

#[tokio::test]
async fn the_server_that_can_be_written_is_chosen() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let standby = Server::start_with(&["default_transaction_read_only=on"]);
    let caller = Caller::of(
        scene
            .builder_at(&url_of(&[&standby, Server::shared()]))
            .open()
            .await
            .unwrap(),
    )
    .await;
    caller.store(1).await.unwrap();
    assert_eq!(caller.store.counts().await.unwrap().waiting, 1);
    assert_eq!(scene.number("SELECT count(*) FROM $S.task"), 1);
    let error = refused(&PostgresStore::builder(&url_of(&[&standby]))).await;
    assert!(error.is_read_only(), "{error}");
    // One of several standbys is about to become the primary, so a request is worth another attempt.
    let standbys = PostgresStore::builder(&url_of(&[&standby, &standby]));
    let connected = standbys.server().unwrap().connect(None).await;
    let failure = connected.err().expect("nobody can write").failure;
    assert_eq!(failure.cause, Cause::Unavailable, "{failure}");
}
