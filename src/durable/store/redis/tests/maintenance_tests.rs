//! The workers of a store share maintenance passes.

use super::scene::{HOUR, SECOND, Scene};
use super::*;
use crate::durable::Retention;

const INTERVAL: Duration = Duration::from_secs(15);

/// Creates an orphaned task, which only a maintenance pass ends.
fn orphan(scene: &Scene) {
    scene.orphan(7..8);
}

async fn is_ended(scene: &Scene) -> bool {
    scene.is_damaged(7).await
}

#[tokio::test]
async fn a_pass_soon_after_another_is_skipped() {
    needs_redis!();
    let scene = Scene::new().await;
    let other = scene.open().await;
    assert!(!other.maintain_every(INTERVAL, 100).await.unwrap());
    orphan(&scene);
    let store = &scene.worker.store;
    scene.clock.advance(INTERVAL - Duration::from_millis(1));
    assert!(!store.maintain_every(INTERVAL, 100).await.unwrap());
    assert!(!is_ended(&scene).await);
    scene.clock.advance(Duration::from_millis(1));
    while store.maintain_every(INTERVAL, 100).await.unwrap() {}
    assert!(is_ended(&scene).await);
    scene.check();
}

#[tokio::test]
async fn a_pass_without_an_interval_is_not_skipped() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.maintain().await;
    orphan(&scene);
    scene.maintain().await;
    assert!(is_ended(&scene).await);
}

/// Each page of a census is one pass, and only the last one leaves nothing to do.
#[tokio::test]
async fn another_worker_continues_an_unfinished_pass() {
    needs_redis!();
    let scene = Scene::new().await;
    let stores = [scene.open().await, scene.open().await];
    scene.maintain().await;
    scene.clock.advance(INTERVAL);
    orphan(&scene);
    let mut passes = 0;
    while stores[passes % 2]
        .maintain_every(INTERVAL, 1)
        .await
        .unwrap()
    {
        passes += 1;
    }
    assert!(passes > 2, "expected a census of several pages");
    assert!(is_ended(&scene).await);
}

/// The server's clock was set back, or the stored time of the last pass is damaged.
#[tokio::test]
async fn a_last_pass_in_the_future_does_not_prevent_a_pass() {
    needs_redis!();
    for damage in [
        "call('HSET', 'meta', 'passed', 'x')",
        "call('HSET', 'meta', 'passed', '')",
        "call('HSET', 'meta', 'passed', '-inf')",
        "call('HSET', 'meta', 'passed', 'nan')",
        "call('HINCRBY', 'meta', 'passed', 1)",
    ] {
        let scene = Scene::new().await;
        scene.maintain().await;
        orphan(&scene);
        scene.run(damage);
        let store = &scene.worker.store;
        while store.maintain_every(INTERVAL, 100).await.unwrap() {}
        assert!(is_ended(&scene).await, "{damage}");
    }
}

/// The answer contains the damage that another worker's pass found.
#[tokio::test]
async fn a_skipped_pass_reports_damage() {
    needs_redis!();
    let scene = Scene::new().await;
    let other = scene.open().await;
    orphan(&scene);
    scene.maintain().await;
    scene.clock.advance(SECOND);
    assert!(!other.maintain_every(INTERVAL, 100).await.unwrap());
    let (rows, _) = other.damage().expect("damage");
    assert_eq!(rows, 1);
}

/// A pass examines a page of the sessions. The others must not wait for an interval each if most of them have ended.
#[tokio::test]
async fn sessions_that_have_ended_are_removed_page_after_page() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.maintain().await;
    scene.run(
        "local _, now = struct.unpack('>I6I6', call('HGET', 'meta', 'aged'))
        for number = 1, 1000 do
            local row = { 0, '', '', '', now, 'a-client', '', '', '2 a' }
            call('HSET', 'sessions', 'p' .. number, cmsgpack.pack(row))
        end",
    );
    scene.clock.advance(25 * HOUR);
    let store = &scene.worker.store;
    while store.maintain_every(INTERVAL, 100).await.unwrap() {}
    let left = scene.run("return call('HLEN', 'sessions')");
    let own = scene.run("return call('HEXISTS', 'sessions', 'p1')");
    assert_eq!((left, own), (redis::Value::Int(1), redis::Value::Int(0)));
}

#[tokio::test]
async fn a_changed_retention_needs_a_pass_at_once() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.maintain().await;
    orphan(&scene);
    let store = &scene.worker.store;
    store.set_retention(Retention::default()).await.unwrap();
    while store.maintain_every(INTERVAL, 100).await.unwrap() {}
    assert!(is_ended(&scene).await);
}
