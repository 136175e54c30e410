//! Commands fail while tasks are cancelled, made due, or moved, and while dead letters are replayed or deleted.

use super::super::keys_tests::replacing;
use super::*;
use crate::durable::store::suite::changes::moves_tests::all_to;
use crate::durable::store::{Change, ChangeAnswer};

#[tokio::test]
async fn tasks_are_cancelled_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let ids: Vec<_> = [10, 19, 20, 22, 24, 30, 77].map(id).into();
        let requests = || scene.ask::<usize>(&["HLEN", &scene.key("cancel")]);
        let before = requests();
        let (answer, has_failed) = scene.send(trial, false, || store.cancel(ids.clone())).await;
        let seen = store.status(ids.clone()).await.unwrap();
        let errors = store.errors(id(19)).await.unwrap().len();
        assert_eq!(errors, usize::from(answer.is_err()), "{trial:?}");
        let cancelled = seen
            .iter()
            .filter(|it| **it == TaskState::Cancelled)
            .count();
        match answer {
            Ok(_) => assert_eq!(cancelled, 5, "{trial:?}: {seen:?}"),
            Err(failure) => {
                assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
                assert_eq!(cancelled, 0, "{trial:?}: {seen:?}");
                assert_eq!(requests(), before, "{trial:?}");
            }
        }
        has_failed
    })
    .await;
}

#[tokio::test]
async fn dead_letters_are_replayed_and_deleted_as_a_whole() {
    needs_redis!();
    for is_replay in [true, false] {
        for_each_command(async |scene, trial| {
            let store = &scene.worker.store;
            scene.worker.turn(all_verdicts(&scene.claim), 0).await;
            let all = || DeadFilter::ids([id(16)]);
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
            let seen = store.status(vec![id(16)]).await.unwrap();
            match (answer, is_replay) {
                (Ok(_), true) => assert_eq!(seen, [TaskState::Waiting], "{trial:?}"),
                (Ok(_), false) => assert_eq!(seen, [TaskState::Absent], "{trial:?}"),
                (Err(_), _) => assert!(
                    matches!(seen[0], TaskState::Dead { .. }),
                    "{trial:?}: {seen:?}"
                ),
            }
            has_failed
        })
        .await;
    }
}

#[tokio::test]
async fn tasks_are_made_due_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        // A group, a key that has a copy of the entry, and a task that has failed.
        let others = [
            replacing("key", delayed(NEW, HOUR)),
            NewTask {
                delay: HOUR,
                ..grouped(NEW + 1, "q", "g")
            },
        ];
        scene.other.enqueue(others).await;
        let ids = [30, 19, NEW, NEW + 1, 31].map(id).to_vec();
        let run_now = || store.change(ids.clone(), Change::RunNow);
        let (answer, has_failed) = scene.send(trial, false, run_now).await;
        let seen = store.status(ids.clone()).await.unwrap();
        match answer {
            Ok(answers) => {
                // If the answer was lost, they may have been made due when the request was sent first.
                let is_due = |it: &ChangeAnswer| {
                    [ChangeAnswer::Changed, ChangeAnswer::OtherStatus].contains(it)
                };
                assert!(answers.iter().all(is_due), "{trial:?}: {answers:?}");
                assert!(seen.iter().all(|it| *it == TaskState::Waiting), "{trial:?}");
            }
            Err(failure) => {
                assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
                assert!(seen.iter().all(|it| *it == TaskState::Delayed), "{trial:?}");
            }
        }
        scene.check(trial);
        run_now().await.unwrap();
        finish_queue(scene, trial).await;
        has_failed
    })
    .await;
}

/// Runs the tasks of the queue.
async fn finish_queue(scene: &Scene, trial: Trial) {
    let worker = Worker::of_queue(&scene.worker.store, "q").await;
    while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
        assert_eq!(worker.turn(done(&claim), 0).await.refused, [], "{trial:?}");
    }
}

/// Waiting and delayed tasks move in scripts of their own.
#[tokio::test]
async fn tasks_move_as_a_whole() {
    needs_redis!();
    for (ids, number) in [([20, 22, 24], 3), ([30, 19, 31], 0)] {
        for_each_command(async |scene, trial| {
            let store = &scene.worker.store;
            let _worker = Worker::of_queue(store, "q").await;
            let ids = ids.map(id).to_vec();
            let in_queue = async |number| {
                let seen = store.status(ids.clone()).await.unwrap();
                let waiting = seen.iter().filter(|it| **it == TaskState::Waiting).count();
                let info = store.queue(queue_name("q")).await.unwrap();
                (waiting, info.waiting) == (number, number as u64)
            };
            let move_to = || store.change(ids.clone(), Change::MoveTo(queue_name("q")));
            let (answer, has_failed) = scene.send(trial, false, move_to).await;
            match answer {
                Ok(answers) => {
                    let is_moved = |it: &ChangeAnswer| {
                        [ChangeAnswer::Changed, ChangeAnswer::Same].contains(it)
                    };
                    assert!(answers.iter().all(is_moved), "{trial:?}: {answers:?}");
                    assert!(in_queue(number).await, "{trial:?}");
                }
                Err(failure) => {
                    assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
                    let info = store.queue(queue_name("q")).await.unwrap();
                    assert_eq!(info.waiting, 0, "{trial:?}");
                }
            }
            scene.check(trial);
            let to_default = Change::MoveTo(QueueName::DEFAULT);
            let back = store.change(ids.clone(), to_default).await.unwrap();
            let is_failed = |it: &ChangeAnswer| *it == ChangeAnswer::OtherStatus;
            assert!(!back.iter().any(is_failed), "{trial:?}: {back:?}");
            has_failed
        })
        .await;
    }
}

#[tokio::test]
async fn tasks_of_groups_move_as_a_whole_in_a_census() {
    needs_redis!();
    for_each_command_in_a_census(async |scene, trial| {
        let store = &scene.worker.store;
        let some = [
            grouped(NEW, "q", "a"),
            grouped(NEW + 1, "q", "b"),
            grouped(NEW + 2, "q", "a"),
        ];
        scene.other.enqueue(some).await;
        let ids = [NEW, NEW + 2].map(id).to_vec();
        let move_to = || store.change(ids.clone(), Change::MoveTo(queue_name("r")));
        let (answer, has_failed) = scene.send(trial, true, move_to).await;
        assert_eq!(answer.unwrap(), [ChangeAnswer::Changed; 2], "{trial:?}");
        let mut ran = 0;
        for queue in ["q", "r"] {
            let worker = Worker::of_queue(store, queue).await;
            while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
                ran += claim.tasks.len();
                assert_eq!(worker.turn(done(&claim), 0).await.refused, [], "{trial:?}");
            }
        }
        assert_eq!(ran, 3, "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn waiting_tasks_of_a_list_move_as_a_whole() {
    needs_redis!();
    for_each_command_in_a_census(async |scene, trial| {
        let store = &scene.worker.store;
        let _worker = Worker::of_queue(store, "q").await;
        let waiting = store.counts().await.unwrap().waiting;
        let request = all_to("q");
        let move_part = || store.move_waiting(request.clone());
        let (answer, has_failed) = scene.send(trial, true, move_part).await;
        let part = answer.unwrap().expect("it is the first part");
        scene.check(trial);
        let info = store.queue(queue_name("q")).await.unwrap();
        assert!(info.waiting > 1, "{trial:?}: {part:?}");
        let counts = store.counts().await.unwrap();
        assert_eq!(counts.waiting, waiting, "{trial:?}");
        finish_queue(scene, trial).await;
        has_failed
    })
    .await;
}
