//! The content of the keys after the server's clock was set.

use super::scene::{HOUR, SECOND, Scene};
use super::*;

const STEP: Duration = Duration::from_secs(40 * 24 * 3600);

#[tokio::test]
async fn a_clock_that_is_set_forward_leaves_all_bins() {
    needs_redis!();
    let scene = Scene::new().await;
    end(&scene, 1).await;
    scene.clock.set_wall(scene.clock.wall() + STEP);
    scene.worker.store.maintain(100).await.unwrap();
    assert_eq!(bins(&scene), 1);
    // Otherwise, a new bin would be created for it.
    assert_eq!(scene.worker.store.damage(), None);
}

/// A bin is written as a whole whenever it grows.
#[tokio::test]
async fn each_request_has_its_own_bin_while_store_time_stands_still() {
    needs_redis!();
    const RESULTS: u64 = 40;
    let scene = Scene::new().await;
    scene.clock.set_wall(scene.clock.wall() - STEP);
    for number in 0..RESULTS {
        end(&scene, number).await;
        scene.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(bins(&scene), RESULTS);
    // Several bins are not damage, and all of them are removed in time.
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage(), None);
    age(&scene.server, &scene.namespace, &scene.clock, HOUR);
    scene.maintain().await;
    assert_eq!(bins(&scene), 0);
    assert_eq!(scene.worker.store.counts().await.unwrap().kept, 0);
}

#[tokio::test]
async fn a_lost_store_time_starts_again() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.run("call('HSET', 'meta', 'aged', 'unreadable')");
    end(&scene, 1).await;
    scene.maintain().await;
    scene.clock.advance(SECOND);
    scene.maintain().await;
    assert_eq!(
        status_of(&scene, 1).await,
        TaskState::Done(b"output".to_vec())
    );
    age(&scene.server, &scene.namespace, &scene.clock, HOUR);
    assert_eq!(status_of(&scene, 1).await, TaskState::Absent);
}

/// Such a row has the right length, and its times are possible.
#[tokio::test]
async fn a_damaged_store_time_removes_no_end() {
    needs_redis!();
    for (from, to) in [(1, 2), (2, 2), (1, 6), (7, 8)] {
        for byte in [0, 1, 255] {
            let scene = Scene::new().await;
            end(&scene, 1).await;
            scene.run(&format!(
                "local row = call('HGET', 'meta', 'aged')
                local some = string.rep(string.char({byte}), {to} - {from} + 1)
                call('HSET', 'meta', 'aged', string.sub(row, 1, {from} - 1) .. some .. string.sub(row, {to} + 1))"
            ));
            scene.maintain().await;
            let (_, last) = scene.worker.store.damage().expect("it is reported");
            assert!(last.contains("store time"), "{last}");
            let found = status_of(&scene, 1).await;
            assert_eq!(found, TaskState::Done(b"output".to_vec()), "{from} {byte}");
            age(&scene.server, &scene.namespace, &scene.clock, HOUR);
            assert_eq!(
                status_of(&scene, 1).await,
                TaskState::Absent,
                "{from} {byte}"
            );
        }
    }
}

async fn end(scene: &Scene, number: u64) {
    scene.worker.enqueue([task(number)]).await;
    let claim = scene.worker.claim(1).await;
    scene.worker.turn(done(&claim), 0).await;
}

async fn status_of(scene: &Scene, number: u64) -> TaskState {
    let states = scene.worker.store.status(vec![id(number)]).await;
    states.unwrap().remove(0)
}

fn bins(scene: &Scene) -> u64 {
    let bins = scene.run("return call('HLEN', 'expiry_bins')");
    redis::from_redis_value(bins).unwrap()
}
