//! Groups that would wait for good, because of damage or because a change has stopped half-way.

use super::meter::{LIMIT, Meter, in_scripts_of};
use super::*;
use crate::durable::queue::{Groups, QueueSettings};
use crate::durable::store::QueueChange;

/// The number of groups, of which a task runs and another one waits: more than a script updates or checks.
const GROUPS: u64 = 1_500;

async fn set_limit(store: &RedisStore, max_running: u32) {
    let groups = Groups::new().max_running(max_running);
    let change = QueueChange::Settings(QueueSettings::new().grouped(groups));
    assert!(store.change_queue(queue_name("q"), change).await.unwrap());
}

/// Returns a worker of a queue in which all groups have as many running tasks as the limit allows, and the claims of these tasks.
async fn full_groups(store: &Arc<RedisStore>) -> (Worker, Vec<Claim>) {
    let worker = Worker::of_queue(store, "q").await;
    set_limit(store, 1).await;
    for first in (0..2 * GROUPS).step_by(250) {
        let tasks =
            (first..first + 250).map(|number| grouped(number, "q", &(number % GROUPS).to_string()));
        worker.enqueue(tasks).await;
    }
    let claims = start_all(&worker).await;
    assert_eq!(started(&claims), GROUPS as usize);
    (worker, claims)
}

/// Claims until no task may start.
async fn start_all(worker: &Worker) -> Vec<Claim> {
    let mut claims = Vec::new();
    loop {
        let turned = worker.turn(Vec::new(), 256).await;
        claims.extend(turned.claim);
        if !turned.more {
            return claims;
        }
    }
}

fn started(claims: &[Claim]) -> usize {
    claims.iter().map(|claim| claim.tasks.len()).sum()
}

#[tokio::test]
async fn a_change_of_the_limit_reaches_all_groups() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let (worker, _) = full_groups(&store).await;
    set_limit(&store, 2).await;
    assert_eq!(started(&start_all(&worker).await), GROUPS as usize);
}

/// The process that removes the limit stops before it has updated any group. No other request is needed.
#[tokio::test]
async fn ends_of_tasks_finish_a_change_of_the_limit() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let (worker, claims) = full_groups(&store).await;
    write_limit(&server, 0);
    for claim in claims {
        worker.turn(done(&claim), 0).await;
    }
    assert_eq!(started(&start_all(&worker).await), GROUPS as usize);
}

/// Maintenance finds the first of the groups that could be served, and then does not wait for the next pass.
#[tokio::test]
async fn maintenance_finishes_a_change_of_the_limit() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let (worker, _claims) = full_groups(&store).await;
    write_limit(&server, 2);
    while store.maintain(1000).await.unwrap() {}
    assert_eq!(started(&start_all(&worker).await), GROUPS as usize);
}

/// Changes the limit of groups without an update of any group.
fn write_limit(server: &Server, max_running: u8) {
    let mut row = [0; 27];
    (row[0], row[22], row[26]) = (2, max_running, 1);
    let row = str::from_utf8(&row).unwrap();
    server.ask(&["HSET", "throng:{default:0}:queues", "sq", row]);
}

/// Without its row, no permit gives a group a turn. Every group is checked in the first round of maintenance, and each script checks a
/// limited number.
#[tokio::test]
async fn waiting_groups_whose_rows_are_lost_are_repaired_at_once() {
    needs_redis!();
    let repair = async || {
        let server = Server::start();
        let store = Arc::new(open(&server.url()).await);
        let (worker, claims) = full_groups(&store).await;
        server.ask(&["DEL", "throng:{default:0}:groups"]);
        let mut meter = Meter::new(&server);
        while meter.measure(store.maintain(1000)).await.unwrap() {}
        for claim in claims {
            worker.turn(done(&claim), 0).await;
        }
        assert_eq!(started(&start_all(&worker).await), GROUPS as usize);
        meter.taken
    };
    in_scripts_of(2 * LIMIT, repair).await;
}

/// The ring has more groups than a script counts.
#[tokio::test]
async fn a_lost_ring_of_many_groups_is_restored() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let (worker, claims) = full_groups(&store).await;
    let redis::Value::Array(keys) = server.ask(&["KEYS", "throng:{default:0}:groups:ring:*"])
    else {
        panic!("a list of keys");
    };
    let [redis::Value::BulkString(key)] = &keys[..] else {
        panic!("{keys:?}");
    };
    server.ask(&["DEL", str::from_utf8(key).unwrap()]);
    for _ in 0..3 {
        while store.maintain(1000).await.unwrap() {}
    }
    let info = store.queue(queue_name("q")).await.unwrap();
    assert_eq!(info.waiting, GROUPS);
    for claim in claims {
        worker.turn(done(&claim), 0).await;
    }
    assert_eq!(started(&start_all(&worker).await), GROUPS as usize);
}

/// Each claim would fail because of the sublist.
#[tokio::test]
async fn a_sublist_of_another_type_is_repaired_among_many_groups() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    worker
        .enqueue((0..250).map(|number| grouped(number, "q", &number.to_string())))
        .await;
    let redis::Value::Array(keys) = server.ask(&["KEYS", "throng:{default:0}:ready:*:0"]) else {
        panic!("a list of keys");
    };
    let [redis::Value::BulkString(key)] = &keys[..] else {
        panic!("{keys:?}");
    };
    server.ask(&["SET", str::from_utf8(key).unwrap(), "x"]);
    while store.maintain(1000).await.unwrap() {}
    assert_eq!(started(&start_all(&worker).await), 249);
}

/// The number of the last turn is lost. The next request, not maintenance, notices that.
#[tokio::test]
async fn a_new_turn_is_behind_those_in_the_ring() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    worker
        .enqueue((0..9).map(|number| grouped(number, "q", "waits")))
        .await;
    worker.claim(5).await;
    server.ask(&["HDEL", "throng:{default:0}:groups", "tq"]);
    worker.enqueue([grouped(10, "q", "new")]).await;
    assert_eq!(worker.claim(1).await.tasks[0].id, id(5));
}
