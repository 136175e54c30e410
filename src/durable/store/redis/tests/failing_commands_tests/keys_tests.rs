//! Keys while commands fail: tasks get and free keys, and are replaced.

use super::super::keys_tests::replacing;
use super::*;
use crate::durable::Key;
use crate::durable::key::{Conflict, Enqueued, KeyConflict};
use crate::durable::store::suite::with_key;

/// Tasks with keys: two that wait, two that are delayed, and one that cannot be replaced.
fn holders() -> [NewTask; 5] {
    [
        replacing("stays", large(NEW)),
        replacing("is delayed", task(NEW + 1)),
        replacing("is later", delayed(NEW + 2, HOUR)),
        replacing("is due", task(NEW + 3)),
        with_key(Key::new("joined"), task(NEW + 4)),
    ]
}

/// Tasks that replace the holders, join one of them, or are stored.
fn others() -> [NewTask; 7] {
    let is_due = NewTask {
        delay: Duration::ZERO,
        ..large(NEW + 13)
    };
    [
        replacing("stays", task(NEW + 10)),
        replacing("is delayed", delayed(NEW + 11, SECOND)),
        replacing("is later", delayed(NEW + 12, 2 * SECOND)),
        replacing("is due", is_due),
        with_key(Key::new("joined"), task(NEW + 14)),
        replacing("new", task(NEW + 15)),
        replacing("new", large(NEW + 16)),
    ]
}

fn expected() -> Enqueued {
    let conflict = |position, holder, resolution| KeyConflict {
        position,
        holder: id(NEW + holder),
        resolution,
    };
    let conflicts = vec![
        conflict(0, 0, Conflict::Replace),
        conflict(1, 1, Conflict::Replace),
        conflict(2, 2, Conflict::Replace),
        conflict(3, 3, Conflict::Replace),
        conflict(4, 4, Conflict::Join),
        conflict(6, 15, Conflict::Replace),
    ];
    Enqueued { conflicts }
}

#[tokio::test]
async fn tasks_are_replaced_if_and_only_if_the_answer_says_so() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.other.store;
        scene.other.enqueue(holders()).await;
        // The task waited before it was delayed, so its list has an entry that claims skip.
        let is_due = [replacing("is due", delayed(NEW + 5, HOUR))];
        let delayed_again = store.enqueue(scene.other.new_enqueue(is_due)).await;
        assert_eq!(delayed_again.unwrap().conflicts.len(), 1);
        let request = scene.other.new_enqueue(others());
        let send = || store.enqueue(Arc::clone(&request));
        let (answer, has_failed) = scene.send(trial, false, send).await;
        let seen = store.status([0, 1, 2, 3, 15].map(|nth| id(NEW + nth)).into());
        let seen = seen.await.unwrap();
        let (waiting, delayed) = (TaskState::Waiting, TaskState::Delayed);
        match answer {
            Ok(answer) => {
                assert_eq!(answer, expected(), "{trial:?}");
                let states = [&waiting, &delayed, &delayed, &waiting, &waiting];
                assert!(seen.iter().eq(states), "{trial:?}: {seen:?}");
            }
            Err(failure) => {
                assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
                let absent = TaskState::Absent;
                let states = [&waiting, &waiting, &delayed, &delayed, &absent];
                assert!(seen.iter().eq(states), "{trial:?}: {seen:?}");
                scene.check(trial);
                let request = scene.other.new_enqueue(others());
                assert_eq!(store.enqueue(request).await.unwrap(), expected());
            }
        }
        scene.check(trial);
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_claim_frees_a_key_or_has_no_effect() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let until_started = || Key::new("started").until_started();
        let tasks = [
            with_key(until_started(), task(NEW)),
            with_key(Key::new("ended"), task(NEW + 1)),
        ];
        scene.other.enqueue(tasks).await;
        let request = scene.worker.new_turn(Vec::new(), 20);
        let store = &scene.worker.store;
        let send = || store.turn(Arc::clone(&request));
        // A turn that failed is not sent again, so nothing hides what it has left.
        let (_, has_failed) = scene.send(trial, false, send).await;
        scene.check(trial);
        let seen = store.status(vec![id(NEW)]).await.unwrap();
        let request = scene.other.new_enqueue([
            with_key(until_started(), task(NEW + 2)),
            with_key(Key::new("ended"), task(NEW + 3)),
        ]);
        let enqueued = store.enqueue(request).await.unwrap();
        let holders: Vec<_> = enqueued.conflicts.iter().map(|it| it.holder).collect();
        match seen[0] {
            TaskState::Running => assert_eq!(holders, [id(NEW + 1)], "{trial:?}"),
            _ => assert_eq!(holders, [id(NEW), id(NEW + 1)], "{trial:?}"),
        }
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_gets_its_key_again_or_stays_dead() {
    needs_redis!();
    for is_replay in [true, false] {
        for_each_command(async |scene, trial| {
            let store = &scene.other.store;
            let mail = Worker::of_names(store, &["mail"]).await;
            let keyed = |number| with_key(Key::new("key"), named(number, "mail"));
            let throttled = |number| {
                let key = Key::new("throttled").throttle(Duration::from_secs(3600));
                with_key(key, named(number, "mail"))
            };
            for new in [keyed(NEW), keyed(NEW + 1), throttled(NEW + 2)] {
                mail.enqueue([new]).await;
                let claim = loop {
                    if let Some(claim) = mail.turn(Vec::new(), 1).await.claim {
                        break claim;
                    }
                };
                mail.turn(dead(&claim, DeadReason::Fatal, "error"), 0).await;
            }
            let ids = [id(NEW), id(NEW + 1), id(NEW + 2)];
            let all = || DeadFilter::ids(ids);
            let (answer, has_failed) = match is_replay {
                true => {
                    scene
                        .send(trial, false, || store.replay_dead_letters(all()))
                        .await
                }
                false => {
                    scene
                        .send(trial, false, || store.delete_dead_letters(all()))
                        .await
                }
            };
            let seen = store.status(ids.to_vec()).await.unwrap();
            let is_dead = |it: &TaskState| matches!(it, TaskState::Dead { .. });
            match (answer, is_replay) {
                (Ok(_), true) => assert_eq!(seen[0], TaskState::Waiting, "{trial:?}"),
                (Ok(_), false) => assert_eq!(seen[0], TaskState::Absent, "{trial:?}"),
                (Err(_), _) => assert!(is_dead(&seen[0]), "{trial:?}: {seen:?}"),
            }
            let is_second_dead = seen[0] != TaskState::Absent;
            assert_eq!(is_dead(&seen[1]), is_second_dead, "{trial:?}: {seen:?}");
            scene.check(trial);
            let request = mail.new_enqueue([keyed(NEW + 3), throttled(NEW + 4)]);
            let enqueued = store.enqueue(request).await.unwrap();
            let joined = |position| enqueued.conflicts.iter().any(|it| it.position == position);
            assert_eq!(joined(0), seen[0] == TaskState::Waiting, "{trial:?}");
            assert_eq!(joined(1), seen[2] != TaskState::Absent, "{trial:?}");
            run_rest(&mail).await;
            has_failed
        })
        .await;
    }
}

#[tokio::test]
async fn a_task_that_is_not_done_after_all_keeps_its_key() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.other.store;
        let mail = Worker::of_names(store, &["mail"]).await;
        let keyed = |number| with_key(Key::new("key"), named(number, "mail"));
        mail.enqueue([named(NEW, "mail"), keyed(NEW + 1)]).await;
        let claim = claim_any(&mail).await;
        let request = mail.new_turn(done(&claim), 0);
        let send = || store.turn(Arc::clone(&request));
        // A turn that failed is not sent again, so nothing hides what it has left.
        let (_, has_failed) = scene.send(trial, false, send).await;
        scene.check(trial);
        let seen = store.status(vec![id(NEW + 1)]).await.unwrap();
        let enqueued = store.enqueue(mail.new_enqueue([keyed(NEW + 2)])).await;
        let is_joined = !enqueued.unwrap().conflicts.is_empty();
        assert_eq!(is_joined, seen[0] == TaskState::Running, "{trial:?}");
        mail.turn(done(&claim), 0).await;
        run_rest(&mail).await;
        has_failed
    })
    .await;
}

/// The task becomes a dead letter, or stays as it was.
#[tokio::test]
async fn a_damaged_task_keeps_its_key_until_it_has_ended() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.other.store;
        let keyed = |number, delay| with_key(Key::new("key"), delayed(number, delay));
        scene.other.enqueue([keyed(NEW, HOUR / 2)]).await;
        scene.run(&format!(
            "{ID} return call('HSET', 'delayed', id({NEW}), 'x')"
        ));
        scene.clock.advance(HOUR / 2);
        let worker = Worker::of(store).await;
        let request = worker.new_turn(Vec::new(), 0);
        let send = || store.turn(Arc::clone(&request));
        let (_, has_failed) = scene.send(trial, false, send).await;
        let seen = store.status(vec![id(NEW)]).await.unwrap();
        let request = worker.new_enqueue([keyed(NEW + 1, HOUR)]);
        let enqueued = store.enqueue(request).await.unwrap();
        let is_joined = !enqueued.conflicts.is_empty();
        let is_delayed = seen[0] == TaskState::Delayed;
        assert_eq!(is_joined, is_delayed, "{trial:?}: {seen:?}");
        if !is_delayed {
            // The last command removes the entry. If it fails, maintenance does.
            scene.run(&format!("{ID} return call('HDEL', 'delayed', id({NEW}))"));
        }
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_large_payload_is_replaced_by_another_if_and_only_if_the_answer_says_so() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.other.store;
        let filled_with = |byte, number| NewTask {
            payload: vec![byte; 2000],
            ..task(number)
        };
        let before = replacing("key", filled_with(1, NEW));
        scene.other.enqueue([before]).await;
        let new = replacing("key", filled_with(2, NEW + 1));
        let request = scene.other.new_enqueue([new]);
        let send = || store.enqueue(Arc::clone(&request));
        let (answer, has_failed) = scene.send(trial, false, send).await;
        let payload = scene.run(&format!(
            "{ID} return string.byte(call('HGET', 'payloads', id({NEW})))"
        ));
        let expected = if answer.is_ok() { 2 } else { 1 };
        assert_eq!(payload, redis::Value::Int(expected), "{trial:?}");
        has_failed
    })
    .await;
}

/// Claims as many tasks as there are, but at least one.
async fn claim_any(worker: &Worker) -> Claim {
    loop {
        if let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
            return claim;
        }
    }
}

/// Runs all tasks of a type that only this worker knows.
async fn run_rest(worker: &Worker) {
    while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
        worker.turn(done(&claim), 0).await;
    }
}
