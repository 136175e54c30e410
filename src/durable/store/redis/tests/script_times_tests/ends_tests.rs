//! Many tasks that end or have ended: results, dead letters, cancelled and lost tasks.

use super::*;
use crate::durable::store::MAX_ERROR_BYTES;
use crate::durable::store::redis::batches::TASKS_PER_CHANGE;
use crate::durable::store::redis::reply;
use crate::durable::store::redis::scripts::Arguments;
use crate::durable::store::{MAX_BATCH_BYTES, MAX_PAYLOAD_BYTES};

#[tokio::test]
async fn large_results() {
    needs_redis!();
    in_short_scripts(async |scene| {
        scene.store(BATCH, task).await;
        for claim in scene.claim_all(16).await {
            let turned = scene
                .turn(verdicts(&claim, || Verdict::Done(vec![7; LARGE])), 0)
                .await;
            assert_eq!(turned.refused, []);
        }
        let ids: Vec<_> = (0..BATCH).map(id).collect();
        let seen = scene.other.store.status(ids.clone()).await.unwrap();
        let whole =
            |seen: &TaskState| matches!(seen, TaskState::Done(output) if output.len() == LARGE);
        assert!(seen.iter().all(whole));
        request_status_of_all(scene, &ids).await;
        remove_all(scene).await;
    })
    .await;
}

/// Each result fills an answer.
#[tokio::test]
async fn results_of_the_maximum_size() {
    needs_redis!();
    const TASKS: u64 = 40;
    in_short_scripts(async |scene| {
        scene.store(TASKS, task).await;
        for claim in scene.claim_all(1).await {
            let largest = || Verdict::Done(vec![7; MAX_PAYLOAD_BYTES]);
            scene.turn(verdicts(&claim, largest), 0).await;
        }
        let ids: Vec<_> = (0..TASKS).map(id).collect();
        request_status_of_all(scene, &ids).await;
        remove_all(scene).await;
    })
    .await;
}

/// Requests the status of tasks, script by script.
async fn request_status_of_all(scene: &mut Scene, ids: &[TaskId]) {
    let inner = &scene.other.store.inner;
    let mut from = 0;
    while from < ids.len() {
        let mut arguments = Arguments::default();
        arguments.push(&*inner.client_id);
        arguments.push_number(1);
        arguments.push_number(MAX_BATCH_BYTES);
        arguments.push_ids(&ids[from..]);
        let script = inner.run(&inner.scripts.status, 0, arguments);
        from += reply::states(scene.meter.measure(script).await.unwrap())
            .unwrap()
            .len();
    }
}

/// Removes all ends that are kept for an hour.
async fn remove_all(scene: &mut Scene) {
    let time = Duration::from_secs(2 * 3600);
    age(&scene.server, "default", &scene.clock, time);
    loop {
        let kept = scene.counts().await.kept;
        let maintain = scene.other.store.maintain(1_000);
        let is_more = scene.meter.measure(maintain).await.unwrap();
        let left = scene.counts().await.kept;
        if !is_more {
            assert_eq!(left, 0);
            return;
        }
        assert!(left < kept, "it gets nowhere");
    }
}

#[tokio::test]
async fn many_dead_letters_with_long_errors() {
    needs_redis!();
    in_short_scripts(async |scene| {
        scene.store(4 * BATCH, task).await;
        for claim in scene.claim_all(MAX_BATCH_TASKS).await {
            scene.turn(verdicts(&claim, dead(MAX_ERROR_BYTES)), 0).await;
        }
        let store = &scene.other.store;
        let dead_letters = store
            .dead_letters(DeadFilter::all(), usize::MAX)
            .await
            .unwrap();
        assert_eq!(dead_letters.len() as u64, 4 * BATCH);
        let mut ids: Vec<_> = dead_letters.iter().map(|it| it.id).collect();
        for ids in ids.chunks(100) {
            let dead_letters = store.dead_letters(DeadFilter::ids(ids.to_vec()), usize::MAX);
            assert_eq!(
                scene.meter.measure(dead_letters).await.unwrap().len(),
                ids.len()
            );
        }
        ids.sort_unstable();
        for (turn, ids) in ids.chunks(TASKS_PER_CHANGE).enumerate() {
            let mut arguments = Arguments::default();
            arguments.push(if turn % 2 == 0 { "replay" } else { "delete" });
            arguments.push_ids(ids);
            let script = store.inner.run(&store.inner.scripts.replay, 0, arguments);
            let found = scene.meter.measure(script).await.unwrap();
            let changed = vec![b'y'; TASKS_PER_CHANGE];
            assert_eq!(found, redis::Value::BulkString(changed));
        }
    })
    .await;
}

#[tokio::test]
async fn many_cancelled_tasks() {
    needs_redis!();
    in_short_scripts(async |scene| {
        scene.store(40 * BATCH, task).await;
        let ids: Vec<_> = (0..40 * BATCH).map(id).collect();
        for ids in ids.chunks(TASKS_PER_CHANGE) {
            let cancel = scene.other.store.cancel(ids.to_vec());
            assert_eq!(
                scene.meter.measure(cancel).await.unwrap(),
                TASKS_PER_CHANGE as u64
            );
        }
        while scene.turn(Vec::new(), MAX_BATCH_TASKS).await.more {}
        remove_all(scene).await;
    })
    .await;
}

/// All tasks are waiting except one, which is in no list.
#[tokio::test]
async fn a_census_of_many_tasks() {
    needs_redis!();
    const BATCHES: u64 = 160;
    in_short_scripts(async |scene| {
        scene.store(BATCHES * BATCH, task).await;
        scene.server.ask(&[
            "EVAL",
            "local function id(n) return string.rep('\\0', 12) .. struct.pack('>I4', n) end
            local row = redis.call('HGET', KEYS[1], id(0))
            return redis.call('HSET', KEYS[1], id(ARGV[1]), row)",
            "1",
            "throng:{default:0}:alive",
            &(BATCHES * BATCH).to_string(),
        ]);
        let mut passes = 1;
        let maintain = || scene.other.store.maintain(1_000);
        while scene.meter.measure(maintain()).await.unwrap() {
            passes += 1;
        }
        println!("{passes} passes");
        let ids = vec![id(0), id(BATCHES * BATCH)];
        let seen = scene.other.store.status(ids).await.unwrap();
        let reason = match seen[1] {
            TaskState::Dead { reason, .. } => Some(reason),
            _ => None,
        };
        assert_eq!(
            (&seen[0], reason),
            (&TaskState::Waiting, Some(DeadReason::Damaged))
        );
        // A pass reads two pages, which are two batches each. Three steps read all tasks; for those two that read a
        // hash, the pages of some servers are half as large.
        assert!(passes < 3 * BATCHES / 2, "{passes}");
    })
    .await;
}
