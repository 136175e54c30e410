//! The workers of a store share the passes of maintenance.

use super::scene::{SECOND, Scene};
use super::*;

const INTERVAL: Duration = Duration::from_secs(15);

/// Creates a task that only a pass ends.
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

/// The pages of a census are passes of which only the last finds nothing more to do.
#[tokio::test]
async fn others_go_on_with_what_a_pass_has_left() {
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
    assert!(passes > 2, "the census has several pages");
    assert!(is_ended(&scene).await);
}

/// The clock of a server was set back, or the time of the last pass is damaged.
#[tokio::test]
async fn a_pass_that_seems_to_be_in_the_future_prevents_none() {
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

/// A worker whose passes are skipped hears of the damage that another has found.
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
