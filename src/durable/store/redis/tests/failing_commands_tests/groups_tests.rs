//! Commands fail while groups of a queue take turns, while they are held, and while their limit changes.

use super::*;
use crate::durable::Key;
use crate::durable::queue::{Groups, QueueSettings};
use crate::durable::store::QueueChange;
use crate::durable::store::suite::with_key;

const GROUPS: [&str; 3] = ["a", "b", "c"];

fn new_task(number: u64) -> NewTask {
    let group = GROUPS[number as usize % GROUPS.len()];
    grouped(number, "q", group)
}

async fn set(store: &RedisStore, groups: Groups) {
    let change = QueueChange::Settings(QueueSettings::new().grouped(groups));
    assert!(store.change_queue(queue_name("q"), change).await.unwrap());
}

/// A worker of a queue whose groups have a limit of 1. One task of each of two groups runs, and a third group is held.
async fn groups_in(scene: &Scene) -> (Worker, Claim) {
    let worker = Worker::of_queue(&scene.worker.store, "q").await;
    set(&worker.store, Groups::new().max_running(1)).await;
    worker.enqueue((NEW..NEW + 9).map(new_task)).await;
    worker.enqueue([queued(NEW + 9, "q")]).await;
    let claim = worker.claim(3).await;
    let held = Verdict::HoldGroup {
        wait: 5 * SECOND,
        then: Box::new(Verdict::Release),
    };
    let tasks = vec![(claim.tasks[2].id, held)];
    let epoch = claim.epoch;
    worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
    scene.check(NO_TRIAL);
    (worker, claim)
}

const NO_TRIAL: Trial = Trial {
    fault: InjectedFault {
        at: 0,
        is_after: false,
    },
    is_answer_lost: false,
};

/// Runs the remaining tasks of the queue. No key of a group is left.
async fn finish(worker: &Worker, scene: &Scene, trial: Trial) {
    for _ in 0..14 {
        while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
            scene.check(trial);
            worker.turn(done(&claim), 0).await;
        }
        let info = worker.store.queue(queue_name("q")).await.unwrap();
        if info.waiting + info.running == 0
            && worker.turn(Vec::new(), 9).await.next > Some(9 * SECOND)
        {
            for pattern in ["ready:*:?", "groups:ring:*", "groups:hold:*", "permits:*"] {
                let keys: Vec<String> = scene.ask(&["KEYS", &scene.key(pattern)]);
                assert!(keys.is_empty(), "{trial:?}: {keys:?}");
            }
            return;
        }
        scene.clock.advance(3 * SECOND);
    }
    panic!("the queue does not come to an end: {trial:?}");
}

#[tokio::test]
async fn tasks_of_groups_are_stored_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = groups_in(scene).await;
        let some = (NEW + 10..NEW + 16).map(new_task);
        let request = worker.new_enqueue(some.chain([grouped(NEW + 16, "q", "new")]));
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.enqueue(Arc::clone(&request)))
            .await;
        answer.unwrap();
        scene.check(trial);
        assert_eq!(waiting(&worker).await, 8 + 7, "{trial:?}");
        worker.turn(done(&claim), 0).await;
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}

async fn waiting(worker: &Worker) -> u64 {
    worker.store.queue(queue_name("q")).await.unwrap().waiting
}

/// Some of the tasks are cancelled, and a hold is over.
#[tokio::test]
async fn a_claim_from_groups_takes_turns_or_none() {
    needs_redis!();
    for cancelled in [&[][..], &[NEW + 3, NEW + 2]] {
        for_each_command(async |scene, trial| {
            let (worker, claim) = groups_in(scene).await;
            let cancelled: Vec<_> = cancelled.iter().map(|&number| id(number)).collect();
            worker.store.cancel(cancelled.clone()).await.unwrap();
            worker.turn(done(&claim), 0).await;
            scene.clock.advance(5 * SECOND);
            let request = worker.new_turn(Vec::new(), 9);
            let (answer, has_failed) = scene
                .send(trial, true, || worker.store.turn(Arc::clone(&request)))
                .await;
            let claimed = answer.unwrap().claim.expect("there is a task");
            // One of each group, and the one without a group.
            assert!(claimed.tasks.len() >= 3, "{trial:?}: {claimed:?}");
            scene.check(trial);
            worker.turn(done(&claimed), 0).await;
            finish(&worker, scene, trial).await;
            has_failed
        })
        .await;
    }
}

#[tokio::test]
async fn verdicts_free_permits_of_groups_and_hold_them_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = groups_in(scene).await;
        let then = Box::new(Verdict::Retry {
            after: SECOND,
            error: "429".into(),
            took: None,
        });
        let wait = 2 * SECOND;
        let tasks = vec![
            (claim.tasks[0].id, Verdict::Done(Vec::new())),
            (claim.tasks[1].id, Verdict::HoldGroup { wait, then }),
        ];
        let epoch = claim.epoch;
        let request = worker.new_turn(vec![Verdicts { epoch, tasks }], 0);
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.turn(Arc::clone(&request)))
            .await;
        answer.unwrap();
        scene.check(trial);
        let next = worker.claim(9).await;
        // Only one group is neither held nor full.
        assert_eq!(next.tasks.len(), 2, "{trial:?}: {next:?}");
        worker.turn(done(&next), 0).await;
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_limit_of_groups_changes_as_a_whole() {
    needs_redis!();
    for limits in [[2, 1], [1, 2]] {
        for_each_command(async |scene, trial| {
            let (worker, claim) = groups_in(scene).await;
            set(&worker.store, Groups::new().max_running(limits[0])).await;
            let groups = Groups::new().max_running(limits[1]);
            let change = QueueChange::Settings(QueueSettings::new().grouped(groups));
            let change = || worker.store.change_queue(queue_name("q"), change);
            let (answer, has_failed) = scene.send(trial, true, change).await;
            assert!(answer.unwrap(), "{trial:?}");
            scene.check(trial);
            worker.turn(done(&claim), 0).await;
            finish(&worker, scene, trial).await;
            has_failed
        })
        .await;
    }
}

/// A list is split, and its sublists drain.
#[tokio::test]
async fn sublists_drain_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = groups_in(scene).await;
        let other = |number| NewTask {
            name: "other".into(),
            ..new_task(number)
        };
        worker.enqueue((NEW + 10..NEW + 13).map(other)).await;
        let set = TypeSet::of_names(["other"]).expect("it is one name");
        let set = set.in_queue(queue_name("q"));
        let session = worker.store.open_session(Some(set)).await.unwrap();
        let request = worker.new_turn(Vec::new(), 9);
        let request = Arc::new(Turn {
            session,
            number: 1,
            ..(*request).clone()
        });
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.turn(Arc::clone(&request)))
            .await;
        let answer = answer.unwrap();
        scene.check(trial);
        for claim in answer.claim.iter().chain([&claim]) {
            worker.turn(done(claim), 0).await;
        }
        let close = worker.store.close_session(session).await;
        close.unwrap();
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_closed_session_gives_permits_of_groups_back() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, _) = groups_in(scene).await;
        let close = || worker.store.close_session(worker.session);
        let (answer, has_failed) = scene.send(trial, true, close).await;
        answer.unwrap();
        while worker.store.maintain(100).await.unwrap() {}
        let next = Worker::of_queue(&worker.store, "q").await;
        scene.check(trial);
        finish(&next, scene, trial).await;
        has_failed
    })
    .await;
}

/// The next pass restores what is lost if a command fails in this one.
#[tokio::test]
async fn lost_rows_of_groups_are_restored() {
    needs_redis!();
    let losses = ["groups", "groups:ring:*", "permits:q\0?"];
    // Each command fails after one of the losses, and after all of them in a long run.
    let step = if is_long() { 1 } else { losses.len() };
    for (nth, lost) in losses.into_iter().enumerate() {
        for_each_command_of((1 + nth % step..).step_by(step), async |scene, trial| {
            let (worker, claim) = groups_in(scene).await;
            let keys: Vec<String> = scene.ask(&["KEYS", &scene.key(lost)]);
            assert!(!keys.is_empty(), "{lost:?}");
            keys.iter().for_each(|key| scene.ask::<()>(&["DEL", key]));
            let maintain = || worker.store.maintain(1000);
            let (_, has_failed) = scene.send(trial, true, maintain).await;
            for _ in 0..5 {
                while worker.store.maintain(1000).await.unwrap() {}
            }
            scene.check(trial);
            assert_eq!(waiting(&worker).await, 8, "{lost:?} {trial:?}");
            worker.turn(done(&claim), 0).await;
            finish(&worker, scene, trial).await;
            has_failed
        })
        .await;
    }
}

/// Tasks of groups are replaced: one stays, one is the only one of its group and is postponed while another task of the group is stored,
/// one becomes ready, and one joins.
#[tokio::test]
async fn tasks_of_groups_are_replaced_if_and_only_if_the_answer_says_so() {
    needs_redis!();
    let keyed = |text: &str, group, number, delay| {
        let task = NewTask {
            delay,
            ..grouped(number, "q", group)
        };
        with_key(Key::new(text).replace(), task)
    };
    for_each_command(async |scene, trial| {
        let (worker, claim) = groups_in(scene).await;
        let holders = [
            keyed("stays", "a", NEW + 20, Duration::ZERO),
            keyed("is postponed", "d", NEW + 21, Duration::ZERO),
            keyed("is due", "e", NEW + 22, 20 * SECOND),
            with_key(Key::new("joined"), grouped(NEW + 23, "q", "b")),
        ];
        worker.enqueue(holders).await;
        let others = || {
            [
                keyed("stays", "x", NEW + 30, Duration::ZERO),
                keyed("is postponed", "x", NEW + 31, SECOND),
                keyed("is due", "x", NEW + 32, Duration::ZERO),
                with_key(Key::new("joined"), grouped(NEW + 33, "q", "x")),
                keyed("new", "d", NEW + 34, Duration::ZERO),
            ]
        };
        let store = &worker.store;
        let request = worker.new_enqueue(others());
        let send = || store.enqueue(Arc::clone(&request));
        let (answer, has_failed) = scene.send(trial, false, send).await;
        scene.check(trial);
        let before = if answer.is_ok() { 8 + 4 } else { 8 + 3 };
        assert_eq!(waiting(&worker).await, before, "{trial:?}");
        if answer.is_err() {
            let request = worker.new_enqueue(others());
            let answer = store.enqueue(request).await.unwrap();
            assert_eq!(answer.conflicts.len(), 4, "{trial:?}");
            scene.check(trial);
        }
        worker.turn(done(&claim), 0).await;
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}

/// A task of a group was cancelled, and its entry is left. It is stored again at the same time, so its new entry is equal.
#[tokio::test]
async fn a_cancelled_task_of_a_group_is_stored_again_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, claim) = groups_in(scene).await;
        let again = || NewTask {
            retention: Duration::ZERO,
            ..grouped(NEW + 10, "q", "d")
        };
        worker.enqueue([again()]).await;
        worker.store.cancel(vec![id(NEW + 10)]).await.unwrap();
        let request = worker.new_enqueue([again()]);
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.enqueue(Arc::clone(&request)))
            .await;
        answer.unwrap();
        scene.check(trial);
        worker.turn(done(&claim), 0).await;
        finish(&worker, scene, trial).await;
        has_failed
    })
    .await;
}
