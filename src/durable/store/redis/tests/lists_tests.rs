//! Lists of tasks: in several partitions, with damaged rows, and with lost names.

use std::collections::HashSet;

use super::scene::{HOUR, SECOND, Scene};
use super::*;
use crate::durable::store::{CheckedFilter, ListTasks};
use crate::durable::{DeadReason, Status, TaskInfo};

fn first_page(status: Status, limit: usize) -> ListTasks {
    ListTasks {
        filter: CheckedFilter {
            status,
            name: None,
            queue: None,
        },
        after: None,
        limit,
    }
}

/// Returns all tasks with a status, which are read in pages of this size.
async fn all(store: &RedisStore, status: Status, limit: usize) -> Vec<TaskInfo> {
    let (mut found, mut request) = (Vec::new(), first_page(status, limit));
    loop {
        let page = store.list(request.clone()).await.unwrap().unwrap();
        assert!(page.tasks.len() <= limit && page.examined <= request.max_examined());
        found.extend(page.tasks);
        let Some(next) = page.next else {
            return found;
        };
        request.after = next.position_in(status).ok();
    }
}

async fn names(store: &RedisStore) -> Vec<Option<String>> {
    let waiting = all(store, Status::Waiting, 10).await;
    waiting.into_iter().map(|it| it.name).collect()
}

#[tokio::test]
async fn the_pages_of_all_partitions_follow_each_other() {
    needs_redis!();
    const TASKS: u64 = 100;
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let store = builder.partitions(4).open().await.unwrap();
    let worker = Worker::new(store).await;
    worker.enqueue((0..TASKS).map(task)).await;
    let is_home = |&number: &u64| worker.store.can_have(id(number), &queue_name("q"), None);
    let number = (TASKS..).find(is_home).unwrap();
    worker.enqueue([queued(number, "q")]).await;
    for limit in [1, 3, 26, 200] {
        let found = all(&worker.store, Status::Waiting, limit).await;
        assert_eq!(found.len() as u64, TASKS + 1);
        let ids: HashSet<_> = found.iter().map(|it| it.id).collect();
        assert_eq!(ids.len() as u64, TASKS + 1);
    }
    let mut of_queue = first_page(Status::Waiting, 10);
    of_queue.filter.queue = Some(queue_name("q"));
    let page = worker.store.list(of_queue).await.unwrap().unwrap();
    // Only the partition of the queue is read.
    assert_eq!((page.tasks.len(), page.next), (1, None));
    assert!(page.examined < TASKS as usize, "{}", page.examined);
    let epochs = async || {
        let claim = worker.claim(9).await;
        let running = all(&worker.store, Status::Running, 3).await;
        let tokens = running.iter().map(|it| it.fencing_token);
        (claim.epoch, tokens.collect::<HashSet<_>>())
    };
    let (epoch, listed) = epochs().await;
    assert_eq!(listed, HashSet::from([Some(epoch)]));
}

#[tokio::test]
async fn a_lost_name_is_recorded_again_after_maintenance() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    assert_eq!(
        names(&scene.worker.store).await,
        [Some(String::from("job"))]
    );
    scene.ask(&["DEL", &scene.key("types")]);
    assert_eq!(names(&scene.worker.store).await, [None]);
    scene.maintain().await;
    scene.worker.enqueue([task(2)]).await;
    assert_eq!(
        names(&scene.worker.store).await,
        vec![Some(String::from("job")); 2]
    );
}

#[tokio::test]
async fn of_very_many_types_those_that_no_client_stores_are_removed() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    let fill = "for n = 1, 10100 do call('HSET', 'types', 'type' .. 1000 + n, string.rep('\\0', 7) .. n) end
        call('HSET', 'types', 'unreadab', 'x') return call('HLEN', 'types')";
    assert_eq!(scene.run(fill), redis::Value::Int(10_102));
    let left = || match scene.ask(&["HLEN", &scene.key("types")]) {
        redis::Value::Int(left) => left,
        other => panic!("{other:?}"),
    };
    let mut passes = 0;
    while left() > 10_000 && passes < 100 {
        scene.maintain().await;
        passes += 1;
    }
    assert!((9_700..=10_000).contains(&left()), "{}", left());
    assert_eq!(
        names(&scene.worker.store).await,
        [Some(String::from("job"))]
    );
}

/// A row is cut to each length, and another task has no row.
#[tokio::test]
async fn damaged_rows_do_not_hide_other_tasks() {
    needs_redis!();
    let scene = Scene::new().await;
    let later = |number| NewTask {
        delay: HOUR,
        ..task(number)
    };
    scene.worker.enqueue((1..=9).map(task)).await;
    scene.worker.enqueue((11..=13).map(later)).await;
    let failed = scene.worker.claim(3).await;
    let ended = scene.worker.claim(3).await;
    scene.worker.claim(2).await;
    scene
        .worker
        .turn(dead(&failed, DeadReason::Fatal, "error"), 0)
        .await;
    scene.worker.turn(done(&ended), 0).await;
    let lists = [
        ("running", Status::Running, 7, 8),
        ("delayed", Status::Delayed, 11, 12),
        ("results", Status::Done, 4, 5),
        ("dead", Status::Dead, 1, 2),
        ("alive", Status::Waiting, 9, 9),
    ];
    for (key, status, damaged, intact) in lists {
        let stored = format!("return call('HGET', '{key}', id({damaged}))");
        let redis::Value::BulkString(row) = scene.run(&stored) else {
            panic!("{key} has a row");
        };
        let row: String = row.iter().map(|byte| format!("\\{byte:03}")).collect();
        // Only an output in its envelope has the name of its task.
        let is_whole = |it: &TaskInfo| it.name.is_some() || status == Status::Done;
        for len in 0..row.len() / 4 {
            scene.run(&format!(
                "call('HSET', '{key}', id({damaged}), string.sub('{row}', 1, {len}))"
            ));
            let found = all(&scene.worker.store, status, 1).await;
            let is_listed = found.iter().any(|it| it.id == id(intact) && is_whole(it));
            assert!(is_listed || damaged == intact, "{key} {len}: {found:?}");
        }
        scene.run(&format!("call('HDEL', '{key}', id({damaged}))"));
        let found = all(&scene.worker.store, status, 1).await;
        assert!(damaged == intact || found.iter().any(|it| it.id == id(intact)));
        scene.run(&format!("call('HSET', '{key}', id({damaged}), '{row}')"));
    }
}

/// A page of outputs of 64 KiB each ends early: the script reads 1 MiB, and at most one more step of the scan.
#[tokio::test]
async fn large_outputs_make_pages_short() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((0..64).map(task)).await;
    let claim = scene.worker.claim(64).await;
    for each in claim.tasks.chunks(8) {
        let tasks = each
            .iter()
            .map(|it| (it.id, Verdict::Done(vec![1; 64 << 10])));
        let verdicts = Verdicts {
            epoch: claim.epoch,
            tasks: tasks.collect(),
        };
        scene.worker.turn(vec![verdicts], 0).await;
    }
    scene.clock.advance(SECOND);
    let page = scene.worker.store.list(first_page(Status::Done, 200)).await;
    let page = page.unwrap().unwrap();
    assert!(
        page.next.is_some() && page.tasks.len() < 64,
        "{}",
        page.tasks.len()
    );
    assert_eq!(all(&scene.worker.store, Status::Done, 200).await.len(), 64);
}
