//! Cards of workers in Redis: where they are, and what happens if they are damaged.

use super::scene::{SECOND, Scene};
use super::*;
use crate::durable::store::{NewSession, WorkerCard};
use crate::durable::{WorkerInfo, WorkerState};

/// The session of a worker of a queue.
pub(super) fn carded(queue: &str) -> NewSession {
    let queue = match queue {
        "" => QueueName::DEFAULT,
        queue => QueueName::new(queue).unwrap(),
    };
    let set = TypeSet::of_tests().map(|set| set.in_queue(queue.clone()));
    let card = Some(WorkerCard::new(&queue, 3, ["job"]));
    NewSession { set, card }
}

async fn workers(store: &RedisStore) -> Vec<WorkerInfo> {
    let page = store.workers(None, 100).await.unwrap().unwrap();
    assert_eq!(page.next, None);
    page.workers
}

fn cards(scene: &Scene) -> redis::Value {
    scene.ask(&["ZCARD", &scene.key("cards")])
}

#[tokio::test]
async fn a_card_without_a_session_is_removed() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    let session = store.open_session_with(carded("")).await.unwrap();
    store.open_session_with(carded("")).await.unwrap();
    scene.ask(&["HDEL", &scene.key("sessions"), &session.to_string()]);
    let found = workers(store).await;
    assert!(found.len() == 1 && found[0].session != session);
    assert_eq!(cards(&scene), redis::Value::Int(2));
    scene.maintain().await;
    assert_eq!(cards(&scene), redis::Value::Int(1));
    assert_eq!(workers(store).await.len(), 1);
}

#[tokio::test]
async fn a_damaged_card_hides_no_other_worker() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    let session = store.open_session_with(carded("")).await.unwrap();
    let other = store.open_session_with(carded("")).await.unwrap();
    let (key, padded) = (scene.key("cards"), format!("{session:020}"));
    let end = format!("({padded}~");
    scene.ask(&["ZREMRANGEBYLEX", &key, &format!("[{padded}"), &end]);
    let damaged = format!("{padded}123456{{");
    for member in [&*damaged, "short", "", "99999999999999999999", "x"] {
        scene.ask(&["ZADD", &key, "0", member]);
    }
    let found = workers(store).await;
    assert_eq!(found.len(), 2);
    let damaged = found.iter().find(|it| it.session == session).unwrap();
    assert_eq!((damaged.permits, damaged.types.len()), (0, 0));
    assert!(
        found
            .iter()
            .any(|it| it.session == other && it.permits == 3)
    );
    scene.maintain().await;
    assert_eq!(cards(&scene), redis::Value::Int(2));
    // A key of another type is removed.
    scene.ask(&["SET", &key, "text"]);
    store.workers(None, 9).await.unwrap_err();
    scene.maintain().await;
    assert_eq!(workers(store).await, []);
}

/// Returns the sessions on all pages.
async fn paged(store: &RedisStore, limit: usize) -> Vec<SessionId> {
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..100 {
        let page = store.workers(after, limit).await.unwrap().unwrap();
        assert!(page.workers.len() <= limit);
        seen.extend(page.workers.iter().map(|it| it.session));
        let Some(next) = page.next else { break };
        after = Some(next.position_in_workers().unwrap());
    }
    seen.sort_unstable();
    seen
}

#[tokio::test]
async fn damaged_cards_end_no_page() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    let mut expected = Vec::new();
    for _ in 0..3 {
        expected.push(store.open_session_with(carded("")).await.unwrap());
    }
    expected.sort_unstable();
    let middle = format!("{:020}", expected[1]);
    for member in ["", "\0", "0x", "short", &middle[..19], "~", "\u{ff}"] {
        scene.ask(&["ZADD", &scene.key("cards"), "0", member]);
    }
    for limit in 1..12 {
        assert_eq!(paged(store, limit).await, expected, "{limit}");
    }
}

/// Rows of sessions are arrays of texts and numbers. One with other values counts as lost.
#[tokio::test]
async fn a_garbled_row_of_a_session_hides_no_other_worker() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    let other = store.open_session_with(carded("")).await.unwrap();
    for garbage in ["'x'", "{}", "false", "1"] {
        for field in 1..=9 {
            let session = store.open_session_with(carded("")).await.unwrap();
            scene.run(&format!(
                "local row = cmsgpack.unpack(call('HGET', 'sessions', '{session}'))
                row[{field}] = {garbage}
                call('HSET', 'sessions', '{session}', cmsgpack.pack(row))"
            ));
            let found = workers(store).await;
            assert!(
                found.iter().any(|it| it.session == other),
                "{field} {garbage}"
            );
            store.counts().await.unwrap();
            store.overview().await.unwrap();
            scene.maintain().await;
            store.close_session(session).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_silent_worker_is_removed_with_its_card() {
    needs_redis!();
    let scene = Scene::new().await;
    let dies = scene.open().await;
    dies.open_session_with(carded("")).await.unwrap();
    drop(dies);
    scene.clock.advance(170 * SECOND);
    let found = workers(&scene.worker.store).await;
    assert_eq!(found[0].state, WorkerState::Live);
    assert_eq!(found[0].last_seen, Some(170 * SECOND));
    scene.clock.advance(20 * SECOND);
    // The thread of the store closes its connections.
    while workers(&scene.worker.store).await[0].state != WorkerState::Gone {
        sleep(Duration::from_millis(1)).await;
    }
    scene.maintain().await;
    assert_eq!(workers(&scene.worker.store).await, []);
    assert_eq!(cards(&scene), redis::Value::Int(0));
}

#[tokio::test]
async fn a_worker_has_a_card_in_one_partition() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let store = builder.partitions(4).open().await.unwrap();
    let mut expected = Vec::new();
    for queue in ["", "a", "b", "c", "d"] {
        expected.push(store.open_session_with(carded(queue)).await.unwrap());
    }
    expected.sort_unstable();
    for limit in 1..7 {
        assert_eq!(paged(&store, limit).await, expected, "{limit}");
    }
}
