//! Many ends that are in excess all at once.

use super::*;
use crate::durable::Retention;

/// Another script waits for at most this time.
const SHORT: Duration = Duration::from_millis(5);
/// The number of things that one request of an executor removes.
const BUDGET: usize = 1_000;

/// Stores tasks, and ends them in this way.
async fn end(scene: &mut Scene, tasks: u64, verdict: impl Fn() -> Verdict) {
    scene.store(tasks, task).await;
    for claim in scene.claim_all(MAX_BATCH_TASKS).await {
        let turned = scene.turn(verdicts(&claim, &verdict), 0).await;
        assert_eq!(turned.refused, []);
    }
    // The server compiles a script when it first gets it.
    scene.other.store.maintain(0).await.unwrap();
    scene.meter.taken.clear();
}

/// Maintains the store until nothing is in excess, while a worker makes turns. Returns the number of passes.
async fn remove_all(scene: &mut Scene, left: impl Fn(crate::durable::Counts) -> u64) -> u64 {
    for passes in 1.. {
        let before = left(scene.counts().await);
        let maintain = scene.other.store.maintain(BUDGET);
        let is_more = scene.meter.measure(maintain).await.unwrap();
        let after = left(scene.counts().await);
        assert!(before - after <= BUDGET as u64, "{before} {after}");
        let number = 1_000_000 + passes;
        let stored = scene.worker.enqueue([task(number)]);
        scene.meter.measure(stored).await;
        let claim = scene.turn(Vec::new(), 1).await.claim.unwrap();
        scene.turn(verdicts(&claim, || Verdict::Release), 0).await;
        if after == 0 && !is_more {
            return passes;
        }
        assert!(is_more, "{after} are left");
    }
    unreachable!("it comes to an end")
}

#[tokio::test]
async fn turns_are_short_while_all_dead_letters_are_removed() {
    needs_redis!();
    in_scripts_of(SHORT, async |scene| {
        end(scene, 40 * BATCH, dead(200)).await;
        let none = Retention::default().dead_most(0);
        let set = scene.other.store.set_retention(none);
        scene.meter.measure(set).await.unwrap();
        let passes = remove_all(scene, |counts| counts.dead).await;
        assert!(passes < 40, "{passes}");
    })
    .await;
}

#[tokio::test]
async fn turns_are_short_while_all_ends_are_removed() {
    needs_redis!();
    in_scripts_of(SHORT, async |scene| {
        end(scene, 40 * BATCH, || Verdict::Done(vec![7; 200])).await;
        let none = Retention::default().kept_most(0);
        let set = scene.other.store.set_retention(none);
        scene.meter.measure(set).await.unwrap();
        let passes = remove_all(scene, |counts| counts.kept).await;
        assert!(passes < 40, "{passes}");
    })
    .await;
}
