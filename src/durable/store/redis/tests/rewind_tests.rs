//! Servers that have lost acknowledged writes. A replica that is cut off from its primary before a promotion lacks exactly what is stored
//! after the cut.

use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use super::fake_sentinel::FakeSentinel;
use super::proxy::Trick;
use super::scene::SECOND;
use super::sentinels_tests::cut;
use super::*;
use crate::durable::store::Rewind;
use crate::durable::store::redis::connection::{
    Connection, ConnectionSettings, Preparation, Prepared,
};
use crate::durable::store::redis::error::{Fault, no_connection};
use crate::durable::store::redis::lost_writes::LostWrites;
use crate::durable::store::suite::with_key;
use crate::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, Key, Losses, Run, SpawnOptions,
    Status, TaskContext, TaskError,
};

/// A primary and a replica of it. A Sentinel names the primary.
struct Pair {
    primary: Server,
    replica: Server,
    sentinel: FakeSentinel,
}

impl Pair {
    async fn start() -> Self {
        let primary = Server::with(&["--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
        let replica = Server::replica_of(&primary);
        let sentinel = FakeSentinel::naming(&primary, 1).await;
        Self {
            primary,
            replica,
            sentinel,
        }
    }

    fn builder(&self) -> RedisStoreBuilder {
        let mut builder = RedisStore::sentinel([self.sentinel.address()], "main");
        builder.answer_timeout(DEADLINE).connect_timeout(DEADLINE);
        builder
    }

    async fn open(&self) -> RedisStore {
        self.builder().open().await.unwrap()
    }

    /// Cuts off the replica when it has everything that is stored so far.
    async fn cut_off(&self) {
        let offset = |server: &Server, name: &str| {
            let info = server.ask(&["INFO", "replication"]);
            let info = format!("{info:?}");
            let (_, rest) = info.split_once(name)?;
            Some(rest.split("\\r").next()?.to_owned())
        };
        let is_synchronized = || {
            let info = format!("{:?}", self.replica.ask(&["INFO", "replication"]));
            info.contains("master_link_status:up")
                && offset(&self.replica, "slave_repl_offset:")
                    == offset(&self.primary, "master_repl_offset:")
        };
        let end = Instant::now() + DEADLINE;
        while !is_synchronized() {
            assert!(Instant::now() < end, "the replica does not catch up");
            sleep(Duration::from_millis(5)).await;
        }
        self.replica.ask(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Replaces the primary by the replica.
    fn fail_over(&self) {
        self.sentinel.name(&self.replica, 2);
        cut(&self.primary);
    }
}

/// Waits for the report of a rewind.
async fn rewind(events: &mut UnboundedReceiver<Event>) -> Rewind {
    let found = async {
        loop {
            if let Event::Rewound(rewind) = events.recv().await.expect("the store exists") {
                return rewind;
            }
        }
    };
    timeout(DEADLINE, found).await.expect("it is reported")
}

/// Returns the ids of the waiting tasks, in the order in which they are claimed.
async fn waiting(worker: &Worker) -> Vec<TaskId> {
    let later = Worker::of(&worker.store).await;
    let claim = later.turn(Vec::new(), MAX_BATCH_TASKS).await.claim;
    claim
        .into_iter()
        .flat_map(|it| it.tasks)
        .map(|it| it.id)
        .collect()
}

#[tokio::test]
async fn tasks_that_a_promoted_replica_lacks_are_stored_again_in_order() {
    needs_redis!();
    let pair = Pair::start().await;
    let worker = Worker::new(pair.open().await).await;
    let mut events = worker.store.events();
    worker.enqueue([task(0), task(1)]).await;
    pair.cut_off().await;
    for number in 2..6 {
        worker.enqueue([task(number)]).await;
    }
    pair.fail_over();
    // The next request follows in the same session.
    worker.enqueue([task(6)]).await;
    let healed = Rewind {
        healed: 4,
        ..Rewind::default()
    };
    assert_eq!(rewind(&mut events).await, healed);
    assert_eq!(waiting(&worker).await, (0..7).map(id).collect::<Vec<_>>());
}

/// The replica does not know the session. It is opened again, and its next request is accepted.
#[tokio::test]
async fn a_lost_session_is_restored_with_its_tasks() {
    needs_redis!();
    let pair = Pair::start().await;
    let store = Arc::new(pair.open().await);
    let mut events = store.events();
    pair.cut_off().await;
    let worker = Worker::of(&store).await;
    worker.enqueue([task(1), task(2)]).await;
    worker.enqueue([task(3)]).await;
    pair.fail_over();
    worker.enqueue([task(4)]).await;
    let healed = Rewind {
        healed: 3,
        ..Rewind::default()
    };
    assert_eq!(rewind(&mut events).await, healed);
    assert_eq!(waiting(&worker).await, (1..5).map(id).collect::<Vec<_>>());
}

/// Both connections search for losses, and a partition has only a part of a request.
#[tokio::test]
async fn each_partition_gets_its_lost_tasks() {
    needs_redis!();
    let pair = Pair::start().await;
    let store = pair.builder().partitions(4).open().await.unwrap();
    let worker = Worker::new(store).await;
    let mut events = worker.store.events();
    worker.enqueue((0..50).map(task)).await;
    pair.cut_off().await;
    worker.enqueue((50..100).map(task)).await;
    pair.fail_over();
    worker.enqueue([task(100)]).await;
    let healed = Rewind {
        healed: 50,
        ..Rewind::default()
    };
    assert_eq!(rewind(&mut events).await, healed);
    assert_eq!(worker.store.counts().await.unwrap().waiting, 101);
}

/// Returns a task of such a size that only one is kept.
fn large(number: u64) -> NewTask {
    NewTask {
        payload: vec![b'1'; 3 << 20],
        ..task(number)
    }
}

/// The large payloads exceed the bytes that are kept.
#[tokio::test]
async fn tasks_that_are_not_kept_are_counted() {
    needs_redis!();
    let pair = Pair::start().await;
    let worker = Worker::new(pair.open().await).await;
    let mut events = worker.store.events();
    pair.cut_off().await;
    worker.enqueue([task(1), large(2)]).await;
    worker.enqueue([large(3)]).await;
    worker.enqueue([task(4)]).await;
    pair.fail_over();
    worker.enqueue([task(5)]).await;
    let expected = Rewind {
        healed: 2,
        lost: 2,
        is_replaced: false,
    };
    assert_eq!(rewind(&mut events).await, expected);
    let states = worker.store.status((1..6).map(id).collect()).await.unwrap();
    let are_waiting = states.iter().map(|it| *it == TaskState::Waiting);
    assert_eq!(
        are_waiting.collect::<Vec<_>>(),
        [false, false, true, true, true]
    );
}

/// The connection breaks when the first of the lost requests has been sent again.
#[tokio::test]
async fn what_is_not_kept_is_counted_although_the_connection_breaks() {
    needs_redis!();
    let pair = Pair::start().await;
    let worker = Worker::new(pair.open().await).await;
    let mut events = worker.store.events();
    pair.cut_off().await;
    worker.enqueue([task(1), large(2)]).await;
    worker.enqueue([large(3)]).await;
    worker.enqueue([task(4)]).await;
    let proxy = Proxy::to(pair.replica.port()).await;
    // After that for the last numbers.
    proxy.play_on("EVAL\r\n", 1, Trick::Lose);
    pair.sentinel.name_port(proxy.port(), 2);
    cut(&pair.primary);
    worker.enqueue([task(5)]).await;
    let (mut healed, mut lost) = (0, 0);
    while healed == 0 {
        let found = rewind(&mut events).await;
        (healed, lost) = (healed + found.healed, lost + found.lost);
    }
    assert_eq!((healed, lost), (1, 2));
    assert_eq!(worker.store.counts().await.unwrap().waiting, 3);
}

/// Its key was held by a task that nobody has any more. Its caller was told that it was not stored.
#[tokio::test]
async fn a_task_that_was_rejected_is_not_stored_after_a_loss() {
    needs_redis!();
    let pair = Pair::start().await;
    let worker = Worker::new(pair.open().await).await;
    let other = Worker::new(pair.open().await).await;
    let mut events = worker.store.events();
    pair.cut_off().await;
    let keyed = |number| with_key(Key::new("key").reject(), task(number));
    other.enqueue([keyed(1)]).await;
    let request = worker.new_enqueue([task(2), keyed(3), task(4)]);
    let answer = worker.store.enqueue(request).await.unwrap();
    assert_eq!(answer.conflicts.len(), 1);
    drop(other);
    pair.fail_over();
    worker.enqueue([task(5)]).await;
    let healed = Rewind {
        healed: 2,
        ..Rewind::default()
    };
    assert_eq!(rewind(&mut events).await, healed);
    assert_eq!(waiting(&worker).await, [2, 4, 5].map(id));
}

/// The answer to the request that closes the session is lost, and the next connection searches for losses.
#[tokio::test]
async fn a_session_that_was_closed_is_not_restored() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open(&proxy.url()).await).await;
    let other = Worker::of(&worker.store).await;
    other.store.close_session(other.session).await.unwrap();
    let forgotten = NewTask {
        retention: Duration::ZERO,
        ..task(1)
    };
    worker.enqueue([forgotten]).await;
    let claim = worker.claim(1).await;
    worker.turn(done(&claim), 0).await;
    proxy.play(Trick::Lose);
    let closed = worker.store.close_session(worker.session).await;
    assert_fails(closed, &Cause::Unavailable, Effect::Unknown);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (1, 0));
}

/// The store has several partitions, and is emptied once.
#[tokio::test]
async fn a_server_that_is_emptied_is_reported_once() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let worker = Worker::new(builder.partitions(4).open().await.unwrap()).await;
    let mut events = worker.store.events();
    worker.enqueue((0..50).map(task)).await;
    server.ask(&["FLUSHALL"]);
    worker.store.open_session(None).await.unwrap();
    let lost = Rewind {
        lost: 50,
        is_replaced: true,
        ..Rewind::default()
    };
    assert_eq!(rewind(&mut events).await, lost);
}

/// The new primary refuses writes at first, and the process sends no more requests.
#[tokio::test]
async fn a_server_that_is_not_ready_gets_lost_tasks_later() {
    needs_redis!();
    let pair = Pair::start().await;
    let worker = Worker::new(pair.open().await).await;
    let mut events = worker.store.events();
    pair.cut_off().await;
    worker.enqueue([task(1)]).await;
    let wants = |count| ["CONFIG", "SET", "min-replicas-to-write", count];
    pair.replica.ask(&wants("1"));
    pair.fail_over();
    let refused = || -> u64 {
        let stats = format!("{:?}", pair.replica.ask(&["INFO", "errorstats"]));
        let count = stats.split_once("errorstat_NOREPLICAS:count=");
        let count = count.and_then(|(_, rest)| rest.split("\\r").next()?.parse().ok());
        count.unwrap_or_default()
    };
    let end = Instant::now() + DEADLINE;
    // The connection is searched before it is used, and then again and again.
    while refused() < 4 {
        assert!(Instant::now() < end, "nothing is sent again");
        sleep(Duration::from_millis(5)).await;
    }
    pair.replica.ask(&wants("0"));
    assert_eq!(rewind(&mut events).await.healed, 1);
}

/// The connection is closed when one of two partitions has been searched.
#[tokio::test]
async fn what_a_search_has_found_is_reported_although_it_ends_early() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut builder = RedisStore::builder(&server.url());
    let worker = Worker::new(builder.partitions(2).open().await.unwrap()).await;
    let mut events = worker.store.events();
    worker.enqueue((0..50).map(task)).await;
    server.ask(&["FLUSHALL"]);
    let search = LostWrites::new(&worker.store.inner);
    let (mut slow, mut fast) = (raw(&proxy.url()).await, raw(&server.url()).await);
    proxy.play_on("EVAL\r\n", 1, Trick::Stall);
    let stopped = timeout(SOON, search.prepare(&mut slow, &[0, 1])).await;
    assert!(stopped.is_err(), "it waits for the second partition");
    let (ready, searched) = search.prepare(&mut fast, &[0, 1]).await;
    searched.unwrap();
    assert_eq!(ready, [0, 1]);
    assert_eq!(rewind(&mut events).await.lost, 50);
}

/// Returns a connection on which an answer may take long.
async fn raw(url: &str) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.unwrap()
}

/// A preparation that waits for an answer that never comes.
struct Endless;

impl Preparation for Endless {
    fn prepare<'a>(&'a self, _: &'a mut MultiplexedConnection, _: &'a [usize]) -> Prepared<'a> {
        Box::pin(std::future::pending())
    }
}

/// Others wait until the search is over.
#[tokio::test]
async fn a_search_ends_with_its_connection() {
    needs_redis!();
    let server = Server::start();
    let settings = Arc::<ConnectionSettings>::default();
    settings.preparation.get_or_init(|| Arc::new(Endless));
    let raw = raw(&server.url()).await;
    let connection = Connection::new(1, raw, &settings, &Arc::default());
    let prepare = timeout(DEADLINE, connection.prepare(&[0]));
    let (prepared, ()) = tokio::join!(prepare, async { connection.close(&no_connection()) });
    let prepared = prepared.expect("it ends");
    assert!(matches!(prepared, Err(Fault::Broken(_))), "{prepared:?}");
}

#[tokio::test]
async fn a_connection_that_breaks_is_no_loss() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let mut events = worker.store.events();
    for number in 0..5 {
        worker.enqueue([task(number)]).await;
        cut(&server);
    }
    worker.enqueue([task(5)]).await;
    // The end of the store ends the events.
    assert_eq!(worker.store.counts().await.unwrap().stored, 6);
    drop(worker);
    while let Some(event) = timeout(DEADLINE, events.recv()).await.unwrap() {
        assert!(!matches!(event, Event::Rewound(_)), "{event:?}");
    }
}

/// The answer of the former primary arrives when the store has left it, and has searched the new one. So the effect of the request is
/// unknown, and the engine sends it again.
#[tokio::test]
async fn an_answer_of_a_former_primary_does_not_count() {
    needs_redis!();
    let pair = Pair::start().await;
    let proxy = Proxy::to(pair.primary.port()).await;
    pair.sentinel.name_port(proxy.port(), 1);
    let worker = Worker::new(pair.open().await).await;
    worker.enqueue([task(1)]).await;
    pair.cut_off().await;
    proxy.play(Trick::Delay(SECOND));
    let request = worker.new_enqueue([task(2)]);
    let (store, sent) = (Arc::clone(&worker.store), Arc::clone(&request));
    let enqueue = tokio::spawn(async move { store.enqueue(sent).await });
    let is_stored =
        || pair.primary.ask(&["HLEN", "throng:{default:0}:alive"]) == redis::Value::Int(2);
    while !is_stored() {
        tokio::task::yield_now().await;
    }
    // The connection for messages asks the Sentinel, and all connections learn its answer.
    pair.sentinel.name(&pair.replica, 2);
    pair.primary.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let answer = timeout(DEADLINE, enqueue).await.unwrap().unwrap();
    assert_fails(answer, &Cause::Unavailable, Effect::Unknown);
    settled(|| worker.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    assert_eq!(waiting(&worker).await, [id(1), id(2)]);
}

#[derive(Serialize, Deserialize)]
struct Job(u64);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = u64;
}

impl Run<()> for Job {
    async fn run(self, _: TaskContext<()>) -> Result<u64, TaskError> {
        Ok(self.0)
    }
}

async fn executor(client: &DurableClient) -> DurableExecutor {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Job>().start(()).await.unwrap()
}

/// The tasks had ended, and the store has lost their ends, too. They run again.
#[tokio::test]
async fn handles_of_lost_tasks_get_their_outputs() {
    needs_redis!();
    let pair = Pair::start().await;
    let client = DurableClient::open(pair.open().await);
    let running = executor(&client).await;
    pair.cut_off().await;
    let first = client.spawn(Job(1)).await.unwrap();
    assert_eq!(first.clone().await.unwrap(), 1);
    running.shutdown(Duration::ZERO).await;
    let second = client.spawn(Job(2)).await.unwrap();
    pair.fail_over();
    let waits = tokio::spawn(second.into_future());
    let third = client.spawn(Job(3)).await.unwrap();
    assert_eq!(first.status().await.unwrap(), Status::Waiting);
    let _executor = executor(&client).await;
    for (handle, expected) in [(first.into_future(), 1), (third.into_future(), 3)] {
        assert_eq!(timeout(DEADLINE, handle).await.unwrap().unwrap(), expected);
    }
    assert_eq!(waits.await.unwrap().unwrap(), 2);
    let Losses {
        rewinds,
        healed,
        lost,
        ..
    } = client.losses();
    assert_eq!((rewinds, healed, lost), (1, 2, 0));
}

/// The process that has stored a task is gone, so nobody has it any more.
#[tokio::test]
async fn a_handle_of_a_task_that_nobody_has_says_so() {
    needs_redis!();
    let pair = Pair::start().await;
    let client = DurableClient::open(pair.open().await);
    _ = client.spawn(Job(1)).await.unwrap();
    let producer = DurableClient::open(pair.open().await);
    pair.cut_off().await;
    let id = producer.spawn(Job(2)).await.unwrap().id();
    producer.close().await.unwrap();
    let handle: DurableHandle<u64> = client.attach::<Job>(id);
    // Its own loss tells the client of the rewind.
    _ = client.spawn(Job(3)).await.unwrap();
    pair.fail_over();
    let error = timeout(DEADLINE, handle).await.unwrap().unwrap_err();
    assert!(error.is_rewound() && error.is_expired(), "{error}");
    let unknown = client.attach::<Job>(TaskId::new()).await.unwrap_err();
    assert!(unknown.is_expired() && !unknown.is_rewound(), "{unknown}");
    assert_eq!(client.losses().healed, 1);
}

#[tokio::test]
async fn a_server_that_is_emptied_under_load_is_reported() {
    needs_redis!();
    let server = Server::start();
    let client = DurableClient::open(open(&server.url()).await);
    let mut handles = Vec::new();
    for number in 0..20 {
        handles.push(client.spawn(Job(number)).await.unwrap());
        if number == 10 {
            server.ask(&["FLUSHALL"]);
        }
    }
    let _executor = executor(&client).await;
    for (number, handle) in (0..).zip(handles) {
        let end = timeout(DEADLINE, handle).await.expect("it ends");
        match end {
            Ok(output) => assert!(number > 10 && output == number),
            Err(error) => assert!(number <= 10 && error.is_rewound(), "{number}: {error}"),
        }
    }
    let losses = client.losses();
    assert_eq!((losses.rewinds, losses.healed), (1, 0));
    assert!(losses.lost >= 11, "{losses:?}");
    // The same id can be used again.
    let options = SpawnOptions::new().id(TaskId::new());
    assert_eq!(
        client
            .spawn_with(Job(7), options)
            .await
            .unwrap()
            .await
            .unwrap(),
        7
    );
}
