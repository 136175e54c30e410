//! Claims that are pushed to idle sessions.

use super::turns_tests::commands_of;
use super::*;
use crate::durable::store::PushedClaim;
use crate::durable::store::redis::Time;

mod executor_tests;

/// Sends a turn after which the session is idle and accepts pushed claims.
pub(super) async fn rest(worker: &Worker, want: usize, pushes: ClaimPushes) -> TurnAnswer {
    let request = Turn {
        pushes: ClaimPushes {
            are_accepted: true,
            ..pushes
        },
        ..(*worker.new_turn(Vec::new(), want)).clone()
    };
    let turned = settled(|| worker.store.turn(Arc::new(request.clone()))).await;
    turned.unwrap()
}

async fn next_push(events: &mut UnboundedReceiver<Event>) -> PushedClaim {
    loop {
        match timeout(DEADLINE, events.recv()).await.unwrap().unwrap() {
            Event::Pushed(pushed) => return (*pushed).clone(),
            Event::Wake(Some(_)) => panic!("a wake-up instead"),
            _ => {}
        }
    }
}

/// Returns `true` if the next message is a wake-up, and not a pushed claim.
async fn is_woken(events: &mut UnboundedReceiver<Event>) -> bool {
    loop {
        match timeout(DEADLINE, events.recv()).await.unwrap().unwrap() {
            Event::Pushed(_) => return false,
            Event::Wake(Some(_)) => return true,
            _ => {}
        }
    }
}

fn ids_of(claim: &Claim) -> Vec<TaskId> {
    claim.tasks.iter().map(|task| task.id).collect()
}

/// A worker that receives messages, and a producer.
struct Pair {
    events: UnboundedReceiver<Event>,
    worker: Worker,
    producer: Worker,
    server: Server,
}

impl Pair {
    async fn new() -> Self {
        let server = Server::start();
        let worker = Worker::new(open(&server.url()).await).await;
        let producer = Worker::new(open(&server.url()).await).await;
        let mut events = worker.store.events();
        until(&mut events, &Event::Ready).await;
        Self {
            events,
            worker,
            producer,
            server,
        }
    }

    async fn rest(&self, want: usize) {
        let turned = rest(&self.worker, want, ClaimPushes::default()).await;
        assert_eq!(turned.claim, None);
    }

    /// Adds an idle session of a process that does not exist.
    fn add_dead_session(&self) {
        self.server.ask(&[
            "EVAL",
            "local key = redis.call('KEYS', 'throng:{default:0}:idle:*')[1]
            local idle = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
            local row = cmsgpack.unpack(redis.call('HGET', KEYS[1], string.sub(idle[1], 9)))
            row[6] = 'deceased'
            redis.call('HSET', KEYS[1], '77', cmsgpack.pack(row))
            return redis.call('ZADD', key, idle[2] + 1, 'deceased77')",
            "1",
            "throng:{default:0}:sessions",
        ]);
    }

    fn length(&self) -> u64 {
        let length = self.server.ask(&["LLEN", "throng:{default:0}:ready"]);
        redis::from_redis_value(length).unwrap()
    }
}

#[tokio::test]
async fn a_stored_task_is_claimed_for_an_idle_session() {
    needs_redis!();
    let mut it = Pair::new().await;
    it.rest(2).await;
    let before = crate::durable::clock::since_boot();
    it.producer.enqueue([task(1)]).await;
    let first = next_push(&mut it.events).await;
    assert_eq!(first.session, it.worker.session);
    assert_eq!(ids_of(&first.claim), [id(1)]);
    assert_eq!(first.claim.tasks[0].payload, Ok(task(1).payload));
    assert!(first.is_idle && first.claimed_at + LEASE > before);
    assert_eq!(it.length(), 0);

    let (_, commands) = commands_of(&it.server, it.producer.enqueue([task(2)])).await;
    assert_eq!(commands, 21, "a task is stored and claimed");
    let second = next_push(&mut it.events).await;
    assert!(!second.is_idle && second.claim.epoch > first.claim.epoch);
    // The session has no permit left, so it is not idle.
    it.producer.enqueue([task(3)]).await;
    assert_eq!(it.length(), 1);
    for pushed in [first, second] {
        let turned = it.worker.turn(done(&pushed.claim), 0).await;
        assert_eq!(turned.refused, []);
    }
    let counts = it.worker.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running, counts.kept), (1, 0, 2));
}

/// A worker that must claim other tasks itself is woken.
#[tokio::test]
async fn only_plain_tasks_that_are_alone_are_pushed() {
    needs_redis!();
    let mut it = Pair::new().await;
    let mut in_queue = task(1);
    in_queue.queue = queue_name("mails");
    let mut large = task(2);
    large.payload = vec![7; 2000];
    let many = (10..30).map(task).collect();
    for tasks in [vec![large], many, (40..43).map(task).collect()] {
        it.rest(2).await;
        it.producer.enqueue(tasks).await;
        assert!(is_woken(&mut it.events).await);
        while let Some(claim) = it.worker.turn(Vec::new(), 9).await.claim {
            it.worker.turn(done(&claim), 0).await;
        }
    }
    // Without a session for the queue, nobody is woken.
    it.rest(2).await;
    it.producer.enqueue([in_queue]).await;
    it.producer.enqueue([task(50)]).await;
    assert_eq!(ids_of(&next_push(&mut it.events).await.claim), [id(50)]);
}

/// The list has a task that is in front of the new one.
#[tokio::test]
async fn no_task_overtakes_another() {
    needs_redis!();
    let it = Pair::new().await;
    it.rest(2).await;
    it.server.ask(&[
        "EVAL",
        "return redis.call('RPUSH', KEYS[1], 'other')",
        "1",
        "throng:{default:0}:ready",
    ]);
    it.producer.enqueue([task(1)]).await;
    assert_eq!(it.length(), 2);
}

/// The message is lost. The worker learns of the claim from a turn, once.
#[tokio::test]
async fn a_lost_claim_is_returned_by_a_turn() {
    needs_redis!();
    let it = Pair::new().await;
    it.rest(4).await;
    it.producer.enqueue([task(1)]).await;
    it.producer.enqueue([task(2)]).await;
    let lost = ClaimPushes {
        may_be_lost: true,
        ..ClaimPushes::default()
    };
    let first = rest(&it.worker, 4, lost).await;
    let claim = first.claim.unwrap();
    assert!(first.is_pushed && ids_of(&claim) == [id(1)]);
    let lost = ClaimPushes {
        received: Some(claim.epoch),
        ..lost
    };
    let second = rest(&it.worker, 4, lost).await;
    let other = second.claim.unwrap();
    assert!(second.is_pushed && ids_of(&other) == [id(2)]);
    let lost = ClaimPushes {
        received: Some(other.epoch),
        ..lost
    };
    let third = rest(&it.worker, 4, lost).await;
    assert_eq!((third.claim, third.is_pushed), (None, false));
    let verdicts = [done(&claim), done(&other)].concat();
    assert_eq!(it.worker.turn(verdicts, 0).await.refused, []);
}

/// The answer is lost, and the message arrives late. The repeated answer still says that the claim was pushed.
#[tokio::test]
async fn a_repeated_answer_names_a_pushed_claim() {
    needs_redis!();
    let it = Pair::new().await;
    it.rest(1).await;
    it.producer.enqueue([task(1)]).await;
    let mut request = (*it.worker.new_turn(Vec::new(), 1)).clone();
    request.pushes.may_be_lost = true;
    let request = Arc::new(request);
    let store = &it.worker.store;
    let first = store.turn(Arc::clone(&request)).await.unwrap();
    let claim = first.claim.unwrap();
    assert!(first.is_pushed);
    assert!(
        store
            .renew(vec![claim.epoch])
            .await
            .unwrap()
            .lost
            .is_empty()
    );
    let second = store.turn(request).await.unwrap();
    assert_eq!(second.claim.map(|it| it.epoch), Some(claim.epoch));
    assert!(second.is_pushed);
}

/// A second connection receives the messages of the worker.
#[tokio::test]
async fn a_claim_that_several_connections_receive_stands() {
    needs_redis!();
    let mut it = Pair::new().await;
    let client = redis::Client::open(it.server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut other = connection.as_pubsub();
    other.psubscribe("*").unwrap();
    it.rest(1).await;
    it.producer.enqueue([task(1)]).await;
    let claim = next_push(&mut it.events).await.claim;
    assert_eq!(it.length(), 0);
    assert_eq!(it.worker.turn(done(&claim), 0).await.refused, []);
}

/// The permits of a claim whose message is under way are used.
#[tokio::test]
async fn a_claim_under_way_uses_permits() {
    needs_redis!();
    let mut it = Pair::new().await;
    it.rest(2).await;
    it.producer.enqueue([task(1)]).await;
    it.producer.enqueue((2..=4).map(task)).await;
    let turned = rest(&it.worker, 2, ClaimPushes::default()).await;
    assert_eq!(ids_of(&turned.claim.unwrap()), [id(2)]);
    assert!(turned.more && !turned.is_pushed);
    assert_eq!(ids_of(&next_push(&mut it.events).await.claim), [id(1)]);
}

/// Nobody receives messages of the process, so the task is not claimed for it, and another session is woken.
#[tokio::test]
async fn a_task_for_a_dead_process_wakes_another() {
    needs_redis!();
    let mut it = Pair::new().await;
    it.rest(2).await;
    it.add_dead_session();
    let request = it.producer.new_enqueue([task(1)]);
    let stored = it.producer.store.enqueue(request).await;
    assert!(stored.is_ok(), "{stored:?}");
    assert!(is_woken(&mut it.events).await);
    let claim = it.worker.claim(1).await;
    assert_eq!(ids_of(&claim), [id(1)]);
    let counts = it.worker.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (0, 1));
}

/// A replica passes messages on, but the primary does not know that somebody receives them there. If the claim were sent and then undone,
/// its task would run twice.
#[tokio::test]
async fn no_claim_is_sent_that_does_not_stand() {
    needs_redis!();
    let (it, replica) = (Pair::new().await, Server::start());
    it.rest(2).await;
    it.add_dead_session();
    let client = redis::Client::open(replica.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut dead = connection.as_pubsub();
    dead.subscribe("throng:{default:0}:client:deceased")
        .unwrap();
    replica.ask(&["REPLICAOF", "127.0.0.1", &it.server.port().to_string()]);
    let is_synced = || {
        let info = format!("{:?}", replica.ask(&["INFO", "replication"]));
        info.contains("master_link_status:up")
    };
    timeout(DEADLINE, async {
        while !is_synced() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the replica has the data");
    it.producer.enqueue([task(1)]).await;
    let message: Vec<u8> = dead.get_message().unwrap().get_payload().unwrap();
    assert_eq!(message, b"w77");
}

/// Opens sessions with a manual clock.
struct Timed {
    clock: Clock,
    server: Server,
}

impl Timed {
    async fn open(&self) -> Worker {
        let builder = RedisStore::builder(&self.server.url());
        let time = Time::manual(self.clock.clone());
        Worker::new(RedisStore::open_as(&builder, time).await.unwrap()).await
    }

    /// Returns an idle worker, and its messages.
    async fn open_idle(&self, want: usize) -> (Worker, UnboundedReceiver<Event>) {
        let worker = self.open().await;
        let mut events = worker.store.events();
        until(&mut events, &Event::Ready).await;
        rest(&worker, want, ClaimPushes::default()).await;
        (worker, events)
    }
}

fn timed() -> Timed {
    Timed {
        clock: Clock::manual(),
        server: Server::start(),
    }
}

/// The worker dies before it has confirmed the claim. That counts as a loss, and not as a crash.
#[tokio::test]
async fn an_unconfirmed_claim_is_lost() {
    needs_redis!();
    let it = timed();
    let (_worker, mut events) = it.open_idle(1).await;
    let other = it.open().await;
    other.enqueue([task(1)]).await;
    assert_eq!(ids_of(&next_push(&mut events).await.claim), [id(1)]);
    for _ in 0..3 {
        it.clock.advance(LEASE);
        if let Some(claim) = other.turn(Vec::new(), 1).await.claim {
            let task = &claim.tasks[0];
            assert_eq!((task.lost, task.crashes), (1, 0));
            return;
        }
    }
    panic!("the lease does not end");
}

/// The process may be dead although the server still sends it messages. So it is woken, and gets no more claims.
#[tokio::test]
async fn nothing_is_pushed_to_a_session_that_has_confirmed_nothing_for_a_second() {
    needs_redis!();
    let it = timed();
    let (_worker, mut events) = it.open_idle(9).await;
    let other = it.open().await;
    other.enqueue([task(1)]).await;
    next_push(&mut events).await;
    it.clock.advance(Duration::from_millis(900));
    other.enqueue([task(2)]).await;
    next_push(&mut events).await;
    it.clock.advance(Duration::from_millis(100));
    other.enqueue([task(3)]).await;
    assert!(is_woken(&mut events).await);
}

/// The lease ends while the message is lost. The turn that returns the claim starts a whole new lease.
#[tokio::test]
async fn a_lost_claim_that_is_returned_has_a_whole_lease() {
    needs_redis!();
    let it = timed();
    let (worker, _events) = it.open_idle(1).await;
    let other = it.open().await;
    other.enqueue([task(1)]).await;
    it.clock.advance(LEASE);
    let lost = ClaimPushes {
        may_be_lost: true,
        ..ClaimPushes::default()
    };
    let turned = rest(&worker, 1, lost).await;
    assert!(turned.is_pushed);
    // The store extends the lease before it takes the task back.
    it.clock.advance(LEASE);
    assert_eq!(other.turn(Vec::new(), 1).await.claim, None);
    let claim = turned.claim.unwrap();
    assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
}

/// The message is lost, and the worker does not know that. Its turns claim nothing else for the permits of that claim, and it does not ask
/// again at once. After a second, a turn returns the claim.
#[tokio::test]
async fn a_claim_that_is_not_confirmed_is_returned_after_a_second() {
    needs_redis!();
    let it = timed();
    let (worker, _events) = it.open_idle(2).await;
    let other = it.open().await;
    other.enqueue([task(1), task(2)]).await;
    other.enqueue([task(3)]).await;
    it.clock.advance(Duration::from_millis(300));
    let early = rest(&worker, 2, ClaimPushes::default()).await;
    assert_eq!((early.claim, early.more), (None, false));
    assert_eq!(early.next, Some(Duration::from_millis(700)));
    it.clock.advance(Duration::from_millis(700));
    let late = rest(&worker, 2, ClaimPushes::default()).await;
    assert!(late.is_pushed);
    assert_eq!(ids_of(&late.claim.unwrap()), [id(1), id(2)]);
}

/// The worker has never seen the claim, so its tasks have not run.
#[tokio::test]
async fn a_claim_under_way_to_a_session_that_is_closed_is_no_loss() {
    needs_redis!();
    let mut it = Pair::new().await;
    it.rest(1).await;
    it.producer.enqueue([task(1)]).await;
    next_push(&mut it.events).await;
    it.worker
        .store
        .close_session(it.worker.session)
        .await
        .unwrap();
    let claim = it.producer.claim(1).await;
    let task = &claim.tasks[0];
    assert_eq!((task.id, task.lost, task.crashes), (id(1), 0, 0));
}

/// Nobody serves the session, although its process receives messages.
#[tokio::test]
async fn nothing_is_pushed_to_a_session_that_has_lost_a_claim() {
    needs_redis!();
    let it = timed();
    let (_worker, mut events) = it.open_idle(9).await;
    let other = it.open().await;
    other.enqueue([task(1)]).await;
    next_push(&mut events).await;
    let mut returned = None;
    for _ in 0..3 {
        it.clock.advance(LEASE);
        let mut request = (*other.new_turn(Vec::new(), 1)).clone();
        request.go_idle = false;
        let turned = other.store.turn(Arc::new(request)).await.unwrap();
        returned = returned.or(turned.claim);
    }
    assert_eq!(ids_of(&returned.expect("its lease has ended")), [id(1)]);
    other.enqueue([task(2)]).await;
    assert!(is_woken(&mut events).await);
}
