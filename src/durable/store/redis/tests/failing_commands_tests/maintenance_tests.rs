//! Commands fail during renewals, status requests and maintenance.

use super::*;

#[tokio::test]
async fn renewals_status_requests_and_maintenance_break_nothing() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let epoch = scene.claim.epoch;
        let (renewed, has_failed) = scene.send(trial, true, || store.renew(vec![epoch])).await;
        assert!(renewed.is_ok(), "{trial:?}: {renewed:?}");
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let ids: Vec<_> = [2, 10, 20, 21, 30].map(id).into();
        let (seen, has_failed) = scene.send(trial, true, || store.status(ids.clone())).await;
        assert!(seen.is_ok(), "{trial:?}: {seen:?}");
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        scene.worker.turn(all_verdicts(&scene.claim), 0).await;
        age(
            &scene.server,
            &scene.namespace,
            &scene.clock,
            40 * 24 * HOUR,
        );
        let store = &scene.worker.store;
        let (more, has_failed) = scene.send(trial, true, || store.maintain(100)).await;
        assert!(more.is_ok(), "{trial:?}: {more:?}");
        has_failed
    })
    .await;
}

/// Creates orphans, with a tombstone and without one, waiting tasks without a row, one of which has a large payload, a lost
/// due time, a lost claim, and an unreadable row. Maintenance would remove the payload before the census finds its task.
const DAMAGE: &str = r"
local function id(n) return string.rep('\0', 15) .. string.char(n) end
local row = redis.call('HGET', ARGV[1] .. 'alive', id(20))
redis.call('HSET', ARGV[1] .. 'alive', id(90), row, id(91), 'x')
redis.call('HDEL', ARGV[1] .. 'alive', id(22), id(24))
redis.call('HSET', ARGV[1] .. 'tombstones', id(92) .. string.sub(row, 15, 22), 1)
redis.call('HINCRBY', ARGV[1] .. 'meta', 'tombstones', 1)
redis.call('ZREM', ARGV[1] .. 'due', id(31))
redis.call('DEL', ARGV[1] .. 'claims')
redis.call('HSET', ARGV[1] .. 'running', id(10), 'garbage')
return 0";

#[tokio::test]
async fn a_failed_census_is_repeated() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.run(DAMAGE);
        let store = &scene.worker.store;
        let (answer, has_failed) = scene.send(trial, true, || store.maintain(100)).await;
        assert!(answer.is_ok(), "{trial:?}: {answer:?}");
        for _ in 0..2 {
            while store.maintain(100).await.unwrap() {}
        }
        let seen = store.status([10, 90, 91].map(id).into()).await.unwrap();
        let is_damaged = |seen: &TaskState| matches!(seen, TaskState::Dead { reason, .. } if *reason == DeadReason::Damaged);
        assert!(seen.iter().all(is_damaged), "{trial:?}: {seen:?}");
        assert!(store.damage().is_some(), "{trial:?}");
        has_failed
    })
    .await;
}
