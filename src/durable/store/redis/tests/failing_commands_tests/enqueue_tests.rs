//! Commands fail while tasks are stored.

use super::*;
use crate::durable::store::redis::tests::pushes_tests::rest;

/// The client does not know that one of the tasks exists, so the script assigns the lists itself.
#[tokio::test]
async fn a_task_is_stored_if_and_only_if_the_answer_says_so() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let tasks = new_tasks().chain([task(20), named(NEW + 4, "mail")]);
        let has_failed = store_tasks(scene, trial, tasks.collect()).await;
        run_mail(scene).await;
        has_failed
    })
    .await;
}

/// The client assigns the lists.
#[tokio::test]
async fn a_task_is_stored_if_and_only_if_the_answer_says_so_also_in_a_census() {
    needs_redis!();
    for_each_command_in_a_census(async |scene, trial| {
        let tasks = new_tasks().chain([named(NEW + 4, "mail")]);
        let has_failed = store_tasks(scene, trial, tasks.collect()).await;
        run_mail(scene).await;
        has_failed
    })
    .await;
}

/// All tasks are added to the main list, so the client assigns no lists.
#[tokio::test]
async fn a_task_is_stored_in_the_main_list_if_and_only_if_the_answer_says_so() {
    needs_redis!();
    for_each_command_in_a_census(async |scene, trial| {
        store_tasks(scene, trial, new_tasks().collect()).await
    })
    .await;
}

/// A session is idle, so the task is claimed for it. It runs whether the claim was undone or not.
#[tokio::test]
async fn a_task_that_is_claimed_for_an_idle_session_runs() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, store) = (&scene.worker, &scene.worker.store);
        let mut events = store.events();
        until(&mut events, &Event::Ready).await;
        while let Some(claim) = scene.other.turn(Vec::new(), 9).await.claim {
            scene.other.turn(done(&claim), 0).await;
        }
        assert_eq!(rest(worker, 2, ClaimPushes::default()).await.claim, None);
        let request = scene.other.new_enqueue([task(NEW)]);
        let send = || scene.other.store.enqueue(Arc::clone(&request));
        let (answer, has_failed) = scene.send(trial, false, send).await;
        let seen = store.status(vec![id(NEW)]).await.unwrap();
        assert_eq!(
            answer.is_err(),
            seen == [TaskState::Absent],
            "{trial:?}: {answer:?}"
        );
        if answer.is_err() {
            send().await.unwrap();
        }
        scene.check(trial);
        let lost = ClaimPushes {
            may_be_lost: true,
            ..ClaimPushes::default()
        };
        let turned = rest(worker, 2, lost).await;
        let claim = turned.claim.expect("the task is pushed, or is waiting");
        let refused = worker.turn(done(&claim), 0).await.refused;
        assert_eq!((claim.tasks.len(), refused), (1, vec![]), "{trial:?}");
        has_failed
    })
    .await;
}

/// A turn returns a claim that was pushed before.
#[tokio::test]
async fn a_pushed_claim_that_is_lost_is_returned_once() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let (worker, store) = (&scene.worker, &scene.worker.store);
        let mut events = store.events();
        until(&mut events, &Event::Ready).await;
        while let Some(claim) = scene.other.turn(Vec::new(), 9).await.claim {
            scene.other.turn(done(&claim), 0).await;
        }
        rest(worker, 2, ClaimPushes::default()).await;
        scene.other.enqueue([task(NEW)]).await;
        let mut request = (*worker.new_turn(Vec::new(), 2)).clone();
        request.pushes.may_be_lost = true;
        let request = Arc::new(request);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let claim = match answer.unwrap().claim {
            Some(claim) => claim,
            // The turn was answered without the claim.
            None => {
                let again = ClaimPushes {
                    may_be_lost: true,
                    ..ClaimPushes::default()
                };
                rest(worker, 2, again).await.claim.expect("it is held")
            }
        };
        assert_eq!(claim.tasks[0].id, id(NEW), "{trial:?}");
        let refused = worker.turn(done(&claim), 0).await.refused;
        assert_eq!(refused, [], "{trial:?}");
        has_failed
    })
    .await;
}

fn new_tasks() -> impl Iterator<Item = NewTask> {
    let later = NewTask {
        delay: SECOND,
        ..large(NEW + 3)
    };
    [task(NEW), large(NEW + 1), delayed(NEW + 2, SECOND), later].into_iter()
}

/// Runs the task whose type no other worker knows, from a list of its own.
async fn run_mail(scene: &Scene) {
    let worker = Worker::of_names(&scene.other.store, &["mail"]).await;
    loop {
        let turned = worker.turn(Vec::new(), 1).await;
        match turned.claim {
            Some(claim) => break drop(worker.turn(done(&claim), 0).await),
            None => assert!(turned.more, "it is nowhere"),
        }
    }
}

async fn store_tasks(scene: &Scene, trial: Trial, tasks: Vec<NewTask>) -> bool {
    let store = &scene.other.store;
    let request = scene.other.new_enqueue(tasks.clone());
    let (answer, has_failed) = scene
        .send(trial, false, || store.enqueue(Arc::clone(&request)))
        .await;
    let ids = tasks.iter().map(|task| task.id);
    let ids: Vec<_> = ids.filter(|new| *new >= id(NEW)).collect();
    let seen = store.status(ids.clone()).await.unwrap();
    match answer {
        Ok(_) => assert!(!seen.contains(&TaskState::Absent), "{trial:?}: {seen:?}"),
        Err(failure) => {
            assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
            assert!(failure.answered, "{trial:?}: {failure}");
            assert_eq!(seen, vec![TaskState::Absent; ids.len()], "{trial:?}");
        }
    }
    scene.check(trial);
    scene.other.enqueue(tasks).await;
    let seen = store.status(ids).await.unwrap();
    assert!(!seen.contains(&TaskState::Absent), "{trial:?}: {seen:?}");
    has_failed
}

/// Once the tasks are stored, no later failure makes the request fail.
#[tokio::test]
async fn a_repeated_enqueue_succeeds_even_if_its_wake_fails() {
    needs_redis!();
    // If the first command fails, it is not known yet that the tasks are stored.
    for_each_trial(2.., &[false], async |scene, trial| {
        // A worker that knows the tasks is idle.
        while scene.worker.turn(Vec::new(), 9).await.claim.is_some() {}
        let tasks = [task(NEW), large(NEW + 1), delayed(NEW + 2, SECOND)];
        let request = scene.other.new_enqueue(tasks);
        let store = &scene.other.store;
        store.enqueue(Arc::clone(&request)).await.unwrap();
        while scene.worker.turn(Vec::new(), 9).await.claim.is_some() {}
        let send = || store.enqueue(Arc::clone(&request));
        let (answer, has_failed) = scene.send(trial, false, send).await;
        assert!(answer.is_ok(), "{trial:?}: {answer:?}");
        has_failed
    })
    .await;
}
