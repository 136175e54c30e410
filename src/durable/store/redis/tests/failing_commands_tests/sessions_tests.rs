//! Commands fail while sessions are opened and closed.

use super::super::routes_tests::assert_routes_are_whole;
use super::super::workers_tests::carded;
use super::*;

#[tokio::test]
async fn a_session_is_closed_and_opened_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let session = scene.worker.session;
        let (_, has_failed) = scene
            .send(trial, true, || store.close_session(session))
            .await;
        scene.check(trial);
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let (_, has_failed) = scene
            .send(trial, true, || store.open_session_with(carded("")))
            .await;
        // No card is left without its session.
        while store.maintain(100).await.unwrap() {}
        let workers = store.workers(None, 100).await.unwrap().unwrap().workers;
        let cards = format!("throng:{{{}:0}}:cards", scene.namespace);
        let cards = scene.server.ask(&["ZCARD", &cards]);
        assert_eq!(cards, redis::Value::Int(workers.len() as i64), "{trial:?}");
        has_failed
    })
    .await;
}

/// Routes that were written in part are written again.
#[tokio::test]
async fn a_set_is_declared_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let set = || TypeSet::of_names(["job", "mail"]);
        let (opened, has_failed) = scene
            .send(trial, true, || store.open_session(set().ok()))
            .await;
        assert!(opened.is_ok(), "{trial:?}: {opened:?}");
        while store.maintain(100).await.unwrap() {}
        let key = format!("throng:{{{}:0}}:routes", scene.namespace);
        assert_routes_are_whole(store, &scene.server, &key).await;
        has_failed
    })
    .await;
}
