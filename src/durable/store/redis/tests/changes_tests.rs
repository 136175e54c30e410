//! Changes of tasks whose rows are damaged or missing, and of tasks in several partitions.

use super::scene::{HOUR, Scene, later};
use super::*;
use crate::durable::Refusal;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::suite::changes::moves_tests::all_to;
use crate::durable::store::{Change, ChangeAnswer};

const UNREADABLE: ChangeAnswer = ChangeAnswer::Refused(Refusal::Unreadable);

async fn changed(store: &RedisStore, number: u64, change: Change) -> ChangeAnswer {
    let answers = store.change(vec![id(number)], change).await.unwrap();
    assert_eq!(answers.len(), 1);
    answers[0]
}

fn to(queue: &str) -> Change {
    Change::MoveTo(QueueName::from(
        Some(queue.to_owned()).filter(|it| !it.is_empty()),
    ))
}

#[tokio::test]
async fn a_damaged_delayed_task_is_not_changed() {
    needs_redis!();
    for damage in [
        "call('HDEL', 'delayed', id(1))",
        "call('HSET', 'delayed', id(1), '')",
        "call('HSET', 'delayed', id(1), string.sub(call('HGET', 'delayed', id(1)), 1, 62))",
        "call('HSET', 'delayed', id(1), call('HGET', 'delayed', id(2)))",
    ] {
        let scene = Scene::new().await;
        scene.worker.enqueue([later(1, HOUR), later(2, HOUR)]).await;
        scene.run(damage);
        let store = &scene.worker.store;
        for change in [Change::RunNow, to("q")] {
            assert_eq!(changed(store, 1, change).await, UNREADABLE, "{damage}");
            assert_eq!(scene.status_of(1).await, TaskState::Delayed, "{damage}");
        }
        assert_eq!(
            changed(store, 2, Change::RunNow).await,
            ChangeAnswer::Changed
        );
        assert_eq!(scene.run_all(&scene.worker).await, [id(2)]);
    }
}

#[tokio::test]
async fn a_damaged_waiting_task_does_not_move() {
    needs_redis!();
    // The entry is lost, its header cannot be read, or it is too short for its payload.
    for (damage, answer) in [
        ("call('LTRIM', list, 1, -1)", ChangeAnswer::OtherStatus),
        ("call('LSET', list, 0, 'x')", ChangeAnswer::OtherStatus),
        (
            "call('LSET', list, 0, string.sub(call('LINDEX', list, 0), 1, 62))",
            UNREADABLE,
        ),
        (
            "call('HSET', 'alive', id(1), 'x')",
            ChangeAnswer::OtherStatus,
        ),
    ] {
        let scene = Scene::new().await;
        scene.worker.enqueue([task(1), task(2)]).await;
        scene.run(&format!("local list = 'ready' {damage}"));
        let store = &scene.worker.store;
        assert_eq!(changed(store, 1, to("q")).await, answer, "{damage}");
        assert_eq!(
            changed(store, 2, to("q")).await,
            ChangeAnswer::Changed,
            "{damage}"
        );
        let worker = Worker::of_queue(store, "q").await;
        assert_eq!(ids_of(&worker.claim(9).await), [id(2)], "{damage}");
    }
}

fn ids_of(claim: &Claim) -> Vec<TaskId> {
    claim.tasks.iter().map(|task| task.id).collect()
}

/// Another build has stored the task.
#[tokio::test]
async fn a_task_of_an_unknown_kind_does_not_move() {
    needs_redis!();
    let scene = Scene::new().await;
    let newer = |task| NewTask {
        envelope: 9,
        ..task
    };
    let tasks = [newer(task(1)), newer(later(2, HOUR)), task(3)];
    scene.worker.enqueue(tasks).await;
    let ids = [1, 2, 3].map(id).to_vec();
    let answers = scene.worker.store.change(ids, to("q")).await.unwrap();
    assert_eq!(answers, [UNREADABLE, UNREADABLE, ChangeAnswer::Changed]);
    scene.check();
}

/// The list is read in parts, and some of the last ones have a task of a type that only a newer build knows.
#[tokio::test]
async fn tasks_of_unknown_kinds_do_not_end_the_search_for_others() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    store.close_session(scene.worker.session).await.unwrap();
    let newer = |number| NewTask {
        envelope: 9,
        ..task(number)
    };
    // All types that the only worker knows share a list.
    let set = TypeSet::of([task(0).kind(), newer(0).kind()]);
    let worker = Worker::of_set(store, Some(set)).await;
    let unknown: Vec<_> = (1..=4).map(|part| part * 1_000).collect();
    let tasks = (1..5_000).map(|number| match unknown.contains(&number) {
        true => newer(number),
        false => task(number),
    });
    for batch in tasks.collect::<Vec<_>>().chunks(MAX_BATCH_TASKS) {
        worker.enqueue(batch.iter().cloned()).await;
    }
    let ids: Vec<_> = unknown.iter().copied().chain([1]).map(id).collect();
    let answers = store.change(ids, to("q")).await.unwrap();
    assert_eq!(answers[..4], [UNREADABLE; 4]);
    assert_eq!(answers[4], ChangeAnswer::Changed);
}

/// A lost number or row of tombstones must not let a task run twice, or not at all.
#[tokio::test]
async fn a_moved_task_runs_after_its_rows_are_repaired() {
    needs_redis!();
    for damage in [
        "call('HDEL', 'meta', 'tombstones')",
        "call('HDEL', 'alive', id(1))",
        "call('DEL', 'types')",
        "call('DEL', 'routes')",
    ] {
        let scene = Scene::new().await;
        scene.worker.enqueue([task(1), task(2)]).await;
        let store = &scene.worker.store;
        assert_eq!(changed(store, 1, to("q")).await, ChangeAnswer::Changed);
        scene.run(damage);
        scene.maintain().await;
        let store = Arc::new(scene.open().await);
        let worker = Worker::of_queue(&store, "q").await;
        assert_eq!(scene.run_all(&worker).await, [id(1)], "{damage}");
        let worker = Worker::of(&store).await;
        assert_eq!(scene.run_all(&worker).await, [id(2)], "{damage}");
        scene.maintain().await;
        scene.check();
    }
}

#[tokio::test]
async fn a_task_moves_only_within_its_partition() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let store = Arc::new(builder.partitions(4).open().await.unwrap());
    let worker = Worker::of(&store).await;
    let _other = Worker::of_queue(&store, "q").await;
    worker.enqueue((0..40).map(task)).await;
    let ids: Vec<_> = (0..41).map(id).collect();
    let answers = store.change(ids.clone(), to("q")).await.unwrap();
    let other = ChangeAnswer::Refused(Refusal::OtherPartition);
    for (id, answer) in ids.iter().zip(&answers).take(40) {
        let expected = match store.can_have(*id, &queue_name("q"), None) {
            true => ChangeAnswer::Changed,
            false => other,
        };
        assert_eq!(*answer, expected);
    }
    assert_eq!(answers[40], ChangeAnswer::OtherStatus);
    let moved = answers
        .iter()
        .filter(|&&it| it == ChangeAnswer::Changed)
        .count();
    assert!((1..40).contains(&moved), "{moved}");
    assert_eq!(
        store.queue(queue_name("q")).await.unwrap().waiting,
        moved as u64
    );
    let back = store.change(ids, to("")).await.unwrap();
    assert_eq!(
        back.iter()
            .filter(|&&it| it == ChangeAnswer::Changed)
            .count(),
        moved
    );
    assert_eq!(
        back.iter().filter(|&&it| it == ChangeAnswer::Same).count(),
        40 - moved
    );
    let mut ran = 0;
    while let Some(claim) = worker.turn(Vec::new(), 100).await.claim {
        ran += claim.tasks.len();
    }
    assert_eq!(ran, 40);
}

/// Lists are served in the order in which their first tasks became ready.
#[tokio::test]
async fn a_task_that_is_due_now_has_waited_since_now() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([later(1, HOUR)]).await;
    let store = &scene.worker.store;
    assert_eq!(
        changed(store, 1, Change::RunNow).await,
        ChangeAnswer::Changed
    );
    let times = scene.run(
        "local entry = call('LINDEX', 'ready', 0)
        return string.format('%.0f', struct.unpack('>I6', entry, 41))",
    );
    let now = crate::durable::clock::millis(scene.clock.wall());
    assert_eq!(
        times,
        redis::Value::BulkString(now.to_string().into_bytes())
    );
}

/// A worker takes the last entry that was passed, so each part begins at the head again.
#[tokio::test]
async fn the_pass_over_a_list_ends_while_tasks_come_and_go() {
    needs_redis!();
    let scene = Scene::new().await;
    let (store, mut next, mut parts, mut moved) = (&scene.worker.store, 0, 0, 0);
    let mut request = all_to("q");
    scene.worker.enqueue((5_000..5_250).map(task)).await;
    scene.worker.enqueue((5_250..5_500).map(task)).await;
    while request.after.as_deref().is_none_or(|at| at[0] == b'l') {
        let part = store.move_waiting(request.clone()).await.unwrap();
        let part = part.expect("it is a position of this store");
        (request.after, moved) = (part.next, moved + part.changed);
        scene.worker.turn(Vec::new(), 100).await;
        scene.worker.enqueue((next..next + 250).map(task)).await;
        (next, parts) = (next + 250, parts + 1);
        assert!(parts < 20, "the pass does not end");
    }
    assert!((200..1_000).contains(&moved), "{moved} in {parts} parts");
}
