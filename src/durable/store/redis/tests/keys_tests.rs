//! Keys: damage neither frees them nor destroys their tasks, and maintenance removes their rows.

use super::scene::{HOUR, SECOND, Scene, later};
use super::*;
use crate::durable::Key;
use crate::durable::key::Conflict;
use crate::durable::store::suite::with_key;

fn joining(text: &str, task: NewTask) -> NewTask {
    with_key(Key::new(text), task)
}

/// A task that replaces the payload of the one that holds its key.
pub(super) fn replacing(text: &str, task: NewTask) -> NewTask {
    with_key(Key::new(text).replace(), task)
}

/// Stores a task. Returns the task that holds its key, and what has happened to it.
async fn store(scene: &Scene, task: NewTask) -> Option<(TaskId, Conflict)> {
    let request = scene.worker.new_enqueue([task]);
    let enqueued = scene.worker.store.enqueue(request).await.unwrap();
    let conflict = enqueued.conflicts.first();
    conflict.map(|it| (it.holder, it.resolution))
}

/// Replaces the only row of `held_keys` with the value of a Lua expression.
fn change_row(scene: &Scene, new: &str) {
    scene.run(&format!(
        "local found = call('HGETALL', 'held_keys') local row = found[2]
        call('HSET', 'held_keys', found[1], {new})"
    ));
}

/// The copy of the entry in the row of the key is cut, or one of its bytes is garbled.
#[tokio::test]
async fn a_garbled_copy_of_an_entry_damages_no_task() {
    needs_redis!();
    let garbled = |at| format!("string.sub(row, 1, {at}) .. '~' .. string.sub(row, {at} + 2)");
    let cut = |len| format!("string.sub(row, 1, {len})");
    let changes = [29, 30, 45, 60, 75, 88, 89, 90, 91, 110].map(cut);
    for change in changes
        .into_iter()
        .chain([29, 80, 85, 92, 108].map(garbled))
    {
        for (delay, conflict) in [(HOUR, Conflict::Replace), (Duration::ZERO, Conflict::Join)] {
            let scene = Scene::new().await;
            assert_eq!(store(&scene, replacing("k", later(1, delay))).await, None);
            change_row(&scene, &change);
            let answer = store(&scene, replacing("k", task(2))).await;
            assert_eq!(answer, Some((id(1), conflict)), "{change}");
            assert_eq!(scene.run_all(&scene.worker).await, [id(1)], "{change}");
            assert_eq!(scene.worker.store.damage(), None, "{change}");
            scene.check();
        }
    }
}

/// Without its copy of the entry, the row still says who holds the key.
#[tokio::test]
async fn a_row_without_a_copy_of_the_entry_holds_the_key() {
    needs_redis!();
    for (len, delay) in [(22, HOUR), (22, Duration::ZERO), (25, HOUR), (28, HOUR)] {
        let scene = Scene::new().await;
        assert_eq!(store(&scene, replacing("k", later(1, delay))).await, None);
        change_row(&scene, &format!("string.sub(row, 1, {len})"));
        let answer = store(&scene, replacing("k", task(2))).await;
        assert_eq!(answer, Some((id(1), Conflict::Join)), "{len}");
        scene.clock.advance(HOUR);
        assert_eq!(scene.run_all(&scene.worker).await, [id(1)], "{len}");
        assert_eq!(store(&scene, replacing("k", task(3))).await, None);
    }
}

/// A spawn does not write a damaged entry again, with a payload of its own.
#[tokio::test]
async fn a_damaged_delayed_task_is_joined() {
    needs_redis!();
    let scene = Scene::new().await;
    store(&scene, replacing("k", later(1, HOUR))).await;
    scene.run(
        "local delayed = call('HGETALL', 'delayed')
        call('HSET', 'delayed', delayed[1], string.sub(delayed[2], 1, 80))",
    );
    let entry = scene.ask(&["HVALS", &scene.key("delayed")]);
    let answer = store(&scene, replacing("k", task(2))).await;
    assert_eq!(answer, Some((id(1), Conflict::Join)));
    assert_eq!(scene.ask(&["HVALS", &scene.key("delayed")]), entry);
}

/// Maintenance would remove such a payload only after a census.
#[tokio::test]
async fn a_large_payload_that_is_replaced_by_a_small_one_is_removed_at_once() {
    needs_redis!();
    let scene = Scene::new().await;
    let large = NewTask {
        payload: vec![7; 100_000],
        ..task(1)
    };
    store(&scene, replacing("k", large)).await;
    let payloads = || scene.ask(&["HLEN", &scene.key("payloads")]);
    assert_eq!(payloads(), redis::Value::Int(1));
    let answer = store(&scene, replacing("k", task(2))).await;
    assert_eq!(answer, Some((id(1), Conflict::Replace)));
    assert_eq!(payloads(), redis::Value::Int(0));
}

#[tokio::test]
async fn maintenance_finishes_while_keys_become_free() {
    needs_redis!();
    let scene = Scene::new().await;
    for number in 0..20 {
        let held = later(100 + number, HOUR);
        scene
            .worker
            .enqueue([joining(&format!("held {number}"), held)])
            .await;
    }
    for number in 0..3 {
        let text = format!("free {number}");
        scene.worker.enqueue([joining(&text, task(number))]).await;
    }
    assert_eq!(scene.run_all(&scene.worker).await.len(), 3);
    assert!(!scene.worker.store.maintain(100).await.unwrap());
    let len = || scene.ask(&["HLEN", &scene.key("held_keys")]);
    assert_eq!(len(), redis::Value::Int(20));
    // If the budget of a pass is too small, later passes remove the rest.
    scene
        .worker
        .enqueue((0..3).map(|number| joining(&format!("{number}"), task(50 + number))))
        .await;
    assert_eq!(scene.run_all(&scene.worker).await.len(), 3);
    let store = &scene.worker.store;
    let mut passes = 0;
    while store.maintain(1).await.unwrap() {
        passes += 1;
    }
    assert!(passes >= 2, "{passes}");
    assert_eq!(len(), redis::Value::Int(20));
}

/// The row of the task in `alive` is lost, and the census restores it.
#[tokio::test]
async fn a_task_that_is_missing_keeps_its_key() {
    needs_redis!();
    for damage in [
        "call('DEL', 'alive')",
        "call('DEL', 'alive') call('SET', 'alive', 'x')",
    ] {
        let scene = Scene::new().await;
        let tasks = [
            joining("waits", task(1)),
            joining("is delayed", later(2, HOUR)),
        ];
        scene.worker.enqueue(tasks).await;
        scene.run(damage);
        scene.maintain().await;
        for (text, holder) in [("waits", 1), ("is delayed", 2)] {
            let answer = store(&scene, joining(text, task(9))).await;
            assert_eq!(answer, Some((id(holder), Conflict::Join)), "{damage}");
        }
        scene.check();
    }
}

#[tokio::test]
async fn lost_rows_of_keys_are_restored() {
    needs_redis!();
    for damage in [
        "call('DEL', 'held_keys')",
        "call('DEL', 'held_keys') call('SET', 'held_keys', 'x')",
        "for _, key in ipairs(call('HKEYS', 'held_keys')) do call('HSET', 'held_keys', key, 'short') end",
    ] {
        // Each pass of maintenance begins a census.
        let scene = Scene::with(true).await;
        scene.worker.enqueue([joining("runs", task(1))]).await;
        let claim = scene.worker.claim(1).await;
        let tasks = [
            joining("waits", task(2)),
            joining("is delayed", later(3, HOUR)),
            joining("is cancelled", task(4)),
        ];
        scene.worker.enqueue(tasks).await;
        scene.worker.store.cancel(vec![id(4)]).await.unwrap();
        scene.run(damage);
        scene.maintain().await;
        assert!(scene.worker.store.damage().is_some(), "{damage}");
        for (text, holder) in [("runs", 1), ("waits", 2), ("is delayed", 3)] {
            let answer = store(&scene, joining(text, task(9))).await;
            assert_eq!(
                answer,
                Some((id(holder), Conflict::Join)),
                "{damage}: {text}"
            );
        }
        assert_eq!(store(&scene, joining("is cancelled", task(8))).await, None);
        scene.worker.turn(done(&claim), 0).await;
        assert_eq!(store(&scene, joining("runs", task(10))).await, None);
        scene.check();
    }
}

/// A claim serves the list whose first task became ready first.
#[tokio::test]
async fn a_replaced_task_that_keeps_waiting_keeps_its_ready_time() {
    needs_redis!();
    let scene = Scene::new().await;
    assert_eq!(store(&scene, replacing("k", task(1))).await, None);
    let ready_at =
        || scene.run("return string.sub(redis.call('LINDEX', ARGV[1] .. 'ready', 0), 41, 46)");
    let before = ready_at();
    scene.clock.advance(5 * SECOND);
    let answer = store(&scene, replacing("k", task(2))).await;
    assert_eq!(answer, Some((id(1), Conflict::Replace)));
    assert_eq!(ready_at(), before);
    scene.check();
}

/// A claim would run a cancelled task if fewer tombstones were counted than there are.
#[tokio::test]
async fn tombstones_are_counted_if_their_number_is_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((1..=3).map(task)).await;
    assert_eq!(store(&scene, replacing("k", task(4))).await, None);
    let cancelled = (1..=3).map(id).collect();
    assert_eq!(scene.worker.store.cancel(cancelled).await.unwrap(), 3);
    scene.run("call('HDEL', 'meta', 'tombstones')");
    let answer = store(&scene, replacing("k", later(5, SECOND))).await;
    assert_eq!(answer, Some((id(4), Conflict::Replace)));
    assert_eq!(scene.run_all(&scene.worker).await, []);
    scene.clock.advance(SECOND);
    assert_eq!(scene.run_all(&scene.worker).await, [id(4)]);
    scene.check();
}

/// If an output is too large to be read, the task holds its key until the window is over, but no longer.
#[tokio::test]
async fn a_task_with_a_large_output_holds_its_key_in_its_window() {
    needs_redis!();
    let scene = Scene::new().await;
    let throttled = |number| with_key(Key::new("k").throttle(60 * SECOND), task(number));
    assert_eq!(store(&scene, throttled(1)).await, None);
    let claim = scene.worker.claim(1).await;
    let large = verdicts(&claim, || Verdict::Done(vec![7; 5_000]));
    scene.worker.turn(large, 0).await;
    scene.clock.advance(59 * SECOND);
    let answer = store(&scene, throttled(2)).await;
    assert_eq!(answer, Some((id(1), Conflict::Join)));
    scene.maintain().await;
    let answer = store(&scene, throttled(2)).await;
    assert_eq!(answer, Some((id(1), Conflict::Join)));
    scene.clock.advance(SECOND);
    assert_eq!(store(&scene, throttled(2)).await, None);
    scene.check();
}

/// A task that is delayed twice without a claim between has two entries in its list, and one row in `tombstones`.
#[tokio::test]
async fn a_task_that_is_delayed_again_and_again_has_as_many_tombstones() {
    needs_redis!();
    let scene = Scene::new().await;
    assert_eq!(store(&scene, replacing("k", task(1))).await, None);
    for times in 1..=3 {
        let answer = store(&scene, replacing("k", later(2, SECOND))).await;
        assert_eq!(answer, Some((id(1), Conflict::Replace)));
        let count = scene.run("return tonumber(call('HGET', 'meta', 'tombstones'))");
        assert_eq!(count, redis::Value::Int(times));
        scene.check();
        let answer = store(&scene, replacing("k", task(3))).await;
        assert_eq!(answer, Some((id(1), Conflict::Replace)));
    }
    assert_eq!(scene.run_all(&scene.worker).await, [id(1)]);
    scene.check();
}

/// Each page has more held keys than free ones, so no pass asks for another one.
#[tokio::test]
async fn passes_of_maintenance_examine_one_page_of_keys_after_the_other() {
    needs_redis!();
    const KEYS: u64 = 6 * MAX_BATCH_TASKS as u64;
    let scene = Scene::new().await;
    let new = |number: u64| joining(&number.to_string(), later(number, HOUR));
    for first in (0..KEYS).step_by(MAX_BATCH_TASKS) {
        let numbers = first..first + MAX_BATCH_TASKS as u64;
        scene.worker.enqueue(numbers.map(new)).await;
    }
    let free = (0..KEYS).step_by(6).map(id).collect();
    scene.worker.store.cancel(free).await.unwrap();
    for _ in 0..20 {
        assert!(!scene.worker.store.maintain(1_000).await.unwrap());
    }
    let left = scene.ask(&["HLEN", &scene.key("held_keys")]);
    assert_eq!(left, redis::Value::Int(5 * KEYS as i64 / 6));
    scene.check();
}

/// Returns how often entries were added to a list.
const RPUSH_CALLS: &str = "
return tonumber(string.match(redis.call('INFO', 'commandstats'), 'cmdstat_rpush:calls=(%d+)'))";

/// The client sorts the tasks by list, unless one may replace another: then the script does.
#[tokio::test]
async fn tasks_of_a_batch_with_keys_are_added_to_each_list_at_once() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_names(&store, &["job"]).await;
    let _other = Worker::of_names(&store, &["mail"]).await;
    // From now on, the client knows the routes.
    worker.enqueue([named(0, "job"), named(1, "mail")]).await;
    let added = || server.ask(&["EVAL", RPUSH_CALLS, "0"]);
    let kinds: [fn(&str, NewTask) -> NewTask; 2] = [joining, replacing];
    for (first, with_key) in [10, 20].into_iter().zip(kinds) {
        let new = |nth: u64| {
            let name = ["job", "mail"][nth as usize % 2];
            with_key(&format!("{first} {nth}"), named(first + nth, name))
        };
        let redis::Value::Int(before) = added() else {
            panic!("a number");
        };
        worker.enqueue((0..8).map(new)).await;
        assert_eq!(added(), redis::Value::Int(before + 2), "{first}");
    }
}
