//! Missing or unreadable rows that belong to no single task: no script fails because of them, and maintenance repairs them.

use super::super::{request, routing};
use super::census_tests::{HOUR, SECOND, Scene, later};
use super::*;
use crate::durable::DeadReason;
use crate::durable::store::kind::Kind;
use redis::Value;

/// Returns `true` if a worker can go idle, which means that its turn has not failed in part.
async fn may_rest(worker: &Worker) -> bool {
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

fn damage(scene: &Scene) -> String {
    let damage = scene.worker.store.damage();
    damage.map(|(_, last)| last).unwrap_or_default()
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
            let said = error.to_string();
            assert!(said.contains(remedy) && said.contains(field), "{said}");
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
        let told = worker.turn(done(&claim), 1).await;
        assert!(
            told.next != Some(Duration::ZERO),
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

#[tokio::test]
async fn the_sessions_of_a_set_are_counted_again() {
    needs_redis!();
    let scene = Scene::new().await;
    let names = &["job", "mail"];
    let kept = scene.worker_of(names).await;
    for text in ["x", "", "1.5"] {
        let garble = || {
            scene.run(&format!(
                "for _, field in ipairs(call('HKEYS', 'routes')) do
                    if string.sub(field, 1, 1) == 'n' then call('HSET', 'routes', field, '{text}') end
                end"
            ))
        };
        garble();
        let worker = scene.worker_of(names).await;
        garble();
        worker.store.close_session(worker.session).await.unwrap();
        garble();
        scene.maintain().await;
        // The sets of live workers are kept, and the others are removed.
        kept.turn(Vec::new(), 1).await;
        scene.worker.turn(Vec::new(), 1).await;
    }
    kept.store.close_session(kept.session).await.unwrap();
    scene.maintain().await;
    let sets = scene.run("return #call('HGET', 'routes', 'sets')");
    assert_eq!(sets, Value::Int(8));
}

/// A number that is too large would keep the lists of a set forever.
#[tokio::test]
async fn a_set_whose_sessions_are_lost_is_removed() {
    needs_redis!();
    let scene = Scene::new().await;
    drop(scene.worker_of(&["job", "mail"]).await);
    scene.run("redis.call('DEL', ARGV[1] .. 'sessions')");
    let answer = scene
        .worker
        .store
        .turn(scene.worker.new_turn(Vec::new(), 1));
    assert_fails(answer.await, &Cause::NoSession, Effect::None);
    let _kept = scene.worker_of(&["job"]).await;
    scene.maintain().await;
    let sets = scene.run("return #call('HGET', 'routes', 'sets')");
    assert_eq!(sets, Value::Int(8));
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

/// The only set reads only the main list.
#[tokio::test]
async fn the_sessions_of_the_only_set_are_counted_again() {
    needs_redis!();
    let scene = Scene::new().await;
    for number in [-5, 0] {
        scene.run(&format!(
            "call('HSET', 'routes', 'n' .. call('HGET', 'routes', 'sets'), {number})"
        ));
        scene.maintain().await;
        let found =
            scene.run("return call('HGET', 'routes', 'n' .. call('HGET', 'routes', 'sets'))");
        assert_eq!(found, Value::BulkString(b"1".into()), "{number}");
        assert_eq!(scene.worker.turn(Vec::new(), 1).await.claim, None);
    }
    scene.run("call('HSET', 'routes', 'n' .. call('HGET', 'routes', 'sets'), 5)");
    let session = scene.worker.session;
    scene.worker.store.close_session(session).await.unwrap();
    scene.maintain().await;
    let sets = scene.run("return #call('HGET', 'routes', 'sets')");
    assert_eq!(sets, Value::Int(0));
}

/// Adds enough sessions that a round over all of them takes several passes of maintenance.
fn add_sessions_of_producers(scene: &Scene) {
    scene.run(
        "local _, now = struct.unpack('>I6I6', call('HGET', 'meta', 'aged'))
        for number = 1, 1000 do
            local row = { 0, '', '', '', now, 'a-client', '', '' }
            call('HSET', 'sessions', 'p' .. number, cmsgpack.pack(row))
        end",
    );
}

/// Finishes the current round over the sessions, and runs a script before each pass. Returns the number of passes.
async fn finish_round(scene: &Scene, script: &str) -> u32 {
    for passes in 1.. {
        scene.run(script);
        scene.worker.store.maintain(1_000).await.unwrap();
        if scene.run("return call('HGET', 'meta', 'cursor')") == Value::BulkString(b"0".into()) {
            return passes;
        }
    }
    unreachable!("a round ends")
}

/// Returns the number of sets, and the total of their session numbers.
fn sets_and_sessions(scene: &Scene) -> (Value, Value) {
    let sets = scene.run("return #call('HGET', 'routes', 'sets') / 8");
    let sum = "local sum = 0
        for _, field in ipairs(call('HKEYS', 'routes')) do
            if string.sub(field, 1, 1) == 'n' then sum = sum + (call('HGET', 'routes', field)) end
        end
        return sum";
    (sets, scene.run(sum))
}

#[tokio::test]
async fn a_set_without_sessions_is_removed_after_a_round() {
    needs_redis!();
    let scene = Scene::new().await;
    add_sessions_of_producers(&scene);
    for notes in [
        "",
        "call('HSET', 'meta', 'seen', 'x')",
        "call('HDEL', 'meta', 'seen')",
    ] {
        let lost = scene.worker_of(&["job", "mail"]).await;
        scene.run(&format!("call('HDEL', 'sessions', '{}')", lost.session));
        assert!(finish_round(&scene, notes).await > 3);
        assert_eq!(
            sets_and_sessions(&scene),
            (Value::Int(1), Value::Int(1)),
            "{notes}"
        );
    }
}

#[tokio::test]
async fn a_set_with_a_session_is_kept_after_a_round() {
    needs_redis!();
    let scene = Scene::new().await;
    add_sessions_of_producers(&scene);
    let no_numbers = "for _, field in ipairs(call('HKEYS', 'routes')) do
            if string.sub(field, 1, 1) == 'n' then call('HDEL', 'routes', field) end
        end";
    for damage in ["call('HSET', 'meta', 'seen', '')", no_numbers] {
        assert!(finish_round(&scene, damage).await > 3);
        assert_eq!(
            scene.run("return #call('HGET', 'routes', 'sets')"),
            Value::Int(8)
        );
    }
    assert!(finish_round(&scene, "").await > 3);
    assert_eq!(sets_and_sessions(&scene), (Value::Int(1), Value::Int(1)));
}

#[tokio::test]
async fn an_unreadable_row_of_a_session_is_removed() {
    needs_redis!();
    for row in [
        "'x'",
        "cmsgpack.pack({ 0, '', '', '', 0, 'a-client', { 1 }, '' })",
    ] {
        let scene = Scene::new().await;
        let lost = scene.worker_of(&["mail"]).await;
        let session = lost.session;
        scene.run(&format!("call('HSET', 'sessions', '{session}', {row})"));
        scene.maintain().await;
        assert!(damage(&scene).contains("session"), "{}", damage(&scene));
        scene.maintain().await;
        let left = scene.run("return call('HLEN', 'sessions')");
        assert_eq!(left, Value::Int(1));
        let sets = scene.run("return #call('HGET', 'routes', 'sets')");
        assert_eq!(sets, Value::Int(8), "no session has the set");
    }
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
    assert!(may_rest(worker).await);
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
            assert!(may_rest(&scene.worker).await, "{damage}");
            scene.check();
        }
    }
}

/// The other states in the same answer are complete.
#[tokio::test]
async fn unreadable_results_and_dead_letters_are_damaged() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..8).map(task)).await;
    let claim = worker.claim(8).await;
    let verdict = |at: usize| match at < 4 {
        true => Verdict::Done(b"output".to_vec()),
        false => Verdict::Dead {
            reason: DeadReason::Fatal,
            error: "error".into(),
        },
    };
    let tasks = claim.tasks.iter().enumerate();
    let tasks = tasks.map(|(at, task)| (task.id, verdict(at))).collect();
    let epoch = claim.epoch;
    worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
    for row in ["", "x", "xxxxxx", "\\200xxxxxx", "\\200xxxxxxxxxxxxxxxxxx"] {
        scene.run(&format!(
            "call('HSET', 'results', id(1), '{row}') call('HSET', 'dead', id(5), '{row}')"
        ));
        let seen = worker.store.status((0..8).map(id).collect()).await.unwrap();
        let is_damaged = |seen: &TaskState| matches!(seen, TaskState::Dead { reason, .. } if *reason == DeadReason::Damaged);
        let damaged: Vec<_> = (0..8).filter(|&at| is_damaged(&seen[at])).collect();
        assert_eq!(damaged, [1, 5], "{row}: {seen:?}");
        assert_eq!(seen[0], TaskState::Done(b"output".to_vec()));
        let letters = worker
            .store
            .dead_letters(DeadFilter::all(), 9)
            .await
            .unwrap();
        assert_eq!(letters.len(), 4, "{row}: {letters:?}");
        // The damaged task cannot run, so it is not replayed.
        let damaged = DeadFilter::ids([id(5)]);
        assert_eq!(
            worker.store.replay_dead_letters(damaged).await.unwrap(),
            0,
            "{row}"
        );
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

/// Creates rows to which no other row leads.
#[tokio::test]
async fn orphaned_rows_are_removed_or_restored() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    let large = |number| NewTask {
        payload: vec![7; 2000],
        ..task(number)
    };
    worker.enqueue([large(1), large(2), task(3)]).await;
    let claim = worker.claim(1).await;
    let failed = dead(&claim, DeadReason::Fatal, "error");
    worker.turn(failed, 0).await;
    worker.turn(done(&worker.claim(1).await), 0).await;
    scene.run("for _, key in ipairs({ 'died', 'expiry_bins', 'expiry' }) do redis.call('DEL', ARGV[1] .. key) end
        for _, key in ipairs({ 'payloads', 'errors', 'cancel', 'watchers' }) do call('HSET', key, id(99), 'x') end
        call('HSET', 'results', id(98), struct.pack('>I6', 1) .. 'd', id(97), 'x') call('HSET', 'expiry_bins', 'x', '', '5-0', '')
        call('SADD', 'quarantined', id(99)) call('HSET', 'dead', id(3), 'x')");
    scene.maintain().await;
    // The dead letter and the result are restored, and kept for as long as before.
    let letters = worker
        .store
        .dead_letters(DeadFilter::all(), 9)
        .await
        .unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].error, "error");
    assert_eq!(scene.seen(2).await, TaskState::Done(b"output".to_vec()));
    assert!(worker.store.damage().is_some());
    let sizes = scene.run(
        "return { call('HLEN', 'payloads'), call('HLEN', 'results'), call('HLEN', 'expiry_bins') }",
    );
    assert_eq!(sizes, Value::Array([1, 1, 2].map(Value::Int).into()));
    for key in ["errors", "cancel", "watchers", "quarantined"] {
        let left = scene.server.ask(&["EXISTS", &scene.key(key)]);
        assert_eq!(left, Value::Int(0), "{key}");
    }
    scene.run("call('HDEL', 'results', id(2)) call('HDEL', 'meta', 'damaged')");
    scene.maintain().await;
    assert_eq!(damage(&scene), "a result is missing");
    age(&scene.server, &scene.namespace, &scene.clock, 2 * HOUR);
    scene.maintain().await;
    assert_eq!(scene.seen(2).await, TaskState::Absent);
    assert_eq!(scene.run_all(worker).await, [id(3)]);
    scene.check();
    let left = scene.server.ask(&["EXISTS", &scene.key("expiry_bins")]);
    assert_eq!(left, Value::Int(1), "of the last task");
}

/// A pass examines some dead letters and some payloads. The payloads may belong to other dead letters.
#[tokio::test]
async fn payloads_of_dead_letters_without_times() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.run(
        "for n = 1, 600 do
            call('HSET', 'dead', id(n), '\\1\\0\\0\\0\\0' .. id(n) .. string.rep('\\0', 60))
            call('HSET', 'payloads', id(n), 'payload')
        end",
    );
    for _ in 0..20 {
        scene.maintain().await;
    }
    let left = scene.run("return { call('HLEN', 'payloads'), call('HLEN', 'dead') }");
    assert_eq!(left, Value::Array([600, 600].map(Value::Int).into()));
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
    let arguments = request::enqueue(&request, &tasks, &inner.client_id, &known, 1);
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
        let seen = mail.store.status((0..6).map(id).collect()).await.unwrap();
        let is_open = |seen: &TaskState| {
            matches!(
                seen,
                TaskState::Waiting | TaskState::Delayed | TaskState::Running
            )
        };
        assert!(!seen.iter().any(is_open), "{name}: {seen:?}");
        let worker = scene.worker_of(&["job", "mail"]).await;
        worker.enqueue([task(9)]).await;
        assert_eq!(scene.run_all(&worker).await, [id(9)], "{name}");
        assert!(may_rest(&worker).await, "{name}");
        scene.check();
    }
}
