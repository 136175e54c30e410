//! Servers and keys with other settings.

use super::*;
use crate::durable::DurableError;
use crate::durable::store::{NewStep, StepAnswer, StepKind, StepName};

async fn refused(url: &str) -> DurableError {
    refused_within(url, DEADLINE).await
}

async fn refused_within(url: &str, limit: Duration) -> DurableError {
    let mut builder = RedisStore::builder(url);
    builder.answer_timeout(limit).connect_timeout(limit);
    let opened = builder.open().await;
    opened.expect_err("it should be refused")
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    needs_redis!();
    let mut server = Server::start();
    server.kill();
    let began = Instant::now();
    let url = format!("redis://user:secret@127.0.0.1:{}/", server.port());
    let error = refused_within(&url, SOON).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert!(!error.is_unknown(), "{error}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("refused") && !text.contains("secret"),
        "{text}"
    );
    assert!(!error.is_invalid() && !error.is_unfit(), "{error}");
}

#[tokio::test]
async fn an_invalid_address_is_an_error() {
    needs_redis!();
    let server = Server::start();
    let no_database = format!("redis://127.0.0.1:{}/9999", server.port());
    let mut urls = vec![
        "",
        "localhost:6379",
        "http://localhost",
        "redis://user:secret@/0",
    ];
    urls.extend([
        "redis://user:secret@localhost/first",
        "redis+unix:",
        &no_database,
    ]);
    if cfg!(not(feature = "redis-tls")) {
        urls.push("rediss://user:secret@localhost");
    }
    for url in urls {
        let error = refused(url).await;
        assert!(error.is_invalid() && !error.is_unknown(), "{url}: {error}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret"), "{text}");
        assert!(
            text.contains("redis://user:password@") || text.contains("database"),
            "{text}"
        );
    }
}

/// The error names the option, its value, and the remedy. No connection is opened.
#[tokio::test]
async fn an_invalid_option_is_an_error() {
    let builder = || RedisStore::builder("redis://127.0.0.1:1/");
    let cases = [
        (builder().partitions(0).clone(), "partitions is 0: set"),
        (builder().partitions(65).clone(), "partitions is 65: set"),
        (
            builder().connect_timeout(Duration::ZERO).clone(),
            "connect_timeout is zero: set",
        ),
        (
            builder().answer_timeout(Duration::ZERO).clone(),
            "answer_timeout is zero: set",
        ),
    ];
    for (builder, expected) in cases {
        let error = builder.open().await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_sentinel_is_refused() {
    needs_redis!();
    let primary = Server::start();
    let sentinel = Server::sentinel_of(&primary);
    for database in ["", "3"] {
        let error = refused(&format!("redis://127.0.0.1:{}/{database}", sentinel.port())).await;
        assert!(error.is_unfit() && !error.is_unknown(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("Sentinel") && text.contains("primary"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_missing_password_is_an_error() {
    needs_redis!();
    let server = Server::start();
    server.ask(&[
        "ACL", "SETUSER", "web", "on", ">secret", "~*", "&*", "+@all",
    ]);
    server.ask(&["ACL", "SETUSER", "default", "off"]);
    let at = format!("127.0.0.1:{}", server.port());
    for url in [format!("redis://{at}"), format!("redis://web:wrong@{at}")] {
        let error = refused(&url).await;
        assert!(error.is_denied(), "{error}");
    }
    let store = open(&format!("redis://web:secret@{at}/1")).await;
    assert_eq!(store.name(), format!("redis://{at}/1 (default)"));
    assert!(!format!("{store:?}").contains("secret"));
    let worker = Worker::new(store).await;
    worker.enqueue([task(1)]).await;
}

/// The permissions in the documentation of the store.
fn documented() -> Vec<&'static str> {
    let source = include_str!("../../redis.rs");
    let (_, after) = source.split_once("/// ACL SETUSER worker").unwrap();
    let (command, _) = after.split_once("/// ```").unwrap();
    let words = command.split_whitespace();
    words.filter(|word| *word != "///").collect()
}

/// Creates a user with these permissions. Returns its URL.
fn let_in(server: &Server, rights: &[&str]) -> String {
    server.ask(&[&["ACL", "SETUSER", "worker", "reset"], rights].concat());
    format!("redis://worker:password@127.0.0.1:{}/", server.port())
}

#[tokio::test]
async fn the_documented_permissions_suffice() {
    needs_redis!();
    let server = Server::start();
    let url = let_in(&server, &documented());
    let worker = Worker::new(open(&url).await).await;
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    assert_eq!(worker.store.probe().await.unwrap(), Durability::Memory);
    worker.enqueue((0..4).map(task)).await;
    let claim = worker.claim(3).await;
    worker.store.renew(vec![claim.epoch]).await.unwrap();
    let step = NewStep {
        id: id(1),
        epoch: claim.epoch,
        name: StepName::new(StepKind::Step, "a").unwrap(),
        value: Vec::new(),
    };
    let answers = worker.store.store_steps(vec![step]).await.unwrap();
    assert_eq!(answers, [StepAnswer::Stored]);
    assert_eq!(worker.store.cancel(vec![id(0), id(3)]).await.unwrap(), 2);
    assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
    worker.store.status(vec![id(0), id(9)]).await.unwrap();
    assert_eq!(
        worker
            .store
            .dead_letters(DeadFilter::all(), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(worker.store.steps(id(1)).await.unwrap(), []);
    let payload = worker.store.dead_letter_payload(id(1)).await;
    assert_eq!(payload.unwrap(), None);
    assert_eq!(
        worker
            .store
            .replay_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        worker
            .store
            .delete_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        0
    );
    worker.store.maintain(10).await.unwrap();
    assert_eq!(worker.store.counts().await.unwrap().running, 0);
    worker.store.close_session(worker.session).await.unwrap();
    let missing = [("-evalsha", Cause::Denied), ("-@hash", Cause::Denied)];
    for (right, cause) in missing {
        server.ask(&["ACL", "SETUSER", "worker", "+@all", right]);
        let answer = worker.store.counts().await;
        assert_eq!(answer.expect_err(right).cause, cause, "{right}");
    }
}

#[tokio::test]
async fn durability_is_unknown_without_permissions() {
    needs_redis!();
    let server = Server::start();
    let mut rights = documented();
    rights.retain(|right| !right.contains("info") && !right.contains("config"));
    let worker = Worker::new(open(&let_in(&server, &rights)).await).await;
    assert_eq!(worker.store.probe().await.unwrap(), Durability::Unknown);
    worker.enqueue([task(1)]).await;
    assert_eq!(worker.claim(1).await.tasks.len(), 1);
}

#[tokio::test]
async fn keys_of_another_layout_are_not_touched() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    let layout = |number| server.ask(&["HSET", "throng:{default:0}:meta", "layout", number]);
    layout("99");
    let (found, known) = (99, 2);
    assert_all_refused(&worker, &Cause::NewerLayout { found, known }).await;
    let error = refused(&server.url()).await;
    assert!(
        error.is_newer_layout() && !error.is_older_layout(),
        "{error}"
    );
    layout("1");
    let found = 1;
    assert_all_refused(&worker, &Cause::OlderLayout { found, known }).await;
    let error = refused(&server.url()).await;
    assert!(
        error.is_older_layout() && !error.is_newer_layout(),
        "{error}"
    );
    let text = error.to_string();
    for expected in ["layout 1", "knows layout 2", "finish its tasks", "delete"] {
        assert!(text.contains(expected), "{text}");
    }
    layout("2");
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

async fn assert_all_refused(worker: &Worker, cause: &Cause) {
    let store = &worker.store;
    let none = Effect::None;
    let request = worker.new_enqueue([task(2)]);
    assert_fails(store.enqueue(request).await, cause, none);
    let request = worker.new_turn(Vec::new(), 1);
    assert_fails(store.turn(request).await, cause, none);
    assert_fails(store.renew(vec![1]).await, cause, none);
    assert_fails(store.status(vec![id(1)]).await, cause, none);
    assert_fails(store.cancel(vec![id(1)]).await, cause, none);
    assert_fails(store.open_session(None).await, cause, none);
    assert_fails(store.close_session(worker.session).await, cause, none);
    assert_fails(store.dead_letters(DeadFilter::all(), 1).await, cause, none);
    assert_fails(store.dead_letter_payload(id(1)).await, cause, none);
    let replayed = store.replay_dead_letters(DeadFilter::ids([id(1)])).await;
    assert_fails(replayed, cause, none);
    assert_fails(store.maintain(1).await, cause, none);
    assert_fails(store.counts().await, cause, none);
}

#[tokio::test]
async fn keys_with_foreign_values_are_an_error() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    server.ask(&["SET", "throng:{default:0}:ready", "text"]);
    let answer = worker.store.enqueue(worker.new_enqueue([task(1)])).await;
    assert_eq!(answer.expect_err("a list is needed").cause, Cause::Corrupt);
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_refused() {
    needs_redis!();
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    let error = refused(&server.url()).await;
    assert!(
        error.is_unfit() && error.to_string().contains("allkeys-lru"),
        "{error}"
    );
    let mut builder = RedisStore::builder(&server.url());
    builder
        .allow_eviction(true)
        .open()
        .await
        .expect("it was allowed");
}

#[tokio::test]
async fn the_probe_returns_the_durability_of_the_server() {
    needs_redis!();
    let server = Server::start();
    let store = open(&server.url()).await;
    let set = |name, value| server.ask(&["CONFIG", "SET", name, value]);
    assert_eq!(store.probe().await.unwrap(), Durability::Memory);
    set("appendonly", "yes");
    for (when, expected) in [
        ("everysec", Durability::Buffered),
        ("always", Durability::Synced),
        ("no", Durability::Unknown),
    ] {
        set("appendfsync", when);
        assert_eq!(store.probe().await.unwrap(), expected, "{when}");
    }
    set("appendfsync", "always");
    set("no-appendfsync-on-rewrite", "yes");
    assert_eq!(store.probe().await.unwrap(), Durability::Process);
}

#[tokio::test]
async fn namespaces_are_separate() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    let mut builder = RedisStore::builder(&server.url());
    let other = builder.namespace("other").open().await.unwrap();
    assert_eq!(
        other.status(vec![id(1)]).await.unwrap(),
        [TaskState::Absent]
    );
}
