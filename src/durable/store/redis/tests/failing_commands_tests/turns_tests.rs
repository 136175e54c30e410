//! Commands fail during turns.

use super::*;
use crate::durable::AttemptError;

#[tokio::test]
async fn a_turn_applies_each_verdict_or_refuses_it() {
    needs_redis!();
    for_each_command(take_verdicts).await;
}

#[tokio::test]
async fn a_turn_applies_each_verdict_or_refuses_it_also_in_a_census() {
    needs_redis!();
    for_each_command_in_a_census(take_verdicts).await;
}

async fn take_verdicts(scene: &Scene, trial: Trial) -> bool {
    let store = &scene.worker.store;
    let request = scene.worker.new_turn(all_verdicts(&scene.claim), 4);
    let (answer, has_failed) = scene
        .send(trial, true, || store.turn(Arc::clone(&request)))
        .await;
    assert!(answer.is_ok(), "{trial:?}: {answer:?}");
    let ids: Vec<_> = [10, 14, 11, 12, 16].map(id).into();
    let seen = store.status(ids).await.unwrap();
    assert_eq!(seen[0], TaskState::Done(b"ten".to_vec()), "{trial:?}");
    assert_eq!(seen[1], TaskState::Absent, "{trial:?}");
    let errors = |errors: Vec<AttemptError>| errors.into_iter().map(|it| it.error);
    for (number, expected) in [(11, &["again"][..]), (17, &[]), (18, &["before", "again"])] {
        let found: Vec<_> = errors(store.errors(id(number)).await.unwrap()).collect();
        assert_eq!(found, expected, "{trial:?}: {number}");
    }
    assert_eq!(seen[2], TaskState::Delayed, "{trial:?}");
    assert_eq!(seen[3], TaskState::Cancelled, "{trial:?}");
    assert!(
        matches!(seen[4], TaskState::Dead { .. }),
        "{trial:?}: {seen:?}"
    );
    has_failed
}

/// The completed tasks of small claims are written together.
#[tokio::test]
async fn verdicts_of_several_claims_are_applied() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let mut all = Vec::new();
        for _ in 0..3 {
            let claim = scene.worker.turn(Vec::new(), 1).await.claim.unwrap();
            all.extend(verdicts(&claim, || Verdict::Done(b"end".to_vec())));
        }
        let store = &scene.worker.store;
        let request = scene.worker.new_turn(all.clone(), 0);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        assert_eq!(turned.refused, [], "{trial:?}");
        let ids = all.iter().flat_map(|it| &it.tasks).map(|it| it.0).collect();
        for state in store.status(ids).await.unwrap() {
            assert_eq!(state, TaskState::Done(b"end".to_vec()), "{trial:?}");
        }
        has_failed
    })
    .await;
}

/// One of the lists to which tasks are moved already has a released task.
#[tokio::test]
async fn a_list_is_drained_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let set = TypeSet::of_names(["job"]);
        store.open_session(set.ok()).await.unwrap();
        scene.other.enqueue([named(NEW, "other")]).await;
        let request = scene.worker.new_turn(all_verdicts(&scene.claim), 0);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        assert!(answer.is_ok(), "{trial:?}: {answer:?}");
        has_failed
    })
    .await;
}

/// The turn reaps the late claim, makes tasks due, and claims some.
#[tokio::test]
async fn a_turn_that_reaps_and_claims_loses_no_task() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.clock.advance(LEASE);
        scene
            .worker
            .store
            .renew(vec![scene.claim.epoch])
            .await
            .unwrap();
        scene.worker.turn(Vec::new(), 0).await;
        scene.clock.advance(LEASE / 2);
        scene
            .worker
            .store
            .renew(vec![scene.claim.epoch])
            .await
            .unwrap();
        let store = &scene.worker.store;
        let request = scene.worker.new_turn(Vec::new(), 3);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        let held = scene.worker.store.renew(vec![scene.late.epoch]).await;
        let claim = turned.claim.map(|claim| claim.tasks.len());
        assert!(
            claim.is_some_and(|tasks| tasks <= 3),
            "{trial:?}: {claim:?}"
        );
        held.unwrap();
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_passes_over_cancelled_and_quarantined_tasks_loses_none() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        // The tasks of the late claim are requeued with a crash.
        let (store, epoch) = (&scene.other.store, scene.late.epoch);
        store.renew(vec![epoch]).await.unwrap();
        store.close_session(scene.other.session).await.unwrap();
        store.cancel(vec![id(3), id(20)]).await.unwrap();
        let request = scene.worker.new_turn(Vec::new(), 4);
        let store = &scene.worker.store;
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        assert!(turned.claim.is_some(), "{trial:?}");
        has_failed
    })
    .await;
}

/// A connection advances the epochs before its first turn, by a script of three commands.
#[tokio::test]
async fn epochs_are_advanced_as_a_whole_before_a_claim() {
    needs_redis!();
    const FORGET: &str = "
redis.call('HSET', ARGV[1] .. 'meta', 'history', 'of another server')
return struct.unpack('>I7', redis.call('HGET', ARGV[1] .. 'meta', 'epoch'), 8)";
    for_each_command(async |scene, trial| {
        let redis::Value::Int(ceiling) = scene.run(FORGET) else {
            panic!("there is no ceiling");
        };
        let time = Time::failing(scene.clock.clone(), Arc::clone(&scene.fault));
        let worker = connect(&scene.server, &scene.namespace, time).await;
        let request = worker.new_turn(Vec::new(), 3);
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        let epoch = turned.claim.expect("there is something to claim").epoch;
        let own = crate::durable::store::redis::partitions::own(epoch);
        assert!(own > ceiling as Epoch, "{trial:?}: {own} {ceiling}");
        has_failed && trial.fault.at < 4
    })
    .await;
}
