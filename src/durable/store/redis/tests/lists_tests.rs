//! Lists of tasks: in several partitions, with damaged rows, and with lost names.

use std::collections::HashSet;

use super::scene::{HOUR, SECOND, Scene};
use super::*;
use crate::durable::store::{Change, CheckedFilter, ListTasks};
use crate::durable::{DeadReason, Status, TaskInfo};

fn first_page(status: Status, limit: usize) -> ListTasks {
    ListTasks {
        filter: CheckedFilter::new(status),
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
    let is_possible = |&number: &u64| worker.store.can_have(id(number), &queue_name("q"), None);
    let number = (TASKS..).find(is_possible).unwrap();
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

/// Such a task may belong to any queue, so a change of all tasks of the default queue must not reach it.
#[tokio::test]
async fn a_task_of_an_unknown_type_is_in_no_selected_queue() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([queued(1, "q"), task(2)]).await;
    scene.ask(&["DEL", &scene.key("types")]);
    for queue in [QueueName::DEFAULT, queue_name("q")] {
        let mut request = first_page(Status::Waiting, 10);
        request.filter.queue = Some(queue);
        let page = scene.worker.store.list(request).await.unwrap().unwrap();
        assert_eq!(page.tasks, []);
    }
}

/// A client that only stores tasks has no maintenance.
#[tokio::test]
async fn a_lost_name_is_recorded_again_after_an_hour() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    scene.ask(&["DEL", &scene.key("types")]);
    scene.worker.enqueue([task(2)]).await;
    assert_eq!(names(&scene.worker.store).await, [None, None]);
    scene.clock.advance(HOUR);
    scene.worker.enqueue([task(3)]).await;
    assert_eq!(
        names(&scene.worker.store).await,
        vec![Some(String::from("job")); 3]
    );
}

/// So does a client that only moves tasks.
#[tokio::test]
async fn a_lost_name_of_moved_tasks_is_recorded_again_after_an_hour() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1), task(2)]).await;
    let admin = scene.open().await;
    let moves = async |number| {
        let to = Change::MoveTo(queue_name("q"));
        admin.change(vec![id(number)], to).await.unwrap();
    };
    moves(1).await;
    scene.ask(&["DEL", &scene.key("types")]);
    scene.clock.advance(HOUR);
    moves(2).await;
    assert_eq!(names(&admin).await, vec![Some(String::from("job")); 2]);
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

/// A page of outputs of 64 KiB each ends early: the script reads 1 MiB, and at most one more step of the scan, which is
/// short.
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
        page.next.is_some() && page.tasks.len() < 24,
        "{}",
        page.tasks.len()
    );
    assert_eq!(all(&scene.worker.store, Status::Done, 200).await.len(), 64);
}

async fn enqueue_all(worker: &Worker, tasks: u64) {
    let numbers: Vec<_> = (0..tasks).collect();
    for numbers in numbers.chunks(200) {
        worker.enqueue(numbers.iter().map(|&it| task(it))).await;
    }
}

/// A page that ends within a step of a scan repeats this step, whatever the size of the next page is.
#[tokio::test]
async fn pages_of_different_sizes_follow_each_other() {
    needs_redis!();
    let scene = Scene::new().await;
    enqueue_all(&scene.worker, 2000).await;
    for limits in [[1, 200], [1, 7], [3, 100]] {
        let (mut found, mut request) = (Vec::new(), first_page(Status::Waiting, 1));
        for limit in limits.into_iter().cycle() {
            request.limit = limit;
            let page = scene.worker.store.list(request.clone()).await;
            let page = page.unwrap().unwrap();
            found.extend(page.tasks.iter().map(|it| it.id));
            let Some(next) = page.next else { break };
            request.after = next.position_in(Status::Waiting).ok();
        }
        let ids: HashSet<_> = found.iter().collect();
        assert_eq!((found.len(), ids.len()), (2000, 2000), "{limits:?}");
    }
}

/// The first page of a partition has only the room that the partitions before have left.
#[tokio::test]
async fn the_pages_of_large_partitions_follow_each_other() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let store = builder.partitions(4).open().await.unwrap();
    let worker = Worker::new(store).await;
    enqueue_all(&worker, 3000).await;
    for limit in 60..100 {
        let found = all(&worker.store, Status::Waiting, limit).await;
        let ids: HashSet<_> = found.iter().map(|it| it.id).collect();
        assert_eq!((found.len(), ids.len()), (3000, 3000), "{limit}");
    }
}

/// Each step in which a page ends loses all of its tasks, so the repeated step has tasks that no page has had.
#[tokio::test]
async fn tasks_that_leave_a_list_hide_no_others() {
    needs_redis!();
    let scene = Scene::new().await;
    enqueue_all(&scene.worker, 2000).await;
    let mut request = first_page(Status::Waiting, 1);
    let mut found = HashSet::new();
    loop {
        let page = scene.worker.store.list(request.clone()).await;
        let page = page.unwrap().unwrap();
        found.extend(page.tasks.iter().map(|it| it.id));
        let Some(next) = page.next else { break };
        let after = next.position_in(Status::Waiting).unwrap();
        if after.len() > 9 {
            let cursor = u64::from_be_bytes(after[1..9].try_into().unwrap());
            scene.run(&format!(
                "for i, id in ipairs(call('HSCAN', 'alive', '{cursor}', 'COUNT', 1)[2]) do
                    if i % 2 == 1 then call('HDEL', 'alive', id) end
                end"
            ));
        }
        request.after = Some(after);
    }
    let left = all(&scene.worker.store, Status::Waiting, 200).await;
    assert!(left.len() > 500 && left.len() < 1999, "{}", left.len());
    assert_eq!(left.iter().find(|it| !found.contains(&it.id)), None);
}

/// Rows under ids of another length belong to no task. Maintenance removes them.
#[tokio::test]
async fn ids_of_another_length_are_left_out() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((1..=9).map(task)).await;
    let later = (11..=40).map(|number| scene::later(number, HOUR));
    scene.worker.enqueue(later).await;
    let claim = scene.worker.claim(6).await;
    let few = |range: std::ops::Range<usize>| Claim {
        tasks: claim.tasks[range].to_vec(),
        ..claim.clone()
    };
    scene.worker.turn(done(&few(0..2)), 0).await;
    let dead = dead(&few(2..4), DeadReason::Fatal, "error");
    scene.worker.turn(dead, 0).await;
    scene.run(
        "for n = 1, 40 do
            local id = string.rep(string.char(n), n % 2 == 0 and 3 or 20)
            for _, key in ipairs({ 'alive', 'running', 'results', 'delayed', 'dead' }) do call('HSET', key, id, 'row') end
            for _, key in ipairs({ 'due', 'died' }) do
                local last = redis.call('ZRANGE', ARGV[1] .. key, -1, -1, 'WITHSCORES')
                call('ZADD', key, last[2], id)
            end
        end",
    );
    let lists = [
        (Status::Waiting, 3),
        (Status::Running, 2),
        (Status::Done, 2),
        (Status::Dead, 2),
        (Status::Delayed, 30),
    ];
    for (status, expected) in lists {
        for limit in [1, 3, 200] {
            let read = all(&scene.worker.store, status, limit);
            let found = timeout(DEADLINE, read).await.expect("the list ends");
            assert_eq!(found.len(), expected, "{status:?} {limit}: {found:?}");
        }
    }
}
