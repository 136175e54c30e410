//! Epochs, which are fencing tokens, do not fall when a server loses its last claims.

use std::fs;

use super::super::time::Time;
use super::*;
use crate::durable::clock::Clock;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The age at which a copy must still have a ceiling that is high enough.
const AGE: Duration = Duration::from_secs(4 * 60 + 50);

/// Returns a clock that is this far ahead of the time at which the tests begin.
fn clock(passed: Duration) -> Clock {
    let clock = Clock::manual();
    clock.advance(passed);
    clock
}

/// Opens a worker in a process of its own, which has received no epochs.
async fn worker(server: &Server, clock: &Clock) -> Worker {
    let builder = RedisStore::builder(&server.url());
    let store = RedisStore::open_as(&builder, Time::manual(clock.clone()));
    Worker::new(store.await.unwrap()).await
}

/// Returns a copy of a server's data.
fn copy(server: &Server) -> Vec<u8> {
    server.ask(&["SAVE"]);
    fs::read(server.folder().join("dump.rdb")).unwrap()
}

/// Kills the server, and starts it with a copy of its data.
fn restore(server: &mut Server, copy: &[u8]) {
    server.kill();
    fs::write(server.folder().join("dump.rdb"), copy).unwrap();
    server.run();
}

/// Claims a task at some time after the server was copied, and again after the copy was restored and the clock set back.
/// Asserts that the epoch rises.
async fn assert_rises(
    before: impl AsyncFn(&Server, &Clock, &Worker),
    age: Duration,
    behind: Duration,
) {
    let mut server = Server::start();
    let right = clock(10 * HOUR);
    let first = worker(&server, &right).await;
    first.enqueue([task(1)]).await;
    first.turn(Vec::new(), 0).await;
    before(&server, &right, &first).await;
    let copied = copy(&server);
    right.advance(age);
    let lost = first.claim(1).await;
    restore(&mut server, &copied);
    let wrong = clock(right.wall() - Clock::manual().wall() - behind);
    let claim = worker(&server, &wrong).await.claim(1).await;
    assert_eq!(claim.tasks[0].id, lost.tasks[0].id);
    assert!(claim.epoch > lost.epoch, "{} {}", claim.epoch, lost.epoch);
}

#[tokio::test]
async fn an_epoch_is_above_those_that_a_restored_copy_lacks() {
    needs_redis!();
    assert_rises(async |_, _, _| (), Duration::ZERO, SECOND * 30).await;
}

/// Just before the copy was taken, the worker opened its session, the last claim was made, or maintenance ran.
#[tokio::test]
async fn an_epoch_is_above_those_of_five_minutes() {
    needs_redis!();
    assert_rises(async |_, _, _| (), AGE, HOUR).await;
    let claims = async |_: &Server, clock: &Clock, worker: &Worker| {
        clock.advance(HOUR);
        worker.enqueue([task(0)]).await;
        let claim = worker.claim(2).await;
        let released = verdicts(&claim, || Verdict::Release);
        worker.turn(released, 0).await;
    };
    assert_rises(claims, AGE, HOUR).await;
    let maintains = async |_: &Server, clock: &Clock, worker: &Worker| {
        clock.advance(HOUR);
        worker.store.maintain(100).await.unwrap();
        // The next pass is late.
        clock.advance(AGE);
    };
    assert_rises(maintains, AGE, HOUR).await;
    let comes = async |server: &Server, clock: &Clock, _: &Worker| {
        clock.advance(HOUR);
        worker(server, clock).await;
    };
    assert_rises(comes, AGE, HOUR).await;
}

#[tokio::test]
async fn a_copy_that_is_restored_twice_has_other_epochs_each_time() {
    needs_redis!();
    let mut server = Server::start();
    let clock = clock(HOUR);
    let first = worker(&server, &clock).await;
    first.enqueue((0..9).map(task)).await;
    let mut last = first.claim(1).await.epoch;
    let copied = copy(&server);
    for passed in [MINUTE, SECOND, SECOND] {
        clock.advance(passed);
        restore(&mut server, &copied);
        let worker = worker(&server, &clock).await;
        for _ in 0..3 {
            let epoch = worker.claim(1).await.epoch;
            assert!(epoch > last, "{epoch} {last}");
            last = epoch;
        }
    }
}

/// A connection reads the replication id once. Without the permission for it, a worker can still claim.
#[tokio::test]
async fn epochs_are_advanced_once_for_each_connection() {
    needs_redis!();
    let server = Server::start();
    let asked = || {
        let stats = format!("{:?}", server.ask(&["INFO", "commandstats"]));
        let (_, stats) = stats.split_once("cmdstat_info:calls=").unwrap();
        stats.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let producer = worker(&server, &Clock::manual()).await;
    let worker = worker(&server, &Clock::manual()).await;
    asked();
    let before = asked();
    // A request that stores tasks may claim them for an idle session.
    for number in 0..3 {
        producer
            .enqueue((3 * number..3 * number + 3).map(task))
            .await;
    }
    // The connection of this function has read it, too.
    assert_eq!(asked(), before + 2);
    for _ in 0..3 {
        worker.claim(1).await;
    }
    assert_eq!(asked(), before + 4);
    let rights = ["on", ">password", "~throng:*", "&*", "+@all", "-info"];
    server.ask(&[&["ACL", "SETUSER", "worker", "reset"], &rights[..]].concat());
    let url = format!("redis://worker:password@127.0.0.1:{}/", server.port());
    let other = Worker::new(open(&url).await).await;
    let epoch = other.claim(1).await.epoch;
    assert!(epoch > 0);
}

// ===== Promotions =====

/// The claims of all workers, in their order.
type Log = Arc<Mutex<Vec<Claim>>>;

/// A server, and a worker that repeatedly claims and releases a task while the server accepts requests.
struct Node {
    server: Server,
    /// The number of requests that have failed.
    refused: Arc<Number>,
}

impl Node {
    fn start(passed: Duration, log: &Log) -> Self {
        let server = Server::with(&["--appendonly", "no", "--repl-diskless-sync", "no"]);
        let refused = Arc::default();
        let worker = work(
            server.url(),
            clock(passed),
            Arc::clone(log),
            Arc::clone(&refused),
        );
        tokio::spawn(worker);
        Self { server, refused }
    }

    /// Makes the server a replica of the one on a port, which need not exist.
    fn follow(&self, port: u16) {
        self.server
            .ask(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
    }

    /// Waits until the server has the data of its primary.
    async fn until_synced(&self) {
        let is_synced = || {
            let info = format!("{:?}", self.server.ask(&["INFO", "replication"]));
            info.contains("master_link_status:up")
        };
        until_is("the replica has the data", is_synced).await;
    }

    /// Waits until a request of the worker was refused. All earlier claims are then in the log.
    async fn until_refused(&self) {
        let before = self.refused.get();
        until_is("a request is refused", || self.refused.get() > before).await;
    }
}

async fn until_is(what: &str, is: impl Fn() -> bool) {
    let waits = async {
        while !is() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, waits).await.expect(what);
}

async fn work(url: String, clock: Clock, log: Log, refused: Arc<Number>) {
    let mut builder = RedisStore::builder(&url);
    builder.answer_timeout(2 * SOON).connect_timeout(2 * SOON);
    let store = loop {
        match RedisStore::open_as(&builder, Time::manual(clock.clone())).await {
            Ok(store) => break Arc::new(store),
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    };
    loop {
        let Ok(session) = store.open_session(TypeSet::of_tests()).await else {
            refused.add(1);
            continue;
        };
        let worker = Worker {
            session,
            store: Arc::clone(&store),
            number: Number::new(0),
            seen: Mutex::new(None),
        };
        while claim_and_release(&worker, &log).await.is_ok() {}
        refused.add(1);
    }
}

async fn claim_and_release(worker: &Worker, log: &Log) -> Result<(), Failure> {
    let turned = worker.store.turn(worker.new_turn(Vec::new(), 1)).await?;
    if let Some(claim) = turned.claim {
        lock(log).push(claim.clone());
        let released = verdicts(&claim, || Verdict::Release);
        worker.store.turn(worker.new_turn(released, 0)).await?;
    }
    Ok(())
}

/// The two servers change roles repeatedly. Each time, the replica lacks the last claims of its primary. One clock is
/// an hour behind the other.
#[tokio::test]
async fn epochs_rise_over_promotions() {
    needs_redis!();
    const CLAIMS: usize = 20;
    let long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let promotions = if long { 50 } else { 4 };
    let log = Log::default();
    let (mut primary, mut replica) = (Node::start(HOUR, &log), Node::start(Duration::ZERO, &log));
    let producer = Worker::new(open(&primary.server.url()).await).await;
    // Each promotion and each lost answer leaves one task claimed.
    producer.enqueue((0..256).map(task)).await;
    let claims = || lock(&log).len();
    until_is("the epochs of the first server are recalled", || {
        claims() > 0
    })
    .await;
    replica.follow(primary.server.port());
    for _ in 0..promotions {
        replica.until_synced().await;
        // The replica lacks all claims from now on.
        replica.follow(1);
        let before = claims();
        until_is("there are claims", || claims() >= before + CLAIMS).await;
        primary.follow(1);
        primary.until_refused().await;
        replica.server.ask(&["REPLICAOF", "NO", "ONE"]);
        let before = claims();
        until_is("there are claims", || claims() >= before + CLAIMS).await;
        std::mem::swap(&mut primary, &mut replica);
        replica.follow(primary.server.port());
    }
    let log = std::mem::take(&mut *lock(&log));
    assert!(log.len() >= 2 * CLAIMS * promotions);
    for pair in log.windows(2) {
        let [one, next] = pair else { continue };
        assert!(next.epoch > one.epoch, "{} {}", next.epoch, one.epoch);
    }
}
