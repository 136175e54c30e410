//! Commands fail while tasks are cancelled, and dead letters are replayed or deleted.

use super::*;

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
