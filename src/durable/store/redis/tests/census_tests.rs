//! The census: it finds tasks that are in no list, and ends no other task.

use super::scene::{HOUR, SECOND, Scene, later};
use super::*;
use crate::durable::DeadReason;
use crate::durable::store::Change;
use crate::durable::store::kind::Kind;

mod programs_tests;

#[tokio::test]
async fn an_orphan_ends_and_no_other_task_does() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..5).map(task)).await;
    worker.enqueue([later(5, HOUR)]).await;
    let claim = worker.claim(2).await;
    worker.store.cancel(vec![id(3)]).await.unwrap();
    scene.orphan(10..13);
    scene.maintain().await;
    for number in 10..13 {
        assert!(scene.is_damaged(number).await, "{number}");
    }
    assert_eq!(
        worker
            .store
            .dead_letters(DeadFilter::all(), 9)
            .await
            .unwrap()
            .len(),
        3
    );
    scene.check();
    worker.turn(done(&claim), 0).await;
    assert_eq!(scene.run_all(worker).await, [id(2), id(4)]);
    assert_eq!(scene.status_of(5).await, TaskState::Delayed);
    let left = scene.ask(&["EXISTS", &scene.key("unlisted")]);
    assert_eq!(left, redis::Value::Int(0));
}

/// The entry that a moved task has left in its list has another group than the task.
#[tokio::test]
async fn a_census_leaves_moved_tasks_as_they_are() {
    needs_redis!();
    // Each pass of maintenance begins a census.
    let scene = Scene::with(true).await;
    let store = &scene.worker.store;
    let tasks = [
        grouped(1, "q", "a"),
        grouped(2, "q", "b"),
        grouped(3, "q", "a"),
    ];
    scene.worker.enqueue(tasks).await;
    let (ids, to) = ([1, 2].map(id).to_vec(), QueueName::DEFAULT);
    store.change(ids, Change::MoveTo(to)).await.unwrap();
    scene.maintain().await;
    assert_eq!(store.damage(), None);
    scene.check();
    store.cancel(vec![id(1)]).await.unwrap();
    scene.maintain().await;
    scene.check();
    assert_eq!(scene.run_all(&scene.worker).await, [id(2)]);
    let worker = Worker::of_queue(store, "q").await;
    assert_eq!(scene.run_all(&worker).await, [id(3)]);
    scene.maintain().await;
    assert_eq!(store.damage(), None);
    scene.check();
}

#[tokio::test]
async fn every_worker_reports_damage_for_an_hour() {
    needs_redis!();
    let scene = Scene::new().await;
    let other = scene.open().await;
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage(), None);
    scene.orphan(1..4);
    scene.maintain().await;
    other.maintain(9).await.unwrap();
    for store in [&other, &*scene.worker.store] {
        let (found, last) = store.damage().expect("it was found");
        assert_eq!(found, 3);
        assert!(last.contains("its entry is missing"), "{last}");
    }
    scene.clock.advance(HOUR);
    other.maintain(9).await.unwrap();
    assert_eq!(other.damage(), None);
    scene.orphan(5..6);
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage().map(|it| it.0), Some(1));
}

/// Health also reports the damage that turns and claims find.
#[tokio::test]
async fn an_unreadable_entry_is_kept_as_evidence() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..150).map(task)).await;
    scene.run("for n = 0, 149 do call('LSET', 'ready', n, 'short ' .. n) end");
    while worker.turn(Vec::new(), 9).await.more {}
    scene.maintain().await;
    let evidence = scene.ask(&["LRANGE", &scene.key("damage"), "0", "-1"]);
    let redis::Value::Array(rows) = evidence else {
        panic!("{evidence:?}");
    };
    assert_eq!(rows.len(), 100);
    assert!(worker.store.damage().is_some_and(|(found, _)| found >= 150));
    for number in 0..150 {
        assert!(scene.is_damaged(number).await, "{number}");
    }
    worker.enqueue([task(200)]).await;
    let claim = worker.claim(1).await;
    let is_missing = dead(&claim, DeadReason::Damaged, "its payload is missing");
    worker.turn(is_missing, 0).await;
    scene.maintain().await;
    let last = worker.store.damage().map(|it| it.1);
    assert_eq!(last.as_deref(), Some("its payload is missing"));
}

/// The owner of the claim is lost.
#[tokio::test]
async fn tasks_of_a_lost_claim_are_requeued() {
    needs_redis!();
    for part in ["", "n", "o", "all", "lease", "cut"] {
        let scene = Scene::new().await;
        let dead = Worker::new(scene.open().await).await;
        dead.enqueue((0..4).map(task)).await;
        let claim = dead.claim(4).await;
        let epoch = super::super::reply::epoch_text(claim.epoch);
        scene.run(&match part {
            "all" => "redis.call('DEL', ARGV[1] .. 'claims')".to_owned(),
            "lease" => "redis.call('DEL', ARGV[1] .. 'lease')".to_owned(),
            "cut" => format!(
                "local row = call('HGET', 'claims', '{epoch}')
                call('HSET', 'claims', '{epoch}', string.sub(row, 1, 20)) return 1"
            ),
            part => format!("call('HDEL', 'claims', '{epoch}{part}')"),
        });
        scene.maintain().await;
        drop(dead);
        let mut back = Vec::new();
        for _ in 0..40 {
            scene.clock.advance(SECOND);
            back.extend(scene.run_all(&scene.worker).await);
        }
        back.sort_unstable();
        assert_eq!(back, [0, 1, 2, 3].map(id), "{part}");
        let counts = scene.worker.store.counts().await.unwrap();
        if ["o", "all"].contains(&part) {
            assert_eq!((counts.lost, counts.crashed), (4, 0), "{part}");
        }
        scene.check();
    }
}

/// The worker continues, and its verdicts are applied.
#[tokio::test]
async fn a_live_worker_keeps_a_claim_whose_row_is_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..4).map(task)).await;
    let claim = worker.claim(4).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'claims')");
    scene.maintain().await;
    for _ in 0..20 {
        scene.clock.advance(2 * SECOND);
        let renewed = worker.store.renew(vec![claim.epoch]).await.unwrap();
        assert!(renewed.lost.is_empty());
        scene.maintain().await;
    }
    assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.done, counts.lost, counts.crashed), (4, 0, 0));
    scene.check();
}

#[tokio::test]
async fn an_unreadable_row_ends_a_running_task() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..3).map(task)).await;
    let claim = worker.claim(3).await;
    worker.store.cancel(vec![id(1)]).await.unwrap();
    scene.run("call('HSET', 'running', id(1), 'garbage') call('HSET', 'running', id(2), '')");
    scene.maintain().await;
    for number in [1, 2] {
        assert!(scene.is_damaged(number).await, "{number}");
    }
    assert_eq!(worker.turn(done(&claim), 0).await.refused, [id(1), id(2)]);
    scene.clock.advance(HOUR);
    worker.turn(Vec::new(), 0).await;
    worker.turn(Vec::new(), 0).await;
    scene.check();
}

/// Otherwise, a later task of this id would lose its entry.
#[tokio::test]
async fn the_tombstone_of_an_orphan_is_removed() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue([task(1), task(2)]).await;
    worker.store.cancel(vec![id(2)]).await.unwrap();
    scene.orphan(7..8);
    assert_eq!(worker.store.cancel(vec![id(7)]).await.unwrap(), 1);
    scene.maintain().await;
    scene.check();
    worker.enqueue([named(7, "job")]).await;
    assert_eq!(scene.run_all(worker).await, [id(1), id(7)]);
}

#[tokio::test]
async fn a_lost_due_time_is_restored() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue([later(1, HOUR), later(2, 2 * HOUR)]).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'due')");
    scene.maintain().await;
    scene.check();
    assert_eq!(scene.status_of(1).await, TaskState::Delayed);
    scene.clock.advance(HOUR + SECOND);
    assert_eq!(scene.run_all(worker).await, [id(1)]);
    scene.clock.advance(HOUR + SECOND);
    assert_eq!(scene.run_all(worker).await, [id(2)]);
}

#[tokio::test]
async fn lost_rows_of_live_tasks_are_restored() {
    needs_redis!();
    for what in [
        "redis.call('DEL', ARGV[1] .. 'alive')",
        "for n = 1, 4 do call('HSET', 'alive', id(n), 'x') end",
    ] {
        let scene = Scene::new().await;
        let worker = &scene.worker;
        worker
            .enqueue([task(1), task(2), task(3), later(4, SECOND)])
            .await;
        worker.claim(1).await;
        // An ended task stays ended.
        worker.store.cancel(vec![id(3)]).await.unwrap();
        scene.run(what);
        scene.run("call('HDEL', 'alive', id(3))");
        scene.orphan(9..10);
        scene.maintain().await;
        scene.check();
        assert_eq!(scene.status_of(1).await, TaskState::Running);
        assert_eq!(scene.status_of(2).await, TaskState::Waiting);
        assert_eq!(scene.status_of(3).await, TaskState::Cancelled);
        assert_eq!(scene.status_of(4).await, TaskState::Delayed);
        assert!(scene.is_damaged(9).await);
    }
}

/// Tasks of unknown types wait in lists that no route names.
#[tokio::test]
async fn tasks_of_unknown_types_are_not_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    for round in 0..3 {
        worker
            .enqueue([
                named(10 + round, "mail"),
                named(20 + round, "report"),
                task(round),
            ])
            .await;
        scene.maintain().await;
        assert_eq!(worker.store.damage(), None);
    }
    scene.orphan(40..41);
    scene.maintain().await;
    assert!(scene.is_damaged(40).await);
    scene.check();
    let survey = scene.run("return cmsgpack.unpack(call('HGET', 'meta', 'survey')).left");
    assert_eq!(
        survey,
        redis::Value::Int(0),
        "the lists are known from now on"
    );
    let mail = scene.worker_of(&["mail"]).await;
    assert_eq!(scene.run_all(&mail).await, [10, 11, 12].map(id));
}

/// No worker knows the task's type, so only its tombstone identifies the list of its entry.
#[tokio::test]
async fn a_cancelled_task_of_an_unknown_type_stays_cancelled() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([named(7, "mail")]).await;
    assert_eq!(scene.worker.store.cancel(vec![id(7)]).await.unwrap(), 1);
    scene.maintain().await;
    let mail = scene.worker_of(&["mail"]).await;
    assert_eq!(scene.run_all(&mail).await, []);
    mail.enqueue([named(8, "mail")]).await;
    assert_eq!(scene.run_all(&mail).await, [id(8)]);
    scene.check();
}

/// An earlier census has counted the list, so no task is missing, but no worker reads the list.
#[tokio::test]
async fn a_counted_list_that_no_worker_reads() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((0..5).map(task)).await;
    let kind = format!("{:016x}", u64::from_be_bytes(Kind::of("job").to_bytes()));
    scene.run(&format!(
        "redis.call('RENAME', ARGV[1] .. 'ready', ARGV[1] .. 'ready:{kind}')
        call('HSET', 'meta', 'survey', cmsgpack.pack({{ left = 0, lists = '{kind}' }}))"
    ));
    scene.maintain().await;
    assert_eq!(scene.run_all(&scene.worker).await.len(), 5);
    assert!(scene.worker.store.damage().is_none());
    scene.check();
}

/// The tasks wait in a shared list that no route names any more.
#[tokio::test]
async fn tasks_are_found_when_the_routes_are_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    let mail = scene.worker_of(&["mail", "job"]).await;
    mail.enqueue((0..5).map(|number| named(number, "mail")))
        .await;
    mail.enqueue((5..9).map(|number| named(number, "job")))
        .await;
    mail.turn(Vec::new(), 0).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'routes') call('HDEL', 'meta', 'routes')");
    scene.maintain().await;
    assert_eq!(mail.store.damage(), None);
    let mail = scene.worker_of(&["mail"]).await;
    let mut found = scene.run_all(&mail).await;
    let job = scene.worker_of(&["job"]).await;
    found.extend(scene.run_all(&job).await);
    found.sort_unstable();
    assert_eq!(found, (0..9).map(id).collect::<Vec<_>>());
    scene.check();
}
