//! Rows that are missing, truncated or overwritten: each ends one task at most, which becomes a dead letter, and other tasks
//! continue.

use super::*;
use crate::durable::DeadReason;

fn key(name: &str) -> String {
    format!("throng:{{default:0}}:{name}")
}

fn large(number: u64) -> NewTask {
    NewTask {
        payload: vec![7; 2000],
        ..task(number)
    }
}

/// Returns an id as an argument of a Redis command. In ids of tests, all bytes but the last are zero.
fn run(server: &Server, script: &str, number: u64) {
    let script = format!("local id = string.rep('\\0', 15) .. string.char({number}) {script}");
    server.ask(&["EVAL", &script, "0"]);
}

async fn status_of(store: &RedisStore, number: u64) -> TaskState {
    store.status(vec![id(number)]).await.unwrap().remove(0)
}

fn is_damaged(status: &TaskState) -> bool {
    matches!(status, TaskState::Dead { reason, .. } if *reason == DeadReason::Damaged)
}

#[tokio::test]
async fn a_missing_payload_is_reported() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([large(1), large(2), task(3)]).await;
    let script = format!("redis.call('HDEL', '{}', id)", key("payloads"));
    run(&server, &script, 1);
    let claim = worker.claim(9).await;
    let payloads: Vec<_> = claim.tasks.iter().map(|task| &task.payload).collect();
    assert!(payloads[0].is_err(), "{payloads:?}");
    assert_eq!(*payloads[1], Ok(vec![7; 2000]));
    assert!(payloads[2].is_ok());
}

/// The row of `errors` says when the task failed for the first time. It is removed, shortened or overwritten.
#[tokio::test]
async fn a_task_runs_even_if_its_errors_are_damaged() {
    needs_redis!();
    let server = Server::start();
    let errors = key("errors");
    let scripts = [
        format!("redis.call('HDEL', '{errors}', id)"),
        format!("redis.call('HSET', '{errors}', id, 'short')"),
        format!("redis.call('DEL', '{errors}') redis.call('SET', '{errors}', 'text')"),
    ];
    for script in scripts {
        server.ask(&["FLUSHALL"]);
        let worker = Worker::new(open(&server.url()).await).await;
        worker.enqueue([task(1), task(2)]).await;
        let claim = worker.claim(1).await;
        worker.turn(retry(&claim), 0).await;
        run(&server, &script, 1);
        sleep(Duration::from_millis(2)).await;
        let claim = worker.claim(9).await;
        let claimed = |number| claim.tasks.iter().find(|task| task.id == id(number));
        assert_eq!(claimed(1).unwrap().failing_for, Some(Duration::ZERO));
        assert_eq!(claimed(2).unwrap().failing_for, None);
        assert_eq!(claimed(1).unwrap().failures, 1);
    }
}

/// The entry is truncated to any length.
#[tokio::test]
async fn an_unreadable_entry_ends_only_its_own_task() {
    needs_redis!();
    let server = Server::start();
    let ready = key("ready");
    for len in 0..=63 {
        server.ask(&["FLUSHALL"]);
        let worker = Worker::new(open(&server.url()).await).await;
        worker.enqueue([task(1), task(2), task(3)]).await;
        let script = format!(
            "local entry = redis.call('LINDEX', '{ready}', 1)
            redis.call('LSET', '{ready}', 1, string.sub(entry, 1, {len}))"
        );
        run(&server, &script, 2);
        let claim = worker.claim(9).await;
        let find = |number| claim.tasks.iter().find(|task| task.id == id(number));
        assert!(find(1).is_some() && find(3).is_some(), "{len}: {claim:?}");
        match find(2) {
            Some(task) => assert!(task.payload.is_err(), "{len}: {task:?}"),
            None if len >= 16 => assert!(is_damaged(&status_of(&worker.store, 2).await), "{len}"),
            // The task of the entry is unknown, so it still counts as waiting.
            None => assert_eq!(worker.store.counts().await.unwrap().waiting, 1),
        }
    }
}

#[tokio::test]
async fn a_delayed_task_without_an_entry_ends_and_the_others_continue() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let soon = |number| NewTask {
        delay: Duration::from_millis(1),
        ..task(number)
    };
    worker.enqueue([soon(1), soon(2), soon(3)]).await;
    let delayed = key("delayed");
    run(&server, &format!("redis.call('HDEL', '{delayed}', id)"), 2);
    run(
        &server,
        &format!("redis.call('HSET', '{delayed}', id, 'x')"),
        3,
    );
    let claimed = async {
        loop {
            if let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
                return claim;
            }
        }
    };
    let claim = timeout(DEADLINE, claimed).await.unwrap();
    assert_eq!(claim.tasks.len(), 1);
    assert_eq!(claim.tasks[0].id, id(1));
    for number in [2, 3] {
        assert!(
            is_damaged(&status_of(&worker.store, number).await),
            "{number}"
        );
    }
    assert_eq!(worker.store.counts().await.unwrap().delayed, 0);
}

#[tokio::test]
async fn a_missing_dead_letter_is_listed_and_can_be_deleted() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1), task(2)]).await;
    let claim = worker.claim(2).await;
    let failed = dead(&claim, DeadReason::Fatal, "error");
    worker.turn(failed, 0).await;
    for what in [
        "redis.call('HDEL', KEY, id)",
        "redis.call('HSET', KEY, id, 'xy')",
    ] {
        run(
            &server,
            &what.replace("KEY", &format!("'{}'", key("dead"))),
            1,
        );
        assert!(is_damaged(&status_of(&worker.store, 1).await), "{what}");
        let dead_letters = worker
            .store
            .dead_letters(DeadFilter::all(), 9)
            .await
            .unwrap();
        assert_eq!(dead_letters.len(), 2, "{what}: {dead_letters:?}");
    }
    // A damaged task cannot run.
    assert_eq!(
        worker
            .store
            .replay_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        1
    );
    assert_eq!(status_of(&worker.store, 2).await, TaskState::Waiting);
    assert_eq!(
        worker
            .store
            .delete_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        1
    );
    assert_eq!(status_of(&worker.store, 1).await, TaskState::Absent);
}

/// The row of the dead letter or its separate payload is truncated to any length, overwritten, or missing.
#[tokio::test]
async fn a_damaged_payload_of_a_dead_letter_is_reported() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1), large(2), task(3)]).await;
    let claim = worker.claim(3).await;
    worker.turn(dead(&claim, DeadReason::Fatal, "e"), 0).await;
    let payload_of = async |number| {
        let found = worker.store.dead_letter_payload(id(number)).await.unwrap();
        found.expect("it is still a dead letter").payload
    };
    assert_eq!(payload_of(2).await, Ok(vec![7; 2000]));
    let truncate = |name: &str, number: u64, len: usize| {
        let key = key(name);
        let script = format!(
            "local row = redis.call('HGET', '{key}', id)
            redis.call('HSET', '{key}', id, string.sub(row, 1, {len}))"
        );
        run(&server, &script, number);
    };
    truncate("payloads", 2, 1999);
    let lost = payload_of(2).await;
    assert_eq!(
        lost,
        Err("its payload has 1999 bytes instead of 2000".into())
    );
    run(
        &server,
        &format!("redis.call('HDEL', '{}', id)", key("payloads")),
        2,
    );
    assert_eq!(payload_of(2).await, Err("its payload is missing".into()));
    // The row has a header of 5 bytes, the error, a header of 59 bytes, and the payload of 8 bytes.
    for len in (0..5 + 1 + 59 + 8).rev() {
        truncate("dead", 1, len);
        assert!(payload_of(1).await.is_err(), "{len}");
    }
    run(
        &server,
        &format!(
            "redis.call('HSET', '{}', id, string.rep('x', 100))",
            key("dead")
        ),
        1,
    );
    assert!(payload_of(1).await.is_err());
    run(
        &server,
        &format!("redis.call('HDEL', '{}', id)", key("dead")),
        1,
    );
    assert!(payload_of(1).await.is_err());
    assert_eq!(payload_of(3).await, Ok(3_u64.to_be_bytes().to_vec()));
}

/// The entry of a task is truncated, so that its name and the length of its payload are lost.
#[tokio::test]
async fn a_payload_outlives_the_entry_of_its_task() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([large(1), task(2)]).await;
    let ready = key("ready");
    let script = format!(
        "for at = 0, 1 do
            local entry = redis.call('LINDEX', '{ready}', at)
            redis.call('LSET', '{ready}', at, string.sub(entry, 1, 20))
        end"
    );
    run(&server, &script, 1);
    assert!(worker.turn(Vec::new(), 9).await.claim.is_none());
    let payload_of = async |number| {
        let found = worker.store.dead_letter_payload(id(number)).await.unwrap();
        let found = found.expect("it is a dead letter");
        assert_eq!(&*found.name, "");
        found.payload
    };
    assert!(is_damaged(&status_of(&worker.store, 1).await));
    assert_eq!(payload_of(1).await, Ok(vec![7; 2000]));
    // The other payload was in its entry.
    assert_eq!(payload_of(2).await, Err("its payload is missing".into()));
}

#[tokio::test]
async fn an_unreadable_session_is_replaced() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let script = format!(
        "redis.call('HSET', '{}', '{}', 'x')",
        key("sessions"),
        worker.session
    );
    run(&server, &script, 1);
    let answer = worker.store.enqueue(worker.new_enqueue([task(1)])).await;
    assert_fails(answer, &Cause::NoSession, Effect::None);
    let answer = worker.store.turn(worker.new_turn(Vec::new(), 1)).await;
    assert_fails(answer, &Cause::NoSession, Effect::None);
}

#[tokio::test]
async fn a_missing_lease_is_restored() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    let claim = worker.claim(1).await;
    server.ask(&["DEL", &key("lease")]);
    assert!(
        worker
            .store
            .renew(vec![claim.epoch])
            .await
            .unwrap()
            .lost
            .is_empty()
    );
    assert_eq!(server.ask(&["ZCARD", &key("lease")]), redis::Value::Int(1));
}

/// Otherwise, these rows would never be removed.
#[tokio::test]
async fn a_completed_task_leaves_no_rows() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let other = open(&server.url()).await;
    worker.enqueue([large(1)]).await;
    assert_eq!(status_of(&other, 1).await, TaskState::Waiting);
    let watched = server.ask(&["HLEN", &key("watchers")]);
    assert_eq!(watched, redis::Value::Int(1));
    worker.turn(done(&worker.claim(1).await), 0).await;
    for name in [
        "payloads", "watchers", "running", "alive", "claims", "lease",
    ] {
        let left = server.ask(&["EXISTS", &key(name)]);
        assert_eq!(left, redis::Value::Int(0), "{name}");
    }
}
