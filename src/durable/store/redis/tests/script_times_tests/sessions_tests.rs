//! Many sessions, and sessions with many claims.

use super::super::workers_tests::carded;
use super::*;
use crate::durable::store::redis::renew::CLAIMS_PER_RENEWAL;
use crate::durable::store::redis::reply;
use crate::durable::store::redis::scripts::Arguments;

#[tokio::test]
async fn many_claims_of_a_session_that_is_closed() {
    needs_redis!();
    const CLAIMS: u64 = 10_000;
    in_short_scripts(async |scene| {
        scene.store(CLAIMS, task).await;
        let claims = scene.claim_all(1).await;
        assert_eq!(claims.len() as u64, CLAIMS);
        close(scene).await;
        // The tasks of the session are requeued in parts.
        let mut turns = 0;
        while scene.counts().await.running > 0 {
            scene.turn(Vec::new(), 0).await;
            turns += 1;
            assert!(turns <= CLAIMS / 50, "they are still held");
        }
        let refused = scene.turn(done(&claims[0]), 0).await.refused;
        assert_eq!(refused, [claims[0].tasks[0].id]);
        let counts = scene.counts().await;
        assert_eq!((counts.crashed, counts.lost), (CLAIMS, 0));
    })
    .await;
}

/// Closes the first worker's session, script by script.
async fn close(scene: &mut Scene) {
    let inner = &scene.worker.store.inner;
    let mut cursor = b"0".to_vec();
    while !cursor.is_empty() {
        let mut arguments = Arguments::default();
        arguments.push_number(scene.worker.session);
        arguments.push(&*inner.client_id);
        arguments.push(cursor);
        let script = inner.run(&inner.scripts.close, 0, arguments);
        cursor = reply::bytes(scene.meter.measure(script).await.unwrap()).unwrap();
    }
}

/// The session of a killed producer stays for a day.
#[tokio::test]
async fn many_sessions() {
    needs_redis!();
    const SESSIONS: u64 = 10_000;
    in_short_scripts(async |scene| {
        scene.server.ask(&[
            "EVAL",
            "local now = redis.call('HGET', KEYS[1] .. 'meta', 'aged')
            now = select(2, struct.unpack('>I6I6', now))
            for number = 1, tonumber(ARGV[1]) do
                local row = { 0, '', '', '', now, 'a-client', '', '', '2 a' }
                redis.call('HSET', KEYS[1] .. 'sessions', 'p' .. number, cmsgpack.pack(row))
            end",
            "1",
            "throng:{default:0}:",
            &SESSIONS.to_string(),
        ]);
        let mut opened = Vec::new();
        for pass in 0..SESSIONS / 32 {
            let maintain = scene.other.store.maintain(100);
            scene.meter.measure(maintain).await.unwrap();
            // The round has passed most of the sessions.
            if pass == SESSIONS / 64 * 7 / 8 {
                for name in ["a", "b", "c", "d"] {
                    opened.push(Worker::of_names(&scene.other.store, &[name]).await);
                }
            }
        }
        let counts = scene.other.store.counts();
        scene.meter.measure(counts).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_diagnosis_of_many_types_and_workers() {
    needs_redis!();
    in_short_scripts(async |scene| {
        let store = &scene.worker.store;
        for _ in 0..300 {
            store.open_session_with(carded("q")).await.unwrap();
        }
        let of_type = |number| NewTask {
            name: format!("type {number}").into(),
            ..task(number)
        };
        scene.store(4 * BATCH, of_type).await;
        let diagnosed = scene.meter.measure(scene.other.store.diagnose()).await;
        let diagnosed = diagnosed.unwrap().partitions.remove(0);
        assert_eq!(diagnosed.unclaimed.len(), 100);
    })
    .await;
}

#[tokio::test]
async fn renewals_of_many_claims_with_some_cancelled_tasks() {
    needs_redis!();
    in_short_scripts(async |scene| renew_with_cancelled(scene, 99).await).await;
}

#[tokio::test]
async fn renewals_of_many_claims_with_mostly_cancelled_tasks() {
    needs_redis!();
    in_short_scripts(async |scene| renew_with_cancelled(scene, 2).await).await;
}

/// Cancels one of every `one_of` running tasks, and renews all claims.
async fn renew_with_cancelled(scene: &mut Scene, one_of: usize) {
    scene.store(64 * BATCH, task).await;
    let claims = scene.claim_all(MAX_BATCH_TASKS).await;
    let cancelled: Vec<_> = (0..64 * BATCH).step_by(one_of).map(id).collect();
    let found = scene.other.store.cancel(cancelled.clone()).await.unwrap();
    assert_eq!(found, cancelled.len() as u64);
    let mut cancelled_ids = Vec::new();
    for claims in claims.chunks(CLAIMS_PER_RENEWAL) {
        let epochs = claims.iter().map(|it| it.epoch).collect();
        let renewed = scene.meter.measure(scene.worker.store.renew(epochs)).await;
        let renewed = renewed.unwrap();
        assert!(renewed.lost.is_empty());
        cancelled_ids.extend(renewed.cancelled);
    }
    cancelled_ids.sort_unstable();
    assert_eq!(cancelled_ids, cancelled);
}

/// Each running task has its own claim. The store also keeps the results of the same number of other tasks.
#[tokio::test]
async fn maintenance_with_many_claims_and_results() {
    needs_redis!();
    const CLAIMS: u64 = 500;
    in_short_scripts(async |scene| {
        scene.store(CLAIMS, task).await;
        for claim in scene.claim_all(MAX_BATCH_TASKS).await {
            scene.turn(done(&claim), 0).await;
        }
        scene.store(CLAIMS, |number| task(CLAIMS + number)).await;
        scene.claim_all(1).await;
        // The server compiles the script.
        scene.worker.store.maintain(1_000).await.unwrap();
        scene.meter.taken.clear();
        for _ in 0..20 {
            let pass = scene.worker.store.maintain(1_000);
            scene.meter.measure(pass).await.unwrap();
        }
    })
    .await;
}
