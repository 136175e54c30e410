//! Stores whose server is named by Sentinels, which may be down, out of date or wrong.

use super::fake_sentinel::{FakeSentinel, Says};
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
    let (asked, others) = (silent.asked(), other.asked());
    assert!(asked > 0);
    cut(&server);
    worker.enqueue([task(1)]).await;
    assert!(other.asked() > others, "it connects again");
    assert_eq!(silent.asked(), asked);
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
    let asked = late.asked();
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
    assert!(late.asked() > asked);
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

#[tokio::test]
async fn an_open_connection_outlives_the_sentinels() {
    needs_redis!();
    let server = Server::start();
    let sentinel = FakeSentinel::naming(&server, 1).await;
    let store = open_within(&mut builder(&[&sentinel]), DEADLINE).await;
    let worker = Worker::new(store).await;
    drop(sentinel);
    worker.enqueue([task(1)]).await;
    assert_eq!(worker.claim(1).await.tasks[0].id, id(1));
    let clients = server.ask(&["CLIENT", "LIST"]);
    assert!(format!("{clients:?}").contains("cmd=eval"), "{clients:?}");
}

#[tokio::test]
async fn a_sentinel_with_useless_answers_is_passed_over() {
    needs_redis!();
    let server = Server::start();
    let useful = FakeSentinel::naming(&server, 1).await;
    for says in [
        Says::Always("HTTP/1.1 400 Bad Request\r\n\r\n"),
        Says::Always("\0\u{ff}garbage\r\n"),
        Says::Always("-ERR this is wrong\r\n"),
        Says::Always("$-1\r\n"),
        Says::Always("*2\r\n:1\r\n:2\r\n"),
        Says::Always("*1000000000\r\n"),
        Says::Always("$1000000000\r\nshort"),
        Says::Primary("host.invalid", server.port(), 1),
        Says::Primary("", server.port(), 1),
        Says::Primary("a host\twith:colons/and@others", server.port(), 1),
        Says::Primary("127.0.0.1", 0, 1),
    ] {
        let useless = FakeSentinel::saying(says).await;
        let mut builder = builder(&[&useless, &useful]);
        builder.connect_timeout(Duration::from_secs(2));
        builder.answer_timeout(DEADLINE).open().await.unwrap();
        assert!(useless.asked() > 0);
        let mut alone = self::builder(&[&useless]);
        alone.connect_timeout(SOON).answer_timeout(SOON);
        let text = refused(&alone).await.to_string();
        assert!(text.contains(&useless.address()), "{text}");
    }
}

/// The first Sentinel is cut off together with the former primary, which still accepts writes.
#[tokio::test]
async fn any_sentinel_can_report_a_failover() {
    needs_redis!();
    let (former, primary) = (Server::start(), Server::start());
    let first = FakeSentinel::naming(&former, 1).await;
    let second = FakeSentinel::naming(&former, 1).await;
    let store = open_within(&mut builder(&[&first, &second]), DEADLINE).await;
    let worker = Worker::new(store).await;
    let watched = async {
        while !second.is_watched() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, watched).await.expect("it is watched");
    second.name(&primary, 2);
    second.cut();
    let left = async {
        loop {
            let answer = worker.store.enqueue(worker.new_enqueue([task(1)])).await;
            // The other server has no session.
            if answer.is_err_and(|it| it.cause == Cause::NoSession) {
                return;
            }
        }
    };
    timeout(DEADLINE, left).await.expect("it leaves");
}

/// As if the former primary had been stopped while it was replaced.
#[tokio::test]
async fn an_answer_of_a_former_primary_is_not_believed() {
    needs_redis!();
    let (former, primary) = (Server::start(), Server::start());
    let sentinel = FakeSentinel::naming(&former, 1).await;
    let store = open_within(&mut builder(&[&sentinel]), DEADLINE).await;
    let worker = Worker::new(store).await;
    worker.enqueue([task(1)]).await;
    former.ask(&["CLIENT", "PAUSE", "1000000", "WRITE"]);
    let store = Arc::clone(&worker.store);
    let request = worker.new_enqueue([task(2)]);
    let request = tokio::spawn(async move { store.enqueue(request).await });
    let arrived = async {
        while !format!("{:?}", former.ask(&["CLIENT", "LIST"])).contains("flags=b") {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, arrived).await.expect("it arrives");
    sentinel.name(&primary, 2);
    sentinel.cut();
    let answer = timeout(DEADLINE / 2, request).await;
    let failure = answer.expect("it does not wait").unwrap().unwrap_err();
    assert_eq!(failure.effect, Effect::Unknown, "{failure}");
    assert!(failure.to_string().contains("another primary"), "{failure}");
    // The client looks for the task at the other server.
    let answer = worker.store.enqueue(worker.new_enqueue([task(2)])).await;
    assert_fails(answer, &Cause::NoSession, Effect::None);
}

/// Sentinels that are set up again count failovers from zero.
#[tokio::test]
async fn sentinels_that_have_lost_their_configuration_are_believed_again() {
    needs_redis!();
    let (former, primary) = (Server::start(), Server::start());
    let sentinel = FakeSentinel::naming(&former, 7).await;
    let store = open_soon(&mut builder(&[&sentinel])).await;
    let worker = Worker::new(store).await;
    // They are believed at once if they name the same server.
    sentinel.name(&former, 0);
    cut(&former);
    let request = worker.new_enqueue([task(1)]);
    settled(|| worker.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    sentinel.name(&primary, 1);
    cut(&former);
    let asked = sentinel.asked();
    let moved = async {
        loop {
            let answer = worker.store.enqueue(Arc::clone(&request)).await;
            if answer.is_err_and(|it| it.cause == Cause::NoSession) {
                return;
            }
        }
    };
    timeout(DEADLINE, moved).await.expect("they are believed");
    assert!(sentinel.asked() > asked + 2, "not at once");
}
