//! Results, dead letters and payloads.

use redis::Value;

use super::super::scene::{HOUR, Scene};
use super::super::*;
use super::damage;
use crate::durable::DeadReason;

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
            took: None,
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
        let dead_letters = worker
            .store
            .dead_letters(DeadFilter::all(), 9)
            .await
            .unwrap();
        assert_eq!(dead_letters.len(), 4, "{row}: {dead_letters:?}");
        // The damaged task cannot run, so it is not replayed.
        let damaged = DeadFilter::ids([id(5)]);
        assert_eq!(
            worker.store.replay_dead_letters(damaged).await.unwrap(),
            0,
            "{row}"
        );
    }
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
        for _, key in ipairs({ 'payloads', 'errors', 'cancel', 'watchers', 'progress' }) do call('HSET', key, id(99), 'x') end
        call('HSET', 'results', id(98), struct.pack('>I6I6', 1, 1) .. 'd', id(97), 'x') call('HSET', 'expiry_bins', 'x', '', '5-0', '')
        call('SADD', 'quarantined', id(99)) call('HSET', 'dead', id(3), 'x')");
    scene.maintain().await;
    // The dead letter and the result are restored, and kept for as long as before.
    let dead_letters = worker
        .store
        .dead_letters(DeadFilter::all(), 9)
        .await
        .unwrap();
    assert_eq!(dead_letters.len(), 1);
    assert_eq!(dead_letters[0].error, "error");
    assert_eq!(
        scene.status_of(2).await,
        TaskState::Done(b"output".to_vec())
    );
    assert!(worker.store.damage().is_some());
    let sizes = scene.run(
        "return { call('HLEN', 'payloads'), call('HLEN', 'results'), call('HLEN', 'expiry_bins') }",
    );
    assert_eq!(sizes, Value::Array([1, 1, 2].map(Value::Int).into()));
    for key in ["errors", "cancel", "watchers", "progress", "quarantined"] {
        let left = scene.server.ask(&["EXISTS", &scene.key(key)]);
        assert_eq!(left, Value::Int(0), "{key}");
    }
    scene.run("call('HDEL', 'results', id(2)) call('HDEL', 'meta', 'damaged')");
    scene.maintain().await;
    assert_eq!(damage(&scene), "a result is missing");
    age(&scene.server, &scene.namespace, &scene.clock, 2 * HOUR);
    scene.maintain().await;
    assert_eq!(scene.status_of(2).await, TaskState::Absent);
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
            call('HSET', 'dead', id(n), '\\1' .. string.rep('\\0', 8) .. id(n) .. string.rep('\\0', 60))
            call('HSET', 'payloads', id(n), 'payload')
        end",
    );
    for _ in 0..20 {
        scene.maintain().await;
    }
    let left = scene.run("return { call('HLEN', 'payloads'), call('HLEN', 'dead') }");
    assert_eq!(left, Value::Array([600, 600].map(Value::Int).into()));
}

/// Progress that failed commands have left is removed some rows at a time.
#[tokio::test]
async fn maintenance_removes_all_progress_of_ended_tasks() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    let claim = scene.worker.claim(1).await;
    scene.run(
        "for n = 1, 600 do call('HSET', 'progress', n == 1 and id(1) or 'ended ' .. n, 'x') end",
    );
    for _ in 0..20 {
        scene.maintain().await;
    }
    let left = scene.run("return call('HKEYS', 'progress')");
    let alive = Value::BulkString(id(1).to_bytes().to_vec());
    assert_eq!(left, Value::Array(vec![alive]));
    // A row that cannot be read counts as missing.
    let progress = scene.worker.store.progress(vec![id(1)]).await.unwrap();
    assert_eq!(progress, [ProgressState::Alive(None)]);
    scene.worker.turn(done(&claim), 0).await;
    assert_eq!(
        scene.run("return call('EXISTS', 'progress')"),
        Value::Int(0)
    );
}
