//! Turns with much work.

use super::*;

fn retry() -> Verdict {
    Verdict::Retry {
        after: Duration::from_secs(1),
        error: "error".repeat(20),
        took: None,
    }
}

#[tokio::test]
async fn many_tasks_due_at_once() {
    needs_redis!();
    const TASKS: u64 = 10_240;
    in_short_scripts(async |scene| {
        let delay = Duration::from_secs(1);
        scene
            .store(TASKS, |number| NewTask {
                delay,
                ..task(number)
            })
            .await;
        scene.clock.advance(delay);
        let mut turns = 0;
        while scene.counts().await.running < TASKS {
            scene.turn(Vec::new(), MAX_BATCH_TASKS).await;
            turns += 1;
            assert!(turns <= TASKS / BATCH + 1);
        }
    })
    .await;
}

#[tokio::test]
async fn many_leases_that_end_at_once() {
    needs_redis!();
    const TASKS: u64 = 400 * BATCH;
    in_short_scripts(async |scene| {
        scene.store(TASKS, task).await;
        let claims = scene.claim_all(MAX_BATCH_TASKS).await;
        scene
            .worker
            .store
            .renew(claims.iter().map(|it| it.epoch).collect())
            .await
            .unwrap();
        scene.clock.advance(2 * LEASE);
        take_all_back(scene, claims.len() as u64).await;
        let counts = scene.counts().await;
        assert_eq!((counts.waiting, counts.crashed), (TASKS, TASKS));
    })
    .await;
}

#[tokio::test]
async fn a_turn_with_many_verdicts_and_a_large_claim() {
    needs_redis!();
    in_short_scripts(async |scene| {
        scene
            .store(16 * BATCH, |number| NewTask {
                payload: vec![7; 512],
                ..task(number)
            })
            .await;
        for first in (0..16 * BATCH).step_by(MAX_BATCH_TASKS) {
            let ids = (first..first + BATCH).map(id).collect();
            let status = scene.other.store.status(ids);
            scene.meter.measure(status).await.unwrap();
        }
        for round in 0..6 {
            let claim = scene.turn(Vec::new(), MAX_BATCH_TASKS).await.claim.unwrap();
            let verdicts_of_round = match round % 3 {
                0 => verdicts(&claim, retry),
                1 => verdicts(&claim, || Verdict::Release),
                _ => verdicts(&claim, dead(200)),
            };
            let turned = scene.turn(verdicts_of_round, MAX_BATCH_TASKS).await;
            assert_eq!(turned.refused, []);
            let verdicts_of_round =
                verdicts(&turned.claim.unwrap(), || Verdict::Done(vec![7; 4 << 10]));
            assert_eq!(scene.turn(verdicts_of_round, 0).await.refused, []);
            scene.clock.advance(Duration::from_secs(1));
        }
    })
    .await;
}

/// One turn reaps, makes tasks due, applies verdicts, and claims.
#[tokio::test]
async fn a_turn_with_every_kind_of_work() {
    needs_redis!();
    in_short_scripts(async |scene| {
        let batch = |number: u64, delay: u64| NewTask {
            delay: Duration::from_secs(delay),
            ..task(number)
        };
        scene.store(4 * BATCH, |number| batch(number, 0)).await;
        let late = scene.claim_all(MAX_BATCH_TASKS - 1).await;
        scene
            .worker
            .store
            .renew(late.iter().map(|it| it.epoch).collect())
            .await
            .unwrap();
        scene.clock.advance(LEASE);
        scene.turn(Vec::new(), 0).await;
        scene
            .store(6 * BATCH, |number| {
                batch(10_000 + number, 60 * (number % 2))
            })
            .await;
        let claim = scene.turn(Vec::new(), MAX_BATCH_TASKS).await.claim.unwrap();
        scene.clock.advance(Duration::from_secs(60));
        let turned = scene.turn(verdicts(&claim, retry), MAX_BATCH_TASKS).await;
        assert_eq!(turned.claim.unwrap().tasks.len(), MAX_BATCH_TASKS);
    })
    .await;
}

#[tokio::test]
async fn large_payloads() {
    needs_redis!();
    in_short_scripts(async |scene| {
        for number in 0..16 {
            let new = |of: u64| NewTask {
                payload: vec![7; LARGE],
                ..task(16 * number + of)
            };
            let stored = scene.worker.enqueue((0..15).map(new));
            scene.meter.measure(stored).await;
        }
        let mut claimed = 0;
        while let Some(claim) = scene.turn(Vec::new(), MAX_BATCH_TASKS).await.claim {
            claimed += claim.tasks.len();
            scene.turn(done(&claim), 0).await;
        }
        assert_eq!(claimed, 240);
    })
    .await;
}

/// A worker claims one quarantined task, and passes over the others.
#[tokio::test]
async fn many_quarantined_tasks() {
    needs_redis!();
    in_short_scripts(async |scene| {
        scene
            .store(20 * BATCH, |number| NewTask {
                max_crashes: 2,
                ..task(number)
            })
            .await;
        let claims = scene.claim_all(MAX_BATCH_TASKS).await;
        scene
            .worker
            .store
            .renew(claims.iter().map(|it| it.epoch).collect())
            .await
            .unwrap();
        scene.clock.advance(2 * LEASE);
        take_all_back(scene, claims.len() as u64).await;
        for _ in 0..5 {
            let claim = scene.turn(Vec::new(), MAX_BATCH_TASKS).await.claim.unwrap();
            assert_eq!(claim.tasks.len(), 1);
            scene.turn(done(&claim), 0).await;
        }
    })
    .await;
}
