//! Stores whose server is named by Sentinels, which may be down, out of date or wrong.

use super::fake_sentinel::FakeSentinel;
use super::*;
use crate::durable::DurableError;

fn builder(sentinels: &[&FakeSentinel]) -> RedisStoreBuilder {
    RedisStore::sentinel(sentinels.iter().map(|it| it.address()), "main")
}

async fn refused(builder: &RedisStoreBuilder) -> DurableError {
    let opened = builder.open().await;
    opened.expect_err("there is no primary")
}

/// Closes all connections to a server.
pub(super) fn cut(server: &Server) {
    for kind in ["normal", "pubsub"] {
        server.ask(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

#[tokio::test]
async fn a_url_names_the_sentinels_and_the_database() {
    needs_redis!();
    let server = Server::start();
    let sentinel = Server::sentinel_of(&server);
    let address = format!("127.0.0.1:{}", sentinel.port());
    let store = open(&format!("redis-sentinel://127.0.0.1:1,{address}/main/3")).await;
    let name = format!("redis-sentinel://127.0.0.1:1,{address}/main/3 (default)");
    assert_eq!(store.name(), name);
    Worker::new(store).await.enqueue([task(1)]).await;
    let keys = server.ask(&["INFO", "keyspace"]);
    assert!(format!("{keys:?}").contains("db3:"), "{keys:?}");
}

#[tokio::test]
async fn a_sentinel_that_does_not_answer_is_asked_last() {
    needs_redis!();
    let server = Server::start();
    let silent = FakeSentinel::silent().await;
    let other = FakeSentinel::naming(&server, 1).await;
    let mut builder = builder(&[&silent, &other]);
    builder.connect_timeout(Duration::from_millis(200));
    builder.answer_timeout(DEADLINE);
    let worker = Worker::new(builder.open().await.unwrap()).await;
    let watched = async {
        while !other.is_watched() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, watched).await.unwrap();
    let (asked, others) = (silent.connections(), other.connections());
    assert!(asked > 0);
    cut(&server);
    worker.enqueue([task(1)]).await;
    assert!(other.connections() > others, "it connects again");
    assert_eq!(silent.connections(), asked);
}

#[tokio::test]
async fn a_replica_is_refused() {
    needs_redis!();
    let primary = Server::start();
    let replica = Server::replica_of(&primary);
    let sentinel = FakeSentinel::naming(&replica, 1).await;
    let builder = builder(&[&sentinel]);
    let text = refused(&builder).await.to_string();
    for expected in [
        sentinel.address(),
        format!("names 127.0.0.1:{}, which is a replica", replica.port()),
    ] {
        assert!(text.contains(&expected), "{text}");
    }
    // An observer may read from a replica, but does not get there by a Sentinel.
    assert!(builder.observe().await.is_err());
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    builder.open().await.unwrap();
}

#[tokio::test]
async fn an_error_names_the_sentinels_and_the_remedy() {
    needs_redis!();
    let server = Server::start();
    let sentinel = FakeSentinel::naming(&server, 1).await;
    let (known, unknown) = (sentinel.address(), "127.0.0.1:1");

    let error = refused(&RedisStore::sentinel([unknown, "localhost:2"], "main")).await;
    let text = error.to_string();
    assert!(!error.is_invalid() && !error.is_denied(), "{error}");
    for expected in ["no Sentinel answers: check", unknown, "localhost:2"] {
        assert!(text.contains(expected), "{text}");
    }

    let error = refused(&RedisStore::sentinel([unknown, &known], "other")).await;
    let text = error.to_string();
    assert!(error.is_invalid(), "{error}");
    for expected in ["with the name \"other\": use the name", unknown, &known] {
        assert!(text.contains(expected), "{text}");
    }

    let server_address = format!("127.0.0.1:{}", server.port());
    let error = refused(&RedisStore::sentinel([server_address], "main")).await;
    assert!(error.to_string().contains("unknown command"), "{error}");
}

#[tokio::test]
async fn the_server_and_its_sentinels_have_separate_logins() {
    needs_redis!();
    let server = Server::start();
    let sentinel = Server::sentinel_of(&server);
    server.ask(&["ACL", "SETUSER", "default", "resetpass", ">p@ss/word"]);
    sentinel.ask(&["ACL", "SETUSER", "default", "resetpass", ">other"]);
    let mut builder = RedisStore::sentinel([format!("127.0.0.1:{}", sentinel.port())], "main");
    builder.login("default", "p@ss/word");
    let error = refused(&builder).await;
    assert!(
        error.is_denied() && error.to_string().contains("sentinel_login"),
        "{error}"
    );
    builder
        .sentinel_login("default", "other")
        .login("default", "wrong");
    let error = refused(&builder).await;
    assert!(
        error.is_denied() && !error.to_string().contains("sentinel_login"),
        "{error}"
    );
    builder.login("default", "p@ss/word").open().await.unwrap();
    assert!(!format!("{builder:?}").contains("word"));
}

/// The Sentinel that knows of the last failover is gone, and the other one still names the former primary, which accepts writes.
#[tokio::test]
async fn a_sentinel_that_is_out_of_date_is_not_believed() {
    needs_redis!();
    let (former, primary) = (Server::start(), Server::start());
    let sentinel = FakeSentinel::naming(&primary, 2).await;
    let late = FakeSentinel::naming(&former, 1).await;
    let mut builder = builder(&[&sentinel, &late]);
    let worker = Worker::new(open_soon(&mut builder).await).await;
    drop(sentinel);
    let asked = late.connections();
    cut(&primary);
    let request = worker.new_enqueue([task(1)]);
    let failure = loop {
        let answer = worker.store.enqueue(Arc::clone(&request)).await;
        let failure = answer.expect_err("no Sentinel knows the primary");
        if failure.effect == Effect::None {
            break failure;
        }
    };
    assert!(failure.to_string().contains("last failover"), "{failure}");
    assert!(late.connections() > asked);
    assert_eq!(former.ask(&["DBSIZE"]), redis::Value::Int(0));
    late.name(&primary, 2);
    settled(|| worker.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
}

/// The connection is not closed, and no Sentinel reports the failover.
#[tokio::test]
async fn a_store_leaves_a_server_that_has_become_a_replica() {
    needs_redis!();
    let (former, primary) = (Server::start(), Server::start());
    let sentinel = FakeSentinel::naming(&former, 1).await;
    let mut builder = builder(&[&sentinel]);
    let store = open_within(&mut builder, DEADLINE).await;
    let worker = Worker::new(store).await;
    sentinel.name(&primary, 2);
    former.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    // The other server has no session.
    let answer = worker.store.enqueue(worker.new_enqueue([task(1)])).await;
    assert_fails(answer, &Cause::NoSession, Effect::None);
    let later = Worker::of(&worker.store).await;
    later.enqueue([task(1)]).await;
    assert_eq!(later.claim(1).await.tasks[0].id, id(1));
}
