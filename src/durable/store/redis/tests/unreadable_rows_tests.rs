//! Missing or unreadable rows that belong to no single task: no script fails because of them, and maintenance repairs them.

use redis::Value;

use super::super::{enqueue, routing};
use super::scene::{HOUR, SECOND, Scene, later};
use super::*;
use crate::durable::store::kind::Kind;

mod ends_tests;
mod sessions_tests;

fn damage(scene: &Scene) -> String {
    let damage = scene.worker.store.damage();
    damage.map(|(_, last)| last).unwrap_or_default()
}

/// Returns `true` if a worker can go idle, which means that its turn has not failed in part.
async fn can_go_idle(worker: &Worker) -> bool {
    worker.turn(Vec::new(), 1).await.next != Some(Duration::ZERO)
}

/// Runs all tasks with workers that open another session if theirs has ended. Returns the ids of the tasks that ran.
async fn finish(scene: &Scene, names: &[&'static str]) -> Vec<TaskId> {
    let mut all = Vec::new();
    let store = Arc::new(scene.try_open().await.unwrap());
    for round in 0..40 {
        let worker = Worker::of_names(&store, names).await;
        all.extend(scene.run_all(&worker).await);
        worker.store.close_session(worker.session).await.unwrap();
        scene.clock.advance(SECOND);
        scene.maintain().await;
        let counts = scene.worker.store.counts().await.unwrap();
        if round > 3 && counts.waiting + counts.delayed + counts.running == 0 {
            break;
        }
    }
    all.sort_unstable();
    all
}

#[tokio::test]
async fn a_store_with_an_unreadable_layout_opens_after_its_repair() {
    needs_redis!();
    for (field, remedy) in [("layout", "set it to 2"), ("partitions", "was created")] {
        for text in ["", "x", "-", "\\200\\1"] {
            let scene = Scene::new().await;
            scene.run(&format!("call('HSET', 'meta', '{field}', '{text}')"));
            let error = scene.try_open().await.expect_err("it cannot be read");
            assert!(error.is_corrupt(), "{field}: {error}");
            let message = error.to_string();
            assert!(
                message.contains(remedy) && message.contains(field),
                "{message}"
            );
            // A client that has opened the store continues, and knows the value to write.
            scene.worker.enqueue([task(1)]).await;
            assert_eq!(scene.run_all(&scene.worker).await, [id(1)]);
            scene.maintain().await;
            assert!(damage(&scene).contains(field), "{}", damage(&scene));
            scene.try_open().await.expect("it was repaired");
        }
    }
}

/// A layout that is a number is kept, since it may be that of another version.
#[tokio::test]
async fn a_layout_of_another_version_is_not_repaired() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.run("call('HSET', 'meta', 'layout', 3)");
    let failure = scene.worker.store.maintain(9).await.unwrap_err();
    assert!(matches!(failure.cause, Cause::NewerLayout { found: 3, .. }));
    assert!(scene.try_open().await.unwrap_err().is_newer_layout());
}

/// Unreadable numbers start again, and no script fails because of them.
#[tokio::test]
async fn an_unreadable_number_stops_no_request() {
    needs_redis!();
    for text in ["x", "", "1.5", "9999999999999999999999"] {
        let scene = Scene::new().await;
        let worker = &scene.worker;
        worker.enqueue([task(1), task(2)]).await;
        worker.store.cancel(vec![id(2)]).await.unwrap();
        scene.run(&format!(
            "for _, field in ipairs({{ 'tombstones', 'stored', 'claimed', 'done', 'retried', 'snoozed', 'died', 'released',
                'crashed', 'lost', 'cancelled', 'ended_apart', 'cursor', 'seen', 'checked', 'census', 'progress', 'survey', 'damaged', 'damaged_at',
                'epoch' }}) do call('HSET', 'meta', field, '{text}') end"
        ));
        worker.store.counts().await.unwrap();
        worker.enqueue([task(3)]).await;
        let claim = worker.claim(9).await;
        assert_eq!(claim.tasks.len(), 2, "{text}: {claim:?}");
        let turned = worker.turn(done(&claim), 1).await;
        assert!(
            turned.next != Some(Duration::ZERO),
            "{text}: a part has failed"
        );
        scene.maintain().await;
        assert!(damage(&scene).contains("a number of meta"), "{text}");
        scene.check();
        worker.enqueue([task(4)]).await;
        assert_eq!(scene.run_all(worker).await, [id(4)], "{text}");
        let counts = worker.store.counts().await.unwrap();
        let counts = (counts.stored, counts.claimed, counts.done);
        assert_eq!(counts, (1, 1, 1), "{text}");
    }
}

/// No route names the list, so only the survey of the last census leads to it.
#[tokio::test]
async fn a_counted_list_of_another_type_stops_no_census() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.run(
        "local list = '00000000000000ff' call('SET', 'ready:' .. list, 'text')
        call('HSET', 'meta', 'survey', cmsgpack.pack({ left = 0, lists = list }))",
    );
    scene.orphan(1..2);
    scene.maintain().await;
    assert!(scene.is_damaged(1).await);
    scene.check();
}

/// A cancelled task stays cancelled.
#[tokio::test]
async fn unreadable_tombstones_stop_no_request() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue([task(1), task(2), task(3)]).await;
    worker.store.cancel(vec![id(1)]).await.unwrap();
    scene.run("for _, it in ipairs(call('HKEYS', 'tombstones')) do call('HSET', 'tombstones', it, 'x') end");
    // A task with the same id and kind is stored once more.
    worker
        .enqueue([NewTask {
            retention: Duration::ZERO,
            ..task(4)
        }])
        .await;
    worker.store.cancel(vec![id(4)]).await.unwrap();
    scene.run("for _, it in ipairs(call('HKEYS', 'tombstones')) do call('HSET', 'tombstones', it, 'x') end");
    worker.enqueue([task(4)]).await;
    worker.store.cancel(vec![id(4)]).await.unwrap();
    assert_eq!(scene.run_all(worker).await, [id(2), id(3)]);
    assert!(can_go_idle(worker).await);
    scene.maintain().await;
    scene.check();
}

#[tokio::test]
async fn unreadable_rows_of_claims_stop_no_turn() {
    needs_redis!();
    for damage in [
        "call('HSET', 'claims', epoch, '')",
        "call('HSET', 'claims', epoch, 'short')",
        "call('HSET', 'claims', epoch .. 'n', 'x')",
        "call('HSET', 'claims', epoch .. 'n', '')",
        "call('HSET', 'claims', epoch .. 'o', '')",
        "call('HSET', 'claims', epoch .. 'o', 'xxxxxxxxxxxxxxxx')",
        "call('ZADD', 'lease', 1, 'x')",
        "call('ZADD', 'lease', 1, 'x', 1, 'y') call('HSET', 'claims', 'x', '', 'xo', 'z')",
    ] {
        for is_dead in [false, true] {
            let scene = Scene::new().await;
            let worker = scene.worker_of(&["job"]).await;
            worker.enqueue((0..3).map(task)).await;
            let claim = worker.claim(3).await;
            scene.run(&format!(
                "local epoch = string.sub(call('HGET', 'running', id(0)), 1, 16) {damage}"
            ));
            if !is_dead {
                let turned = worker.turn(done(&claim), 0).await;
                assert_eq!(turned.refused, [], "{damage}");
            }
            scene.clock.advance(HOUR);
            let ran = finish(&scene, &["job"]).await;
            let expected = if is_dead { 3 } else { 0 };
            assert_eq!(ran.len(), expected, "{damage}");
            assert!(can_go_idle(&scene.worker).await, "{damage}");
            scene.check();
        }
    }
}

/// The row of a delayed task holds the entry of another task.
#[tokio::test]
async fn an_entry_of_another_task_is_not_delayed() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker
        .enqueue([later(1, SECOND), later(2, SECOND), later(3, 2 * SECOND)])
        .await;
    scene.run(
        "call('HSET', 'delayed', id(1), call('HGET', 'delayed', id(3)))
        call('HSET', 'delayed', id(2), string.rep('x', 80))",
    );
    scene.clock.advance(2 * SECOND);
    assert_eq!(finish(&scene, &["job"]).await, [id(3)]);
    assert!(scene.is_damaged(1).await && scene.is_damaged(2).await);
    scene.maintain().await;
    scene.check();
}

/// One list cannot be written. The list behind it ends with the entry of a cancelled task, which equals the new entry.
#[tokio::test]
async fn a_failed_enqueue_leaves_no_entry_beside_a_tombstone() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    let list = format!(
        "ready:{:016x}",
        u64::from_be_bytes(Kind::of("mail").to_bytes())
    );
    let forgotten = || NewTask {
        retention: Duration::ZERO,
        ..task(1)
    };
    store_at_once(worker, [forgotten()]).await.unwrap();
    worker.store.cancel(vec![id(1)]).await.unwrap();
    scene.run(&format!("call('SET', '{list}', 'text')"));
    let failed = store_at_once(worker, [forgotten(), named(6, "mail")]).await;
    assert_fails(failed, &Cause::Corrupt, Effect::None);
    assert_eq!(worker.store.counts().await.unwrap().stored, 1);
    // Maintenance would remove the tombstone, too.
    scene.server.ask(&["DEL", &scene.key(&list)]);
    scene.check();
    let mail = scene.worker_of(&["mail"]).await;
    assert_eq!(scene.run_all(worker).await, []);
    assert_eq!(scene.run_all(&mail).await, []);
    scene.check();
}

/// Stores tasks, always at the same client time.
async fn store_at_once(
    worker: &Worker,
    tasks: impl IntoIterator<Item = NewTask>,
) -> Result<Value, Failure> {
    let inner = &worker.store.inner;
    let known = routing::read(inner, 0).await?.known;
    let request = worker.new_enqueue(tasks);
    let tasks: Vec<_> = request.batch.close().iter().collect();
    let arguments = enqueue::arguments(&request, &tasks, &inner.client_id, &known, 1);
    inner.run(&inner.scripts.enqueue, 0, arguments).await
}

/// All keys, each with the command that reads its type.
#[tokio::test]
async fn a_key_of_another_type_is_removed_and_other_tasks_run() {
    needs_redis!();
    for name in &super::super::keys::ALL[1..] {
        let scene = Scene::new().await;
        let mail = scene.worker_of(&["job", "mail"]).await;
        mail.enqueue((0..4).map(|number| named(number, "mail")))
            .await;
        mail.enqueue([task(4), later(5, SECOND)]).await;
        let idle = scene.run("return redis.call('KEYS', ARGV[1] .. 'idle:*')[1] or 'none'");
        assert!(!matches!(idle, Value::Nil));
        mail.claim(1).await;
        for kind in [
            "'SET', key, 'x'",
            "'ZADD', key, 1, 'x'",
            "'RPUSH', key, 'x'",
            "'HSET', key, 'x', 'x'",
            "'SADD', key, 'x'",
        ] {
            let name = name.to_ascii_lowercase();
            scene.run(&format!(
                "local key = ARGV[1] .. '{name}' redis.call('DEL', key) redis.call({kind})"
            ));
        }
        scene.maintain().await;
        scene.clock.advance(HOUR);
        finish(&scene, &["job", "mail"]).await;
        let states = mail.store.status((0..6).map(id).collect()).await.unwrap();
        let is_open = |state: &TaskState| {
            matches!(
                state,
                TaskState::Waiting | TaskState::Delayed | TaskState::Running
            )
        };
        assert!(!states.iter().any(is_open), "{name}: {states:?}");
        let worker = scene.worker_of(&["job", "mail"]).await;
        worker.enqueue([task(9)]).await;
        assert_eq!(scene.run_all(&worker).await, [id(9)], "{name}");
        assert!(can_go_idle(&worker).await, "{name}");
        scene.check();
    }
}
