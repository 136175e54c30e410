//! Redis stores the retention, also if it is damaged.

use super::scene::{HOUR, SECOND, Scene};
use super::*;
use crate::durable::Retention;

fn strict() -> Retention {
    Retention::default()
        .dead_for(HOUR)
        .dead_most(1)
        .kept_most(1)
}

async fn end(scene: &Scene, numbers: std::ops::Range<u64>, verdict: impl Fn() -> Verdict) {
    scene.worker.enqueue(numbers.map(task)).await;
    let claim = scene.worker.claim(MAX_BATCH_TASKS).await;
    let tasks = claim.tasks.iter().map(|task| (task.id, verdict()));
    let verdicts = Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    };
    scene.worker.turn(vec![verdicts], 0).await;
}

fn is_dead() -> Verdict {
    Verdict::Dead {
        reason: DeadReason::Fatal,
        error: "error".into(),
        took: None,
    }
}

fn is_done() -> Verdict {
    Verdict::Done(b"output".to_vec())
}

/// Such a row has the right length, or its numbers are possible.
#[tokio::test]
async fn a_damaged_retention_is_that_of_a_new_store() {
    needs_redis!();
    let damage = [
        "''",
        "'x'",
        "string.rep('x', 30)",
        "row .. 'x'",
        "'\\255' .. string.sub(row, 2)",
        "string.sub(row, 1, 11) .. '\\0' .. string.sub(row, 13)",
        "string.sub(row, 1, 29) .. string.char((string.byte(row, 30) + 1) % 256)",
    ];
    for garbage in damage {
        let scene = Scene::new().await;
        let store = &scene.worker.store;
        store.set_retention(strict()).await.unwrap();
        end(&scene, 1..4, is_dead).await;
        end(&scene, 4..7, is_done).await;
        scene.clock.advance(SECOND);
        scene.run(&format!(
            "local row = call('HGET', 'meta', 'retention') call('HSET', 'meta', 'retention', {garbage})"
        ));
        for number in 1..7 {
            assert_ne!(
                scene.status_of(number).await,
                TaskState::Absent,
                "{garbage}"
            );
        }
        assert_eq!(store.retention().await.unwrap(), Retention::default());
        scene.maintain().await;
        let (_, last) = store.damage().expect("it is reported");
        assert!(last.contains("retention"), "{garbage}: {last}");
        // It is removed, so it is reported once.
        let is_kept = "return call('HEXISTS', 'meta', 'retention')";
        assert_eq!(scene.run(is_kept), redis::Value::Int(0), "{garbage}");
        let counts = store.counts().await.unwrap();
        assert_eq!((counts.dead, counts.kept), (3, 3), "{garbage}");
        scene.check();
        // It can be set again.
        store.set_retention(strict()).await.unwrap();
        assert_eq!(store.retention().await.unwrap(), strict());
        scene.maintain().await;
        let counts = store.counts().await.unwrap();
        assert_eq!((counts.dead, counts.kept), (1, 1), "{garbage}");
        scene.check();
    }
}

/// All of them are in one bin.
#[tokio::test]
async fn a_part_of_a_bin_is_removed() {
    needs_redis!();
    for (most, budget) in [(10, 1_000), (10, 7), (33, 32), (99, 1)] {
        let scene = Scene::new().await;
        let store = &scene.worker.store;
        end(&scene, 0..100, is_done).await;
        let limited = Retention::default().kept_most(most);
        store.set_retention(limited).await.unwrap();
        let mut passes = 1;
        while store.maintain(budget).await.unwrap() {
            passes += 1;
        }
        assert_eq!(passes, (100 - most).div_ceil(budget as u64).max(1));
        assert_eq!(store.counts().await.unwrap().kept, most);
        scene.check();
        age(&scene.server, &scene.namespace, &scene.clock, HOUR);
        scene.maintain().await;
        assert_eq!(store.counts().await.unwrap().kept, 0);
        assert_eq!(store.damage(), None);
        scene.check();
    }
}

/// The bin of the first result has the task, which is kept for longer since.
#[tokio::test]
async fn a_task_that_was_stored_again_leaves_last() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    end(&scene, 1..2, is_done).await;
    scene.run("call('HDEL', 'results', id(1))");
    scene.clock.advance(SECOND);
    end(&scene, 2..3, is_done).await;
    scene.clock.advance(SECOND);
    end(&scene, 1..2, is_done).await;
    let one = Retention::default().kept_most(1);
    store.set_retention(one).await.unwrap();
    scene.maintain().await;
    assert_eq!(
        scene.status_of(1).await,
        TaskState::Done(b"output".to_vec())
    );
    assert_eq!(scene.status_of(2).await, TaskState::Absent);
    scene.check();
}

/// If the request fails half-way, the retention that can be read is the old one, and the request can be repeated.
#[tokio::test]
async fn all_partitions_have_the_retention() {
    needs_redis!();
    const PARTITIONS: usize = 4;
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let store = builder.partitions(PARTITIONS).open().await.unwrap();
    let worker = Worker::new(store).await;
    let key = |partition| format!("throng:{{default:{partition}}}:meta");
    let field = |partition: usize| server.ask(&["HGET", &key(partition), "retention"]);
    assert_eq!(
        worker.store.retention().await.unwrap(),
        Retention::default()
    );
    server.ask(&["RENAME", &key(1), "elsewhere"]);
    server.ask(&["SET", &key(1), "another type"]);
    assert!(worker.store.set_retention(strict()).await.is_err());
    assert_eq!(
        worker.store.retention().await.unwrap(),
        Retention::default()
    );
    server.ask(&["RENAME", "elsewhere", &key(1)]);
    worker.store.set_retention(strict()).await.unwrap();
    assert_eq!(worker.store.retention().await.unwrap(), strict());
    for partition in 0..PARTITIONS {
        assert!(field(partition) != redis::Value::Nil, "{partition}");
    }
    // Each partition has the maximum for itself.
    worker.enqueue((0..100).map(task)).await;
    loop {
        let turned = worker.turn(Vec::new(), MAX_BATCH_TASKS).await;
        let Some(claim) = turned.claim else { break };
        worker.turn(done(&claim), 0).await;
    }
    while worker.store.maintain(100).await.unwrap() {}
    let kept = worker.store.counts().await.unwrap().kept;
    assert_eq!(kept, PARTITIONS as u64);
}

/// Less can be kept even if the server has no memory left.
#[tokio::test]
async fn a_full_server_takes_a_retention() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    worker.store.set_retention(strict()).await.unwrap();
    assert_eq!(worker.store.retention().await.unwrap(), strict());
}

/// Several results have the same expiry, so they belong in one bin.
#[tokio::test]
async fn results_that_are_in_no_bin_are_added_to_one() {
    needs_redis!();
    let scene = Scene::new().await;
    end(&scene, 1..9, is_done).await;
    scene.run("call('DEL', 'expiry') call('DEL', 'expiry_bins')");
    scene.maintain().await;
    let ids = scene.run(
        "local n = 0
        for _, ids in ipairs(call('HVALS', 'expiry_bins')) do n = n + #ids / 16 end
        return n",
    );
    assert_eq!(ids, redis::Value::Int(8));
    scene.check();
}
