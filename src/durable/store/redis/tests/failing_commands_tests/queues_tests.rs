//! Commands fail while tasks of a queue start and stop, and while the queue changes.

use super::*;
use crate::durable::queue::{QueueSettings, Rate};
use crate::durable::store::QueueChange;

/// A worker of a queue with limits, in which three tasks run and others of two priorities wait.
async fn queue_in(scene: &Scene) -> (Worker, Claim) {
    let worker = Worker::of_queue(&scene.worker.store, "q").await;
    let settings = QueueSettings::new()
        .max_running(5)
        .rate(Rate::per_hour(60).burst(4));
    let change = QueueChange::Settings(settings);
    let changed = worker.store.change_queue(queue_name("q"), change).await;
    assert!(changed.unwrap());
    let low = (NEW + 3..NEW + 6).map(|number| NewTask {
        priority: Priority::Low,
        ..queued(number, "q")
    });
    let all = (NEW..NEW + 3).map(|number| queued(number, "q")).chain(low);
    worker.enqueue(all).await;
    let claim = worker.claim(3).await;
    (worker, claim)
}

/// Runs the remaining tasks of the queue.
async fn finish(worker: &Worker, scene: &Scene, trial: Trial) {
    for _ in 0..20 {
        while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
            worker.turn(done(&claim), 0).await;
        }
        let info = worker.store.queue(queue_name("q")).await.unwrap();
        if info.waiting + info.running == 0 {
            return;
        }
        // One task a minute may start.
        scene.clock.advance(Duration::from_secs(60));
    }
    panic!("the queue does not come to an end: {trial:?}");
}

#[tokio::test]
async fn a_claim_from_a_queue_takes_permits_or_none() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = queue_in(scene).await;
        let request = worker.new_turn(Vec::new(), 9);
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.turn(Arc::clone(&request)))
            .await;
        // One of the four starts that the rate allows is left.
        let claimed = answer.unwrap().claim.expect("there is a task");
        assert_eq!(claimed.tasks.len(), 1, "{trial:?}");
        scene.check(trial);
        worker.turn(done(&claim), 0).await;
        worker.turn(done(&claimed), 0).await;
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn verdicts_give_permits_back_once() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = queue_in(scene).await;
        let verdicts = vec![Verdicts {
            epoch: claim.epoch,
            tasks: vec![
                (claim.tasks[0].id, Verdict::Done(Vec::new())),
                (claim.tasks[1].id, Verdict::Release),
                (
                    claim.tasks[2].id,
                    Verdict::Retry {
                        after: SECOND,
                        error: "again".into(),
                        took: None,
                    },
                ),
            ],
        }];
        let request = worker.new_turn(verdicts, 0);
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.turn(Arc::clone(&request)))
            .await;
        answer.unwrap();
        let first = worker.store.status(vec![claim.tasks[0].id]).await;
        assert_eq!(first.unwrap(), [TaskState::Done(Vec::new())], "{trial:?}");
        let info = worker.store.queue(queue_name("q")).await.unwrap();
        assert_eq!((info.running, info.waiting), (0, 4), "{trial:?}");
        scene.check(trial);
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_gives_its_permits_back() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, _) = queue_in(scene).await;
        let close = || worker.store.close_session(worker.session);
        let (answer, has_failed) = scene.send(trial, true, close).await;
        answer.unwrap();
        // Repairs the routes if their change has stopped half-way.
        while worker.store.maintain(100).await.unwrap() {}
        let next = Worker::of_queue(&worker.store, "q").await;
        scene.check(trial);
        let info = worker.store.queue(queue_name("q")).await.unwrap();
        assert_eq!((info.running, info.waiting), (0, 6), "{trial:?}");
        finish(&next, scene, trial).await;
        has_failed
    })
    .await;
}

/// A request to change a queue that fails has changed nothing, or is sent again.
#[tokio::test]
async fn a_queue_changes_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = queue_in(scene).await;
        let settings = QueueSettings::new().max_running(4).revision(7);
        let change = || {
            let change = QueueChange::Settings(settings);
            worker.store.change_queue(queue_name("q"), change)
        };
        let (answer, has_failed) = scene.send(trial, true, change).await;
        assert!(answer.unwrap(), "{trial:?}");
        let info = worker.store.queue(queue_name("q")).await.unwrap();
        assert_eq!(info.settings, settings, "{trial:?}");
        assert_eq!(worker.claim(9).await.tasks.len(), 1, "{trial:?}");
        worker.turn(done(&claim), 0).await;
        scene.clock.advance(4 * LEASE);
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}
