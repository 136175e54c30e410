//! Groups: what damage does to them, and how long scripts take with many of them.

use std::collections::BTreeSet;

use super::meter::{LIMIT, Meter, in_scripts_of};
use super::*;
use crate::durable::queue::{Groups, QueueSettings};
use crate::durable::store::QueueChange;

async fn set(store: &RedisStore, groups: Groups) {
    let change = QueueChange::Settings(QueueSettings::new().grouped(groups));
    assert!(store.change_queue(queue_name("q"), change).await.unwrap());
}

/// Stores tasks, in batches.
async fn store_all(worker: &Worker, tasks: impl Iterator<Item = NewTask>) {
    let tasks: Vec<_> = tasks.collect();
    for batch in tasks.chunks(MAX_BATCH_TASKS) {
        worker.enqueue(batch.to_vec()).await;
    }
}

/// One tenant has 20,000 tasks, and 50 tenants have 20 each.
#[tokio::test]
async fn a_large_tenant_delays_no_other() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    store_all(
        &worker,
        (0..20_000).map(|number| grouped(number, "q", "large")),
    )
    .await;
    let small =
        (0..1_000).map(|number| grouped(20_000 + number, "q", &format!("small {}", number / 20)));
    store_all(&worker, small).await;
    let (mut started, mut left) = (0, 1_000);
    while left > 0 {
        let claim = worker.claim(10).await;
        started += claim.tasks.len();
        left -= claim
            .tasks
            .iter()
            .filter(|task| task.id >= id(20_000))
            .count();
    }
    // 1,020 are ideal.
    assert!(started <= 1_050, "{started}");
}

/// The ring is not scanned.
#[tokio::test]
async fn many_groups_do_not_slow_a_turn_down() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    set(&store, Groups::new().max_running(1)).await;
    let groups = if std::env::var_os("THRONG_LONG").is_some() {
        100_000
    } else {
        5_000
    };
    let tasks = (0..2 * groups).map(|number| grouped(number, "q", &(number % groups).to_string()));
    store_all(&worker, tasks).await;
    let mut meter = Meter::new(&server);
    let mut shortest = Duration::MAX;
    let mut claims = Vec::new();
    for _ in 0..30 {
        while claims
            .iter()
            .map(|claim: &Claim| claim.tasks.len())
            .sum::<usize>()
            < 256
        {
            claims.push(worker.claim(256).await);
        }
        let verdicts = claims.drain(..).flat_map(|claim| done(&claim)).collect();
        let claim = meter
            .measure(worker.turn(verdicts, 256))
            .await
            .claim
            .unwrap();
        assert!(claim.tasks.len() >= 128);
        claims.push(claim);
        shortest = shortest.min(*meter.taken.last().unwrap());
    }
    println!("a turn that ends 256 tasks and starts others takes {shortest:?}");
    assert!(shortest < Duration::from_millis(5), "{shortest:?}");
}

/// Cancelled tasks are removed by claims. However many there are, each claim removes a limited number, until it finds another task.
#[tokio::test]
async fn cancelled_tasks_of_many_groups_do_not_slow_a_turn_down() {
    needs_redis!();
    let sizes: &[u64] = match std::env::var_os("THRONG_LONG") {
        Some(_) => &[1, 100, 1_000],
        None => &[1, 100],
    };
    for each in sizes {
        in_scripts_of(LIMIT, async || remove_cancelled(*each).await).await;
    }
}

/// Cancels `each` tasks of each of 256 groups, stores others, and claims until all of these run. Returns the time of a usual claim, and
/// half the time in which the others were stored.
async fn remove_cancelled(each: u64) -> Vec<Duration> {
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    let all = 256 * each;
    let tasks = (0..all).map(|number| grouped(number, "q", &(number % 256).to_string()));
    store_all(&worker, tasks).await;
    for first in (0..all).step_by(256) {
        let some = (first..first + 256).map(id).collect();
        store.cancel(some).await.unwrap();
    }
    let mut meter = Meter::new(&server);
    // The script reads for some groups only whether all their tasks are cancelled.
    let again = (all..all + 255).map(|number| grouped(number, "q", &(number % 256).to_string()));
    let last = grouped(all + 255, "q", "last");
    meter.measure(worker.enqueue(again.chain([last]))).await;
    let (mut started, mut turns) = (BTreeSet::new(), 0);
    while started.len() < 256 {
        let turned = meter.measure(worker.turn(Vec::new(), 64)).await;
        let tasks = turned.claim.iter().flat_map(|claim| &claim.tasks);
        started.extend(tasks.map(|task| task.id));
        turns += 1;
        assert!(turned.more || started.len() == 256, "{}", started.len());
    }
    assert!(turns <= 8 + all / 512, "{turns}");
    let enqueued = meter.taken[0];
    meter.taken.sort_unstable();
    // Other processes delay a few of the scripts.
    let usual = meter.taken[meter.taken.len() * 3 / 4];
    println!("256 groups x {each}: {turns} turns of {usual:?}");
    vec![usual, enqueued / 2]
}

/// The last task of a group leaves no key behind, except for the limits of the queue and the number of its last turn.
#[tokio::test]
async fn the_last_task_of_a_group_leaves_no_key() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    set(&store, Groups::new().max_running(1)).await;
    let some = (0..9).map(|number| grouped(number, "q", ["a", "b", "c"][number as usize % 3]));
    let tasks = some.map(|task| NewTask {
        retention: Duration::ZERO,
        ..task
    });
    worker.enqueue(tasks).await;
    while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
        worker.turn(done(&claim), 0).await;
    }
    for pattern in ["ready*", "groups:*", "permits*", "alive", "running"] {
        let pattern = format!("throng:{{default:0}}:{pattern}");
        let none = redis::Value::Array(Vec::new());
        assert_eq!(server.ask(&["KEYS", &pattern]), none, "{pattern}");
    }
    let rows = server.ask(&["HKEYS", "throng:{default:0}:groups"]);
    let turn = redis::Value::BulkString(b"tq".to_vec());
    assert_eq!(rows, redis::Value::Array(vec![turn]));
}

/// Damage to what scripts know about groups, as commands whose first argument is a pattern of keys.
const DAMAGES: [&str; 12] = [
    "DEL groups",
    "SET groups x",
    "HSET groups tq x",
    "HSET groups n0000000000000001 x",
    "HDEL groups tq",
    "DEL groups:ring:*",
    "SET groups:ring:* x",
    "ZADD groups:ring:* 1 nobody",
    "ZADD groups:ring:* 1 a",
    "DEL permits:q\0*",
    "SET groups:hold:q x",
    LOST_SETTINGS,
];

/// Limits cannot be derived from other rows, so they must be set again.
const LOST_SETTINGS: &str = "HDEL queues sq";

#[tokio::test]
async fn damaged_rows_of_groups_are_repaired() {
    needs_redis!();
    for damage in DAMAGES {
        let server = Server::start();
        let store = Arc::new(open(&server.url()).await);
        let worker = Worker::of_queue(&store, "q").await;
        set(&store, Groups::new().max_running(1)).await;
        let tasks =
            (0..12).map(|number| grouped(number, "q", ["a", "b", "c"][number as usize % 3]));
        worker.enqueue(tasks).await;
        let claim = worker.claim(2).await;
        let parts: Vec<_> = damage.split(' ').collect();
        let pattern = format!("throng:{{*:0}}:{}", parts[1]);
        let redis::Value::Array(keys) = server.ask(&["KEYS", &pattern]) else {
            panic!("a list of keys");
        };
        let mut keys: Vec<_> = keys
            .into_iter()
            .map(|key| match key {
                redis::Value::BulkString(key) => String::from_utf8(key).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        if keys.is_empty() {
            keys.push(pattern.replace('*', "throng"));
        }
        for key in keys {
            let mut command = vec![parts[0], &key];
            command.extend(&parts[2..]);
            server.ask(&command);
        }
        for _ in 0..6 {
            while store.maintain(1000).await.unwrap() {}
        }
        if damage == LOST_SETTINGS {
            set(&store, Groups::new().max_running(1)).await;
        }
        let info = store.queue(queue_name("q")).await.unwrap();
        assert_eq!((info.waiting, info.running), (10, 2), "{damage}");
        let next = worker.turn(Vec::new(), 9).await.claim;
        let next = next.unwrap_or_else(|| panic!("{damage}"));
        assert_eq!(next.tasks.len(), 1, "{damage}: {next:?}");
        let mut ended = 3;
        for claim in [claim, next] {
            worker.turn(done(&claim), 0).await;
        }
        while let Some(claim) = worker.turn(Vec::new(), 9).await.claim {
            assert!(claim.tasks.len() <= 3, "{damage}");
            ended += claim.tasks.len();
            worker.turn(done(&claim), 0).await;
        }
        assert_eq!(ended, 12, "{damage}");
    }
}

/// A store without groups sends no additional command.
#[tokio::test]
async fn a_queue_without_groups_does_not_look_for_them() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    let round = async |first: u64| {
        worker
            .enqueue((first..first + 3).map(|number| queued(number, "q")))
            .await;
        let claim = worker.claim(2).await;
        worker.turn(done(&claim), 1).await;
        worker.turn(Vec::new(), 9).await;
    };
    round(0).await;
    server.ask(&["CONFIG", "RESETSTAT"]);
    round(10).await;
    let redis::Value::BulkString(stats) = server.ask(&["INFO", "commandstats"]) else {
        panic!("a text");
    };
    let stats = String::from_utf8(stats).unwrap();
    let calls = |command: &str| {
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    // The sets of permits, and no others. No ring is read: the sorted sets are those of leases and idle sessions.
    assert_eq!(calls("sadd") + calls("srem"), 3, "{stats}");
    assert_eq!(calls("zscore"), 0, "{stats}");
}

/// A group of which no task runs, and that waits for nothing, has no other rows that lead to its permits.
#[tokio::test]
async fn permits_of_a_group_of_another_type_are_repaired() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    set(&store, Groups::new().max_running(1)).await;
    worker
        .enqueue((0..3).map(|number| grouped(number, "q", "a")))
        .await;
    server.ask(&["SET", "throng:{default:0}:permits:q\0a", "x"]);
    for _ in 0..6 {
        while store.maintain(1000).await.unwrap() {}
    }
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

/// The ring of a draining list is lost. The list seems to be empty then, although tasks of groups wait in it.
#[tokio::test]
async fn tasks_of_groups_survive_the_loss_of_the_ring_of_a_draining_list() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let producer = Worker::of_queue(&store, "other").await;
    let of_type = |number| NewTask {
        name: "mail".into(),
        ..grouped(number, "q", "a")
    };
    producer.enqueue((0..600).map(of_type).take(256)).await;
    producer.enqueue((256..300).map(of_type)).await;
    let set = TypeSet::of_names(["mail", "job"]).unwrap();
    let worker = Worker::of_set(&store, Some(set.in_queue(queue_name("q")))).await;
    let redis::Value::Array(keys) = server.ask(&["KEYS", "throng:{default:0}:groups:ring:*"])
    else {
        panic!("a list of keys");
    };
    assert_eq!(keys.len(), 1);
    for key in keys {
        let redis::Value::BulkString(key) = key else {
            panic!("a key");
        };
        server.ask(&["DEL", &String::from_utf8(key).unwrap()]);
    }
    for _ in 0..3 {
        worker.turn(Vec::new(), 0).await;
    }
    for _ in 0..6 {
        while store.maintain(1000).await.unwrap() {}
    }
    let mut started = 0;
    for _ in 0..10 {
        while let Some(claim) = worker.turn(Vec::new(), 256).await.claim {
            started += claim.tasks.len();
            worker.turn(done(&claim), 0).await;
        }
    }
    assert_eq!(started, 300);
}

/// A task of each of many groups runs when the limit is lowered.
#[tokio::test]
async fn a_change_of_the_limit_of_many_groups_takes_a_limited_time() {
    needs_redis!();
    let change = async || {
        let server = Server::start();
        let store = Arc::new(open(&server.url()).await);
        let worker = Worker::of_queue(&store, "q").await;
        set(&store, Groups::new()).await;
        let groups = 5_000;
        let task = |number| grouped(number, "q", &(number % groups).to_string());
        store_all(&worker, (0..2 * groups).map(task)).await;
        let mut running = 0;
        while running < groups as usize {
            running += worker.claim(256).await.tasks.len();
        }
        let mut meter = Meter::new(&server);
        for max_running in [1, 2] {
            let groups = Groups::new().max_running(max_running);
            meter.measure(set(&store, groups)).await;
        }
        meter.taken
    };
    in_scripts_of(2 * LIMIT, change).await;
}

fn type_names(count: usize) -> Vec<&'static str> {
    let names = (0..count).map(|number| &*format!("type {number}").leak());
    names.collect()
}

/// Returns a worker of the queue that knows these types.
async fn worker_of(store: &Arc<RedisStore>, names: &[&'static str]) -> Worker {
    let set = TypeSet::of_names(names.iter().copied()).unwrap();
    Worker::of_set(store, Some(set.in_queue(queue_name("q")))).await
}

/// The first worker of a queue knows many types, whose tasks have waited in a list each.
#[tokio::test]
async fn draining_many_lists_with_many_groups_takes_a_limited_time() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let producer = Worker::of_queue(&store, "other").await;
    let names = type_names(100);
    let tasks = (0..6_400).map(|number| NewTask {
        name: names[number as usize % 100].into(),
        ..grouped(number, "q", &(number / 100).to_string())
    });
    store_all(&producer, tasks).await;
    let worker = worker_of(&store, &names).await;
    let mut meter = Meter::new(&server);
    let (mut started, mut turns) = (0, 0);
    while started < 6_400 {
        let turned = meter.measure(worker.turn(Vec::new(), 256)).await;
        started += turned.claim.map_or(0, |claim| claim.tasks.len());
        turns += 1;
        assert!(turns < 2_000, "{started}");
    }
    let mut taken = meter.taken.clone();
    taken.sort_unstable();
    println!(
        "{turns} turns, {:?} {:?} {:?}",
        taken[0],
        taken[turns / 2],
        taken[turns - 1]
    );
    assert!(taken[turns / 2] < LIMIT, "{:?}", meter.taken);
}

/// The first groups are in one of the lists, and each of the others has as many groups as a script reads of it.
#[tokio::test]
async fn groups_of_one_of_many_draining_lists_move_first() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let producer = Worker::of_queue(&store, "other").await;
    let names = type_names(40);
    let first = (0..20).map(|number| NewTask {
        name: names[7].into(),
        ..grouped(number, "q", &format!("first {number}"))
    });
    producer.enqueue(first).await;
    let others = (20..20 + 160).map(|number| NewTask {
        name: names[number as usize % 40].into(),
        ..grouped(number, "q", &number.to_string())
    });
    producer.enqueue(others).await;
    let worker = worker_of(&store, &names).await;
    let claim = worker.claim(20).await;
    assert!(claim.tasks.iter().all(|task| task.id < id(20)));
}

/// A request comes after the number of the last turn is lost, and before maintenance.
#[tokio::test]
async fn waiting_groups_keep_their_turns_if_the_last_turn_is_lost() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    worker
        .enqueue((0..100).map(|number| grouped(number, "q", "before")))
        .await;
    while let Some(claim) = worker.turn(Vec::new(), 1).await.claim {
        worker.turn(done(&claim), 0).await;
    }
    worker.enqueue([grouped(100, "q", "waits")]).await;
    server.ask(&["HDEL", "throng:{default:0}:groups", "tq"]);
    worker
        .enqueue((200..250).map(|number| grouped(number, "q", "busy")))
        .await;
    for _ in 0..6 {
        while store.maintain(1000).await.unwrap() {}
    }
    let mut started = Vec::new();
    for _ in 0..10 {
        started.extend(worker.claim(1).await.tasks.into_iter().map(|task| task.id));
    }
    assert!(started.contains(&id(100)), "{started:?}");
}

#[tokio::test]
async fn a_group_with_a_damaged_turn_is_served() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    worker.enqueue([grouped(100, "q", "waits")]).await;
    worker
        .enqueue((200..250).map(|number| grouped(number, "q", "busy")))
        .await;
    let redis::Value::Array(keys) = server.ask(&["KEYS", "throng:{default:0}:groups:ring:*"])
    else {
        panic!("a list of keys");
    };
    for key in keys {
        let redis::Value::BulkString(key) = key else {
            panic!("a key");
        };
        let key = String::from_utf8(key).unwrap();
        server.ask(&["ZADD", &key, "1e300", "waits"]);
    }
    for _ in 0..6 {
        while store.maintain(1000).await.unwrap() {}
    }
    let mut started = Vec::new();
    for _ in 0..10 {
        started.extend(worker.claim(1).await.tasks.into_iter().map(|task| task.id));
    }
    assert!(started.contains(&id(100)), "{started:?}");
}
