//! Late requests and processes: copies of old requests, processes that were frozen, and servers that were restored to an
//! earlier state.

use std::path::Path;

use super::proxy::Trick;
use super::*;
use crate::durable::clock::Clock;
use crate::durable::store::redis::Time;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Sends a request that the proxy keeps. The client gets no answer.
async fn keep<T: std::fmt::Debug, F: Future<Output = Result<T, Failure>>>(
    proxy: &Proxy,
    send: impl FnOnce() -> F,
) {
    proxy.play(Trick::Keep);
    let failure = send().await.expect_err("it does not get there");
    assert_eq!(failure.effect, Effect::Unknown, "{failure}");
}

/// Delivers the one request that was kept.
async fn deliver(proxy: &Proxy) -> String {
    let mut answers = proxy.deliver().await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.remove(0)
}

/// Loads the scripts into the server, so that no request contains the text of a script.
async fn warm_up(worker: &Worker) {
    worker.enqueue([task(1_000)]).await;
    worker.turn(done(&worker.claim(1).await), 0).await;
}

#[tokio::test]
async fn a_late_copy_of_a_turn_claims_nothing() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    warm_up(&worker).await;
    worker.enqueue((0..6).map(task)).await;
    let first = worker.new_turn(Vec::new(), 2);
    keep(&proxy, || worker.store.turn(Arc::clone(&first))).await;
    let turned = settled(|| worker.store.turn(Arc::clone(&first))).await;
    let claim = turned.unwrap().claim.expect("it is new to the server");
    let second = worker.claim(2).await;
    // The copy gets no claim, and the stored answer of the second turn stays.
    let answer = deliver(&proxy).await;
    assert!(answer.starts_with("-NOSESSION"), "{answer}");
    assert_eq!(worker.store.counts().await.unwrap().running, 4);
    let turned = worker.turn(done(&claim), 2).await;
    assert_eq!(turned.refused, []);
    assert_eq!(worker.turn(done(&second), 0).await.refused, []);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.running, counts.lost, counts.crashed), (2, 0, 0));
}

/// The copy arrives right after the original request.
#[tokio::test]
async fn a_copy_of_the_last_turn_gets_the_same_answer() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    warm_up(&worker).await;
    worker.enqueue((0..6).map(task)).await;
    let turn = worker.new_turn(Vec::new(), 2);
    keep(&proxy, || worker.store.turn(Arc::clone(&turn))).await;
    settled(|| worker.store.turn(Arc::clone(&turn)))
        .await
        .unwrap();
    let answer = deliver(&proxy).await;
    assert!(answer.starts_with('*'), "{answer}");
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.running, counts.waiting), (2, 4));
}

#[tokio::test]
async fn an_abandoned_request_stores_nothing_after_its_number_is_used() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    warm_up(&worker).await;
    let given_up = worker.new_enqueue([task(1)]);
    keep(&proxy, || worker.store.enqueue(Arc::clone(&given_up))).await;
    worker.enqueue([task(2)]).await;
    let answer = deliver(&proxy).await;
    assert!(answer.starts_with("-NOSESSION"), "{answer}");
    let states = worker.store.status(vec![id(1), id(2)]).await.unwrap();
    assert_eq!(states, [TaskState::Absent, TaskState::Waiting]);
}

/// The client has abandoned the request too early. Its effect is unknown, and the id prevents a second one.
#[tokio::test]
async fn an_abandoned_request_that_arrives_first_stores_its_tasks_once() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    warm_up(&worker).await;
    let given_up = worker.new_enqueue([task(1)]);
    keep(&proxy, || worker.store.enqueue(Arc::clone(&given_up))).await;
    assert_eq!(deliver(&proxy).await, "$2\r\nOK\r\n");
    worker.enqueue([task(1), task(2)]).await;
    assert_eq!(worker.store.counts().await.unwrap().stored, 3);
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
}

/// Opens a store with a manual clock.
async fn open_at(url: &str, clock: &Clock) -> RedisStore {
    open_at_within(url, clock, DEADLINE).await
}

async fn open_at_within(url: &str, clock: &Clock, limit: Duration) -> RedisStore {
    let mut builder = RedisStore::builder(url);
    builder.answer_timeout(limit).connect_timeout(limit);
    let opened = RedisStore::open_as(&builder, Time::manual(clock.clone())).await;
    opened.expect("the store can be opened")
}

/// The session is removed after a day, without notice to the producer.
#[tokio::test]
async fn a_producer_that_was_frozen_for_a_day_is_refused() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let clock = Clock::manual();
    let other = open_at(&server.url(), &clock).await;
    let frozen = open_at_within(&proxy.url(), &clock, SOON).await;
    let frozen = Worker::new(frozen).await;
    warm_up(&frozen).await;
    frozen.enqueue([task(1)]).await;
    let living = Worker::new(open_at(&server.url(), &clock).await).await;
    let request = frozen.new_enqueue([task(2)]);
    keep(&proxy, || frozen.store.enqueue(Arc::clone(&request))).await;
    let (client_id, session) = (frozen.store.client_id().to_owned(), frozen.session);
    drop(frozen);
    until_deaf(&server, &client_id).await;
    clock.advance(2 * DAY);
    while other.maintain(100).await.unwrap() {}
    let answer = deliver(&proxy).await;
    assert!(answer.starts_with("-NOSESSION"), "{answer}");
    assert_eq!(
        other.status(vec![id(2)]).await.unwrap(),
        [TaskState::Absent]
    );
    // The producer that continues opens a session of its own.
    let request = Enqueue {
        session,
        ..Arc::unwrap_or_clone(living.new_enqueue([task(2)]))
    };
    let answer = other.enqueue(Arc::new(request)).await;
    assert_fails(answer, &Cause::NoSession, Effect::None);
    // A subscribed producer keeps its session, however long it is silent.
    living.enqueue([task(3)]).await;
}

/// Maintenance removes the session of a crashed worker, before or after its claims are reaped.
#[tokio::test]
async fn maintenance_changes_no_counts() {
    needs_redis!();
    for is_first in [true, false] {
        let server = Server::start();
        let clock = Clock::manual();
        let other = Worker::new(open_at(&server.url(), &clock).await).await;
        let dead = Worker::new(open_at(&server.url(), &clock).await).await;
        dead.enqueue([task(1), task(2)]).await;
        // The second claim confirms that the first one has arrived.
        dead.claim(1).await;
        dead.claim(1).await;
        let client_id = dead.store.client_id().to_owned();
        drop(dead);
        until_deaf(&server, &client_id).await;
        clock.advance(2 * DAY);
        if is_first {
            while other.store.maintain(100).await.unwrap() {}
            let sessions = server.ask(&["HLEN", "throng:{default:0}:sessions"]);
            assert_eq!(sessions, redis::Value::Int(1), "the dead one's is gone");
        }
        for _ in 0..2 {
            other.turn(Vec::new(), 0).await;
            clock.advance(LEASE);
        }
        let counts = other.store.counts().await.unwrap();
        assert_eq!((counts.crashed, counts.lost), (1, 1), "first: {is_first}");
    }
}

/// Waits until nobody receives the messages for a process.
async fn until_deaf(server: &Server, client_id: &str) {
    let channel = format!("throng:{{default:0}}:client:{client_id}");
    let deaf = async {
        while let redis::Value::Array(heard) = server.ask(&["PUBSUB", "NUMSUB", &channel])
            && heard.last() != Some(&redis::Value::Int(0))
        {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, deaf).await.unwrap();
}

/// The answer to each claim is lost, and the worker is gone.
#[tokio::test]
async fn repeated_losses_of_a_claim_count_no_crash() {
    needs_redis!();
    const TIMES: u32 = 5;
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let clock = Clock::manual();
    let other = Worker::new(open_at(&server.url(), &clock).await).await;
    warm_up(&other).await;
    other.enqueue([task(1)]).await;
    for _ in 0..TIMES {
        let worker = Worker::new(open_at(&proxy.url(), &clock).await).await;
        proxy.play(Trick::Lose);
        let answer = worker.store.turn(worker.new_turn(Vec::new(), 1)).await;
        assert_fails(answer, &Cause::Unavailable, Effect::Unknown);
        drop(worker);
        // The first turn makes the claim a suspect, the second one reaps it.
        for _ in 0..2 {
            clock.advance(LEASE);
            assert_eq!(other.turn(Vec::new(), 0).await.claim, None);
        }
    }
    let claim = other.claim(1).await;
    assert_eq!((claim.tasks[0].lost, claim.tasks[0].crashes), (TIMES, 0));
    assert_eq!(other.turn(done(&claim), 0).await.refused, []);
}

/// A copy of the data from before a claim is restored, and the task is claimed again.
#[tokio::test]
async fn a_restored_server_repeats_no_epoch() {
    needs_redis!();
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let first = Worker::new(open_hurried(&url).await).await;
    let second = Worker::new(open_hurried(&url).await).await;
    first.enqueue([task(1)]).await;
    server.kill();
    let copy = tempfile::tempdir().unwrap();
    replace(copy.path(), server.folder());
    server.run();
    let forgotten = first.claim(1).await;
    server.kill();
    replace(server.folder(), copy.path());
    server.run();
    let claim = second.claim(1).await;
    assert_eq!(claim.tasks[0].id, id(1));
    assert!(claim.epoch > forgotten.epoch);
    assert_eq!(first.turn(done(&forgotten), 0).await.refused, [id(1)]);
    let renewed = first.store.renew(vec![forgotten.epoch]).await.unwrap();
    assert_eq!(renewed.lost, [forgotten.epoch]);
    assert_eq!(second.turn(done(&claim), 0).await.refused, []);
}

/// Copies the files of a folder, except for sockets.
fn replace(folder: &Path, with: &Path) {
    let copied = std::process::Command::new("cp")
        .args(["-a", "--"])
        .arg(with.join("."))
        .arg(emptied(folder))
        .status();
    assert!(copied.unwrap().success());
}

fn emptied(folder: &Path) -> &Path {
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::create_dir(folder).unwrap();
    folder
}

#[tokio::test]
async fn a_full_server_repeats_a_claim() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    warm_up(&worker).await;
    worker.enqueue([task(1)]).await;
    let turn = worker.new_turn(Vec::new(), 1);
    proxy.play(Trick::Lose);
    assert!(worker.store.turn(Arc::clone(&turn)).await.is_err());
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let turned = settled(|| worker.store.turn(Arc::clone(&turn))).await;
    let claim = turned.unwrap().claim.expect("the same claim");
    assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
}
