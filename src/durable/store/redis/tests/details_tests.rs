//! Single tasks and the heads of queues: in several partitions, in long lists, and with damaged rows.

use super::scene::{HOUR, SECOND, Scene, later};
use super::*;
use crate::durable::store::suite::with_key;
use crate::durable::store::{Beginning, FoundTask, Progress, ProgressReport};
use crate::durable::{Key, Status};

async fn find(store: &RedisStore, number: u64) -> Option<FoundTask> {
    store.find(id(number)).await.unwrap()
}

async fn payload(store: &RedisStore, number: u64) -> Option<Beginning> {
    find(store, number).await.expect("it is there").payload
}

async fn head(store: &RedisStore, queue: &QueueName, limit: usize) -> Vec<TaskId> {
    let head = store.head(queue.clone(), limit).await.unwrap();
    head.tasks.iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn tasks_of_all_partitions_are_found() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let store = builder.partitions(4).open().await.unwrap();
    let worker = Worker::new(store).await;
    worker.enqueue((0..40).map(task)).await;
    for number in 0..40 {
        assert!(payload(&worker.store, number).await.is_some());
    }
    let ids = head(&worker.store, &QueueName::DEFAULT, 50).await;
    assert_eq!(ids.len(), 40);
    let claim = worker.claim(9).await;
    let found = worker.store.find(claim.tasks[0].id).await.unwrap();
    let detail = found.expect("it runs").detail;
    assert_eq!(detail.task.fencing_token, Some(claim.epoch));
    assert!(detail.lease_left.is_some());
    assert_eq!(detail.runner.map(|it| it.session), Some(worker.session));
}

/// The entries in the middle of a long list are not read. Payloads that are not in the entries are found nevertheless.
#[tokio::test]
async fn a_small_payload_is_found_near_the_ends_of_a_list() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((1..=200).map(task)).await;
    let large = NewTask {
        payload: vec![7; 600],
        ..task(201)
    };
    scene.worker.enqueue([large]).await;
    scene.worker.enqueue((202..=400).map(task)).await;
    let store = &scene.worker.store;
    for number in [1, 100, 301, 400] {
        let found = find(store, number).await.expect("it waits");
        assert!(found.payload.is_some(), "{number}");
        assert_eq!(found.detail.task.crashes, Some(0));
        assert!(found.detail.task.ready_for.is_some());
    }
    for number in [101, 300] {
        let found = find(store, number).await.expect("it waits");
        assert_eq!(found.payload, None, "{number}");
        assert_eq!(found.detail.damage, None);
        assert_eq!(found.detail.task.name.as_deref(), Some("job"));
        assert_eq!(found.detail.priority, Some(Priority::Normal));
    }
    let found = payload(store, 201).await;
    assert_eq!(found, Some(Beginning::of(vec![7; 600])));
}

/// Returns a task whose id was created by this producer at this time. Tasks of other producers are between its tasks.
fn created(producer: u8, millis: u64) -> NewTask {
    let mut bytes = TaskId::new().to_bytes();
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[15] = producer;
    NewTask {
        id: TaskId::from_bytes(bytes),
        ..task(1)
    }
}

/// Two producers store batches. The clock of one of them is ahead. Tasks that are due are between the others, and a task was given back.
#[tokio::test]
async fn a_small_payload_is_found_by_the_time_in_the_id() {
    needs_redis!();
    let scene = Scene::new().await;
    let start = scene.clock.wall().as_millis() as u64;
    let mut ids = Vec::new();
    for batch in 0..20 {
        let producer = (batch % 2) as u8;
        let time = start + 1_000 * batch + 700 * u64::from(producer);
        let new: Vec<_> = (0..50)
            .map(|nth| created(producer, time + nth / 9))
            .collect();
        ids.extend(new.iter().map(|task| task.id));
        scene.worker.enqueue(new).await;
        scene.worker.enqueue([later(batch, 3 * SECOND)]).await;
        scene.clock.advance(SECOND);
        scene.worker.turn(Vec::new(), 0).await;
    }
    let claim = scene.worker.claim(3).await;
    scene
        .worker
        .turn(verdicts(&claim, || Verdict::Release), 0)
        .await;
    for id in ids {
        let found = scene.worker.store.find(id).await.unwrap();
        assert!(found.expect("it waits").payload.is_some(), "{id}");
    }
}

/// A third of the tasks were delayed, so old ids are everywhere in the list. Entries in the middle cannot be read.
#[tokio::test]
async fn a_small_payload_is_found_among_tasks_that_were_delayed() {
    needs_redis!();
    let scene = Scene::new().await;
    let start = scene.clock.wall().as_millis() as u64;
    let delayed = |batch: u64| NewTask {
        delay: HOUR + SECOND * batch as u32,
        ..created(0, start + batch)
    };
    for batch in 0..30 {
        scene.worker.enqueue((0..20).map(|_| delayed(batch))).await;
    }
    scene.clock.advance(HOUR);
    let mut ids = Vec::new();
    for _ in 0..30 {
        scene.worker.turn(Vec::new(), 0).await;
        let now = scene.clock.wall().as_millis() as u64;
        let new: Vec<_> = (0..40).map(|nth| created(1, now + nth)).collect();
        ids.extend(new.iter().map(|task| task.id));
        scene.worker.enqueue(new).await;
        scene.clock.advance(SECOND);
    }
    assert_eq!(found_payloads(&scene, &ids).await, ids.len());
    scene.run(
        "local middle = math.floor(call('LLEN', 'ready') / 2)
        for at = middle, middle + 2 do call('LSET', 'ready', at, 'garbled') end",
    );
    assert!(found_payloads(&scene, &ids).await >= ids.len() - 3);
}

/// Returns the number of these tasks whose payload is found.
async fn found_payloads(scene: &Scene, ids: &[TaskId]) -> usize {
    let mut payloads = 0;
    for id in ids {
        let found = scene.worker.store.find(*id).await.unwrap();
        payloads += usize::from(found.is_some_and(|it| it.payload.is_some()));
    }
    payloads
}

#[tokio::test]
async fn a_payload_is_found_in_the_middle_of_a_group() {
    needs_redis!();
    let scene = Scene::new().await;
    let start = scene.clock.wall().as_millis() as u64;
    let in_group = |millis: u64| NewTask {
        id: created(0, start + millis).id,
        ..grouped(1, "q", "g")
    };
    let tasks: Vec<_> = (0..400).map(in_group).collect();
    let middle = tasks[200].id;
    for batch in tasks.chunks(100) {
        scene.worker.enqueue(batch.to_vec()).await;
    }
    let found = scene.worker.store.find(middle).await.unwrap();
    assert!(found.expect("it waits").payload.is_some());
}

/// Until a claim skips it, the list has the old entry, too.
#[tokio::test]
async fn the_payload_of_a_replaced_task_is_never_an_old_one() {
    needs_redis!();
    let scene = Scene::new().await;
    let key = || Key::new("key").until_started().replace();
    for number in 1..=4 {
        let delay = if number == 3 { HOUR } else { Duration::ZERO };
        let new = NewTask {
            delay,
            ..task(number)
        };
        let expected = Beginning::of(new.payload.clone());
        scene.worker.enqueue([with_key(key(), new)]).await;
        let found = payload(&scene.worker.store, 1).await;
        assert!(found.is_none_or(|it| it == expected), "{number}");
    }
    let ids = head(&scene.worker.store, &QueueName::DEFAULT, 9).await;
    assert_eq!(ids, [id(1)]);
}

/// A list is read a page at a time. The ends of pages, and of what is skipped, are at different tasks.
#[tokio::test]
async fn the_head_of_a_long_list_has_each_task_that_waits_in_order() {
    needs_redis!();
    let scene = Scene::new().await;
    let _served = Worker::of_queue(&scene.worker.store, "q").await;
    let worker = &scene.worker;
    worker.enqueue((0..90).map(|nth| queued(nth, "q"))).await;
    let is_cancelled = |nth: &u64| nth % 3 == 1 || (20..60).contains(nth);
    let cancelled = (0..90).filter(is_cancelled).map(id).collect();
    worker.store.cancel(cancelled).await.unwrap();
    let waiting: Vec<_> = (0..90).filter(|nth| !is_cancelled(nth)).map(id).collect();
    for limit in [1, 12, 50] {
        let expected = &waiting[..limit.min(waiting.len())];
        assert_eq!(head(&worker.store, &queue_name("q"), limit).await, expected);
    }
}

/// Without the names of types, the head has the lists that are known otherwise.
#[tokio::test]
async fn a_head_needs_no_recorded_types() {
    needs_redis!();
    let scene = Scene::new().await;
    let _served = Worker::of_queue(&scene.worker.store, "q").await;
    scene.worker.enqueue([task(1), queued(2, "q")]).await;
    scene.ask(&["DEL", &scene.key("types")]);
    let store = &scene.worker.store;
    assert_eq!(head(store, &queue_name("q"), 9).await, [id(2)]);
}

/// A scene with a task in each status. The tasks have errors, progress, keys and separate payloads.
async fn scene_of_all() -> Scene {
    let scene = Scene::new().await;
    let new = |number: u64| NewTask {
        payload: vec![7; 600],
        ..with_key(Key::new(number.to_string()), later(number, SECOND))
    };
    scene.worker.enqueue((1..=6).map(new)).await;
    for _ in 0..2 {
        scene.clock.advance(SECOND);
        scene.worker.turn(Vec::new(), 0).await;
        let failed = scene.worker.claim(6).await;
        let verdict = || Verdict::Retry {
            after: SECOND,
            error: String::from("error"),
            took: None,
        };
        scene.worker.turn(verdicts(&failed, verdict), 0).await;
    }
    scene.clock.advance(SECOND);
    scene.worker.turn(Vec::new(), 0).await;
    for (number, verdict) in [
        (1, done as fn(&Claim) -> _),
        (2, |it: &Claim| dead(it, DeadReason::Fatal, "fatal")),
    ] {
        let claim = scene.worker.claim(1).await;
        assert_eq!(claim.tasks[0].id, id(number));
        scene.worker.turn(verdict(&claim), 0).await;
    }
    let epoch = scene.worker.claim(1).await.epoch;
    let progress = Progress {
        epoch,
        number: 1,
        bytes: b"7".to_vec(),
    };
    let report = ProgressReport {
        id: id(3),
        progress,
    };
    let refused = scene.worker.store.report_progress(vec![report]).await;
    assert_eq!(refused.unwrap(), []);
    scene.worker.enqueue([later(7, HOUR)]).await;
    scene
}

/// The fields of hashes whose rows are damaged, with the number of the task and the status that it must have.
const ROWS: [(&str, &str, u64, Status); 12] = [
    ("results", "id(1)", 1, Status::Done),
    ("dead", "id(2)", 2, Status::Dead),
    ("payloads", "id(2)", 2, Status::Dead),
    ("errors", "id(2)", 2, Status::Dead),
    ("running", "id(3)", 3, Status::Running),
    ("payloads", "id(3)", 3, Status::Running),
    ("progress", "id(3)", 3, Status::Running),
    ("claims", "owner", 3, Status::Running),
    ("sessions", "session", 3, Status::Running),
    ("alive", "id(4)", 4, Status::Waiting),
    ("errors", "id(4)", 4, Status::Waiting),
    ("delayed", "id(7)", 7, Status::Delayed),
];

/// A row is cut to each length, garbled, and removed.
#[tokio::test]
async fn damage_hides_no_task() {
    needs_redis!();
    let scene = scene_of_all().await;
    let fields = "local owner, session = string.sub(call('HGET', 'running', id(3)), 1, 16) .. 'o'
        session = string.sub(call('HGET', 'claims', owner) or '', 21) ";
    for (key, field, number, status) in ROWS {
        let stored = scene.run(&format!("{fields} return call('HGET', '{key}', {field})"));
        let redis::Value::BulkString(row) = stored else {
            panic!("{key} has a row");
        };
        let row: String = row.iter().map(|byte| format!("\\{byte:03}")).collect();
        let set =
            |value: &str| scene.run(&format!("{fields} call('HSET', '{key}', {field}, {value})"));
        for len in 0..(row.len() / 4).min(120) {
            set(&format!("string.sub('{row}', 1, {len})"));
            let found = find(&scene.worker.store, number).await;
            let found = found.unwrap_or_else(|| panic!("{key} {len}: the task is hidden"));
            // The result of a task may be all that is left of it.
            let is_result = key == "results" && found.status() == Status::Dead;
            assert!(found.status() == status || is_result, "{key} {len}");
        }
        let garbled = format!(
            "string.gsub('{row}', '.', function(c) return string.char(255 - string.byte(c)) end)"
        );
        set(&format!("({garbled})"));
        find(&scene.worker.store, number)
            .await
            .expect("it is there");
        set(&format!("'{row}'"));
        let found = find(&scene.worker.store, number)
            .await
            .expect("it is there");
        assert_eq!((found.status(), found.detail.damage), (status, None));
        if !["results", "running", "alive"].contains(&key) {
            scene.run(&format!("{fields} call('HDEL', '{key}', {field})"));
            let found = find(&scene.worker.store, number).await;
            assert_eq!(found.expect("it is there").status(), status, "{key}");
            set(&format!("'{row}'"));
        }
    }
}

#[tokio::test]
async fn a_lost_payload_is_reported() {
    needs_redis!();
    let scene = scene_of_all().await;
    let damage = async || find(&scene.worker.store, 3).await.unwrap().detail.damage;
    scene.run("call('HSET', 'payloads', id(3), 'short')");
    let expected = "its payload has 5 bytes instead of 600";
    assert_eq!(damage().await.as_deref(), Some(expected));
    scene.run("call('HDEL', 'payloads', id(3))");
    assert_eq!(damage().await.as_deref(), Some("its payload is missing"));
    scene.run("call('HSET', 'running', id(3), string.sub(call('HGET', 'running', id(3)), 1, 40))");
    let expected = "its entry is missing, or cannot be read";
    assert_eq!(damage().await.as_deref(), Some(expected));
    scene.run("call('HDEL', 'dead', id(2))");
    let found = find(&scene.worker.store, 2).await.unwrap();
    assert_eq!(found.detail.task.reason, Some(DeadReason::Damaged));
    assert!(found.detail.damage.is_some());
}

/// Entries that cannot be read are left out. The next claim ends their tasks.
#[tokio::test]
async fn unreadable_entries_hide_no_others_of_the_head() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((1..=3).map(task)).await;
    for garbage in [
        "''",
        "'x'",
        "string.rep('x', 59)",
        "string.rep('\\255', 70)",
    ] {
        scene.run(&format!("call('LPUSH', 'ready', {garbage})"));
    }
    let ids = head(&scene.worker.store, &QueueName::DEFAULT, 2).await;
    assert_eq!(ids, [id(1), id(2)]);
}
