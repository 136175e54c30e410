//! Rows of sessions, and the numbers of sessions by their sets of types.

use redis::Value;

use super::super::scene::Scene;
use super::super::*;
use super::damage;

#[tokio::test]
async fn the_sessions_of_a_set_are_counted_again() {
    needs_redis!();
    let scene = Scene::new().await;
    let names = &["job", "mail"];
    let kept = scene.worker_of(names).await;
    for text in ["x", "", "1.5"] {
        let overwrite = || {
            scene.run(&format!(
                "for _, field in ipairs(call('HKEYS', 'routes')) do
                    if string.sub(field, 1, 1) == 'n' then call('HSET', 'routes', field, '{text}') end
                end"
            ))
        };
        overwrite();
        let worker = scene.worker_of(names).await;
        overwrite();
        worker.store.close_session(worker.session).await.unwrap();
        overwrite();
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
            local row = { 0, '', '', '', now, 'a-client', '', '', '2 a' }
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
        "cmsgpack.pack({ 0, '', '', '', 0, 'a-client', { 1 }, '', '2 a' })",
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
