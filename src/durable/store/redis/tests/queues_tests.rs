//! Named queues: in stores of several partitions, and if their rows are damaged.

use std::collections::HashSet;

use super::scene::Scene;
use super::*;
use crate::durable::queue::{QueueSettings, Rate};
use crate::durable::store::{Change, QueueChange};

const PARTITIONS: usize = 8;

/// Returns how often scripts were called.
const TURNS: &str = "
local calls = string.match(redis.call('INFO', 'commandstats'), 'cmdstat_evalsha:calls=(%d+)')
return tonumber(calls)";

async fn open_divided(url: &str) -> Arc<RedisStore> {
    let mut builder = RedisStore::builder(url);
    let opened = builder.partitions(PARTITIONS).open().await;
    Arc::new(opened.expect("the store can be opened"))
}

async fn set(store: &RedisStore, queue: &str, settings: QueueSettings) {
    let change = QueueChange::Settings(settings);
    let changed = store.change_queue(queue_name(queue), change).await;
    assert!(changed.expect("the store answers"));
}

/// Returns the numbers of tasks whose ids are in the partition of a queue.
fn numbers(store: &RedisStore, queue: &str) -> impl Iterator<Item = u64> {
    (0..).filter(move |&number| store.can_have(id(number), &queue_name(queue), None))
}

fn key(store: &RedisStore, queue: &str, name: &str) -> String {
    let partition = store.inner.partitions.of_queue(&queue_name(queue));
    format!("throng:{{default:{}}}:{name}", partition.unwrap())
}

#[tokio::test]
async fn a_queue_is_in_one_partition() {
    needs_redis!();
    let server = Server::start();
    let store = open_divided(&server.url()).await;
    let queues = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let keys: HashSet<_> = queues.iter().map(|it| key(&store, it, "")).collect();
    assert!(keys.len() > 3, "they are in several partitions: {keys:?}");
    for (nth, queue) in queues.into_iter().enumerate() {
        set(&store, queue, QueueSettings::new().max_running(2)).await;
        let (one, other) = (
            Worker::of_queue(&store, queue).await,
            Worker::of_queue(&store, queue).await,
        );
        // The tasks of two queues in one partition have different ids.
        let numbers: Vec<_> = numbers(&store, queue).skip(5 * nth).take(5).collect();
        one.enqueue(numbers.iter().map(|&number| queued(number, queue)))
            .await;
        assert_eq!(store.queue(queue_name(queue)).await.unwrap().waiting, 5);
        let claim = one.claim(9).await;
        let claimed: Vec<_> = claim.tasks.iter().map(|task| task.id).collect();
        assert_eq!(claimed, [id(numbers[0]), id(numbers[1])]);
        let turned = other.turn(Vec::new(), 9).await;
        assert_eq!((turned.claim, turned.more), (None, false));
        // The verdict frees two permits, and the same turn takes them.
        assert_eq!(
            one.turn(done(&claim), 9).await.claim.unwrap().tasks.len(),
            2
        );
    }
}

#[tokio::test]
async fn a_worker_of_a_queue_rests_in_its_partition_only() {
    needs_redis!();
    let server = Server::start();
    let store = open_divided(&server.url()).await;
    let worker = Worker::of_queue(&store, "q").await;
    let mut events = store.events();
    let calls = || match server.ask(&["EVAL", TURNS, "0"]) {
        redis::Value::Int(turns) => turns,
        other => panic!("no number: {other:?}"),
    };
    assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
    let before = calls();
    assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
    assert_eq!(calls() - before, 1, "no other partition is visited");
    let other = Worker::of_queue(&store, "q").await;
    let number = numbers(&store, "q").next().unwrap();
    other.enqueue([queued(number, "q")]).await;
    until(&mut events, &Event::Wake(Some(worker.session))).await;
    assert_eq!(worker.claim(1).await.tasks[0].id, id(number));
}

#[tokio::test]
async fn a_wake_up_names_the_session() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let (a, b) = (
        Worker::of_queue(&store, "a").await,
        Worker::of_queue(&store, "b").await,
    );
    let mut events = store.events();
    for worker in [&a, &b] {
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
    }
    a.enqueue([queued(1, "b")]).await;
    let woken = async {
        loop {
            match events.recv().await {
                Some(Event::Wake(Some(session))) => return session,
                Some(_) => {}
                None => panic!("there are no more events"),
            }
        }
    };
    assert_eq!(timeout(DEADLINE, woken).await.unwrap(), b.session);
}

#[tokio::test]
async fn limits_that_cannot_be_read_pause_the_queue() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    set(&store, "q", QueueSettings::new().max_running(1)).await;
    worker.enqueue((1..=3).map(|it| queued(it, "q"))).await;
    server.ask(&["HSET", &key(&store, "q", "queues"), "sq", "garbled"]);
    assert_eq!(worker.turn(Vec::new(), 9).await.claim, None);
    assert!(store.queue(queue_name("q")).await.unwrap().is_paused);
    while store.maintain(100).await.unwrap() {}
    let (found, what) = store.damage().expect("the damage is reported");
    assert!(found == 1 && what.contains("paused: q"), "{what}");
    assert_eq!(worker.turn(Vec::new(), 9).await.claim, None);
    set(&store, "q", QueueSettings::new().max_running(2)).await;
    let resume = QueueChange::Paused(false);
    store.change_queue(queue_name("q"), resume).await.unwrap();
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
}

#[tokio::test]
async fn permits_that_are_lost_or_left_over_are_repaired() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    set(&store, "q", QueueSettings::new().max_running(3)).await;
    worker.enqueue((1..=9).map(|it| queued(it, "q"))).await;
    let claim = worker.claim(2).await;
    let permits = key(&store, "q", "permits:q");
    for (damage, running) in [
        (&["DEL", &permits][..], 2),
        (&["SADD", &permits, "no task has this"], 2),
        (&["SET", &permits, "of another type"], 2),
    ] {
        if damage[0] == "SET" {
            server.ask(&["DEL", &permits]);
        }
        server.ask(damage);
        while store.maintain(100).await.unwrap() {}
        let info = store.queue(queue_name("q")).await.unwrap();
        assert_eq!(info.running, running, "{damage:?}");
    }
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
    worker.turn(done(&claim), 0).await;
    assert_eq!(store.queue(queue_name("q")).await.unwrap().running, 1);
}

#[tokio::test]
async fn lost_routes_are_declared_again_with_queues_and_priorities() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    let worker = Worker::of_queue(&store, "q").await;
    let high = |number| NewTask {
        priority: Priority::High,
        ..queued(number, "q")
    };
    worker.enqueue([queued(1, "q"), high(2)]).await;
    server.ask(&["DEL", &key(&store, "q", "routes")]);
    let failure = store.maintain(100).await;
    failure.expect("maintenance succeeds");
    while store.maintain(100).await.unwrap() {}
    let worker = Worker::of_queue(&store, "q").await;
    worker.enqueue([queued(3, "q"), high(4)]).await;
    let mut claimed = Vec::new();
    while claimed.len() < 4 {
        let turned = worker.turn(Vec::new(), 9).await;
        let tasks = turned.claim.into_iter().flat_map(|claim| claim.tasks);
        claimed.extend(tasks.map(|task| task.id));
        while store.maintain(100).await.unwrap() {}
    }
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2, 3, 4].map(id));
}

/// A rate that is used up in Redis survives a restart of all workers, and is measured by the clock of the server.
#[tokio::test]
async fn a_rate_outlasts_its_workers() {
    needs_redis!();
    let server = Server::start();
    let store = Arc::new(open(&server.url()).await);
    set(
        &store,
        "q",
        QueueSettings::new().rate(Rate::per_hour(1).burst(2)),
    )
    .await;
    let worker = Worker::of_queue(&store, "q").await;
    worker.enqueue((1..=5).map(|it| queued(it, "q"))).await;
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
    store.close_session(worker.session).await.unwrap();
    let next = Worker::of_queue(&store, "q").await;
    let turned = next.turn(Vec::new(), 9).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    let wait = turned.next.expect("the rate says when");
    assert!(wait <= Duration::from_secs(3600), "{wait:?}");
    assert!(wait > Duration::from_secs(3000), "{wait:?}");
}

/// Their entries stay in the lists of the queue until a worker claims there.
#[tokio::test]
async fn very_many_tasks_that_have_left_a_queue_do_not_count() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    let _workers = [
        Worker::of_queue(store, "q").await,
        Worker::of_queue(store, "r").await,
    ];
    const TASKS: u64 = 6_000;
    let tasks: Vec<_> = (0..TASKS).map(|number| queued(number, "q")).collect();
    for batch in tasks.chunks(MAX_BATCH_TASKS) {
        scene.worker.enqueue(batch.iter().cloned()).await;
    }
    let ids: Vec<_> = tasks[100..].iter().rev().map(|it| it.id).collect();
    for ids in ids.chunks(100) {
        let to = Change::MoveTo(queue_name("r"));
        store.change(ids.to_vec(), to).await.unwrap();
    }
    let waiting = async |queue| store.queue(queue_name(queue)).await.unwrap().waiting;
    assert_eq!((waiting("q").await, waiting("r").await), (100, TASKS - 100));
}
