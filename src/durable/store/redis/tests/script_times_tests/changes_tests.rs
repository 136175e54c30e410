//! Many tasks are made due, or move to another queue.

use super::*;
use crate::durable::Key;
use crate::durable::store::redis::batches::TASKS_PER_CHANGE;
use crate::durable::store::suite::changes::moves_tests::all_to;
use crate::durable::store::suite::with_key;
use crate::durable::store::{Change, ChangeAnswer};

const TASKS: u64 = 8 * BATCH;

/// Changes all tasks, as a bulk change does.
async fn change_all(scene: &mut Scene, change: Change) {
    let ids: Vec<_> = (0..TASKS).map(id).collect();
    for ids in ids.chunks(TASKS_PER_CHANGE) {
        let changed = scene.other.store.change(ids.to_vec(), change.clone());
        let answers = scene.meter.measure(changed).await.unwrap();
        assert!(answers.iter().all(|it| *it == ChangeAnswer::Changed));
    }
}

/// Tasks of many groups, with keys and the largest payloads that entries contain.
fn grouped_task(number: u64) -> NewTask {
    let task = NewTask {
        payload: vec![7; 512],
        ..grouped(number, "q", &format!("{}", number % 1000))
    };
    with_key(Key::new(number.to_string()), task)
}

#[tokio::test]
async fn many_tasks_that_are_made_due() {
    needs_redis!();
    in_short_scripts(async |scene| {
        let later = |task| NewTask {
            delay: Duration::from_secs(3600),
            ..task
        };
        scene
            .store(TASKS, |number| later(grouped_task(number)))
            .await;
        change_all(scene, Change::RunNow).await;
    })
    .await;
}

#[tokio::test]
async fn many_tasks_that_move() {
    needs_redis!();
    for new in [grouped_task, task] {
        in_short_scripts(async |scene| {
            let _other = Worker::of_queue(&scene.other.store, "q").await;
            scene.store(TASKS, new).await;
            for queue in [Some("r"), Some("s"), None] {
                let queue = QueueName::from(queue.map(str::to_owned));
                change_all(scene, Change::MoveTo(queue)).await;
            }
        })
        .await;
    }
}

/// Moves all waiting tasks to the queue `q`. Returns the number of tasks that have moved.
async fn move_all(scene: &mut Scene) -> u64 {
    let mut request = all_to("q");
    let mut moved = 0;
    loop {
        let part = scene.other.store.move_waiting(request.clone());
        let part = scene.meter.measure(part).await.unwrap().unwrap();
        moved += part.changed;
        request.after = part.next;
        if request.after.is_none() {
            return moved;
        }
    }
}

#[tokio::test]
async fn all_tasks_of_a_list_move_in_their_order() {
    needs_redis!();
    in_short_scripts(async |scene| {
        let worker = Worker::of_queue(&scene.other.store, "q").await;
        scene.store(TASKS, task).await;
        assert_eq!(move_all(scene).await, TASKS);
        let mut order = Vec::new();
        while let Some(claim) = worker.turn(Vec::new(), MAX_BATCH_TASKS).await.claim {
            order.extend(claim.tasks.iter().map(|task| task.id));
        }
        let expected: Vec<_> = (0..TASKS).map(id).collect();
        assert!(order == expected);
    })
    .await;
}

#[tokio::test]
#[ignore = "it stores a million tasks: `scripts/test --long` runs it"]
async fn all_tasks_of_a_list_of_a_million_move() {
    needs_redis!();
    let mut scene = Scene::new().await;
    scene.store(1_000_000, task).await;
    scene.meter.taken.clear();
    let started = std::time::Instant::now();
    assert_eq!(move_all(&mut scene).await, 1_000_000);
    let longest = scene.meter.taken.iter().max();
    println!("move: {:?}, {longest:?}", started.elapsed());
    assert!(scene.meter.taken.iter().all(|taken| *taken <= LIMIT));
}

/// The task that is searched last is the first one of a list of a million.
#[tokio::test]
#[ignore = "it stores a million tasks: `scripts/test --long` runs it"]
async fn a_task_of_a_million_that_moves() {
    needs_redis!();
    let mut scene = Scene::new().await;
    scene.store(1_000_000, task).await;
    scene.meter.taken.clear();
    let change = Change::MoveTo(queue_name("q"));
    let started = std::time::Instant::now();
    let changed = scene.other.store.change(vec![id(0)], change);
    assert_eq!(
        scene.meter.measure(changed).await.unwrap(),
        [ChangeAnswer::Changed]
    );
    println!("move: {:?}, {:?}", started.elapsed(), scene.meter.taken);
    assert!(scene.meter.taken.iter().all(|taken| *taken <= LIMIT));
}
