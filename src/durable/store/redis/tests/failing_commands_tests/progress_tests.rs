//! Commands fail while progress is reported and removed.

use super::*;

impl Scene {
    async fn progress(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<ProgressState> {
        let ids = numbers.into_iter().map(id).collect();
        self.other.store.progress(ids).await.unwrap()
    }

    /// Leaves progress behind, as a script that has failed does.
    fn leave_progress(&self, number: u64) {
        self.run(&format!(
            "{ID} return call('HSET', 'progress', id({number}), string.rep('0', 16) .. string.rep('\\0', 6) .. '7')"
        ));
    }
}

#[tokio::test]
async fn reports_are_stored_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let epoch = scene.claim.epoch;
        // The worker does not hold the last task.
        let mut all = reports(epoch, [10, 11, 20].map(id));
        all.iter_mut().for_each(|it| it.progress.number = 2);
        let store = &scene.worker.store;
        let (refused, has_failed) = scene
            .send(trial, true, || store.report_progress(all.clone()))
            .await;
        assert_eq!(refused.unwrap(), [id(20)], "{trial:?}");
        let stored = [&all[0], &all[1]].map(|it| ProgressState::Alive(Some(it.progress.clone())));
        assert_eq!(scene.progress([10, 11]).await, stored, "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_new_task_never_has_the_progress_of_an_earlier_one() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.leave_progress(NEW);
        scene.leave_progress(NEW + 1);
        let request = scene
            .worker
            .new_enqueue([task(NEW), delayed(NEW + 1, SECOND)]);
        let send = || scene.worker.store.enqueue(Arc::clone(&request));
        let (stored, has_failed) = scene.send(trial, true, send).await;
        assert!(stored.is_ok(), "{trial:?}: {stored:?}");
        let none = [ProgressState::Alive(None), ProgressState::Alive(None)];
        assert_eq!(scene.progress([NEW, NEW + 1]).await, none, "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_replayed_task_never_has_the_progress_of_an_earlier_run() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.worker.turn(all_verdicts(&scene.claim), 0).await;
        scene.leave_progress(16);
        let store = &scene.worker.store;
        let replay = || store.replay_dead_letters(DeadFilter::ids([id(16)]));
        let (_, has_failed) = scene.send(trial, true, replay).await;
        let progress = scene.progress([16]).await;
        assert_eq!(progress, [ProgressState::Alive(None)], "{trial:?}");
        has_failed
    })
    .await;
}

/// A command that removes progress fails after the end of the task.
#[tokio::test]
async fn a_task_that_has_ended_never_has_progress() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let turn = scene.worker.new_turn(all_verdicts(&scene.claim), 0);
        let send = || scene.worker.store.turn(Arc::clone(&turn));
        let (_, has_failed) = scene.send(trial, true, send).await;
        let ended = [10, 12, 14, 15, 16, 17];
        let progress = scene.progress(ended).await;
        assert!(
            progress.iter().all(|it| *it == ProgressState::Ended),
            "{trial:?}: {progress:?}"
        );
        has_failed
    })
    .await;
}
